"""The settings of the operator process; each kind declares its own."""

from typing import Annotated

from vmafx.http.address import ListenAddress
from vmafx.logs import LEVELS, LogFormat, LogLevel
from vmafx.settings import Setting, Settings, at_least, one_of, parse_bool

PROGRAM = "vmafx-operator"
ABOUT = """Reconciles VmafxJob, VmafxNode and the other kinds of vmafx.dev.

Each setting is a flag or a variable; flags win. The probes are /healthz and /readyz, the metrics /metrics."""


class OperatorSettings(Settings):
    """The flags and variables of `vmafx-operator`."""

    # fmt: off
    metrics_address: Annotated[ListenAddress | None, Setting(
        "Where metrics are served; 0 for nowhere.", default=":8081",
        flag="--metrics-bind-address", variable="VMAFX_OPERATOR_METRICS_ADDR", parse=ListenAddress.parse,
        metavar="ADDRESS",
    )]
    probe_address: Annotated[ListenAddress | None, Setting(
        "Where /healthz and /readyz are served; 0 for nowhere.", default=":8082",
        flag="--health-probe-bind-address", variable="VMAFX_OPERATOR_PROBE_ADDR", parse=ListenAddress.parse,
        metavar="ADDRESS",
    )]
    leader_elect: Annotated[bool, Setting(
        "Elect a leader; needed with several replicas.", default="false",
        flag="--leader-elect", variable="VMAFX_OPERATOR_LEADER_ELECT", parse=parse_bool, switch=True,
        metavar="true|false",
    )]
    log_level: Annotated[LogLevel, Setting(
        "What is logged: debug, info, warn or error.", default="info",
        flag="--log-level", variable="VMAFX_OPERATOR_LOG_LEVEL", parse=one_of(*LEVELS), metavar="LEVEL",
    )]
    log_format: Annotated[LogFormat, Setting(
        "How it is logged: json or console.", default="json",
        flag="--log-format", variable="VMAFX_OPERATOR_LOG_FORMAT", parse=one_of("json", "console"), metavar="FORMAT",
    )]
    namespace: Annotated[str, Setting(
        "Watch this namespace only; all if not said.",
        flag="--namespace", variable="VMAFX_OPERATOR_NAMESPACE", metavar="NAME",
    )]
    lease_namespace: Annotated[str, Setting(
        "Namespace of the lease; if not said, the one it runs in.",
        flag="--leader-election-namespace", variable="VMAFX_OPERATOR_LEASE_NAMESPACE", metavar="NAME",
    )]
    kubeconfig: Annotated[str, Setting(
        "Path of a kubeconfig; if not said: $KUBECONFIG, the Pod's service account, ~/.kube/config.",
        flag="--kubeconfig", metavar="FILE",
    )]
    workers: Annotated[int, Setting(
        "Reconciliations at once, for each kind.", default="32",
        flag="--max-concurrent-reconciles", variable="VMAFX_OPERATOR_MAX_CONCURRENT_RECONCILES", parse=at_least(1),
        metavar="N",
    )]
    # fmt: on
