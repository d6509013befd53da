"""Settings of the operator process. Each kind declares its own in its folder."""

import re
from typing import Annotated

from vmafx.api.hardware import HARDWARE
from vmafx.http.address import ListenAddress
from vmafx.logs import LEVELS, LogFormat, LogLevel
from vmafx.settings import Setting, Settings, at_least, one_of, parse_bool

PROGRAM = "vmafx-operator"
ABOUT = """Run the operator, which reconciles the kinds of vmafx.dev.

Each setting is a flag, an environment variable, or both; the flag takes precedence. Probes are served at /healthz and
/readyz, metrics at /metrics."""


class ControllerAddress(Settings):
    """The controller of a namespace, for kinds that need it."""

    # fmt: off
    controller_address: Annotated[str, Setting(
        "HTTP address of the controller, which the operator probes at /healthz and worker Pods push samples to; "
        "{namespace} stands for the namespace of the node or Pod.",
        default="http://vmafx-controller.{namespace}.svc.cluster.local:8080", variable="VMAFX_CONTROLLER_HTTP_ADDR",
    )]
    # fmt: on


WORKER_IMAGE = Setting(
    "Image of vmafx: of worker Pods, unless their VmafxNode has spec.image, and the default of other Pods.",
    default="vmafx:latest",
    variable="VMAFX_WORKER_IMAGE",
)


def _names(text: str) -> tuple[str, ...]:
    """Names of Secrets, separated by commas."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", name):
            raise ValueError(f"{name!r} is not the name of a Secret")
    return names


PULL_SECRETS = Setting(
    "Secrets for pulling the images of all Pods that the operator creates, separated by commas; each namespace with "
    "such Pods needs them. A worker Pod has those of podTemplate of its VmafxNode instead, if it names any.",
    variable="VMAFX_IMAGE_PULL_SECRETS",
    parse=_names,
)


class OperatorSettings(Settings):
    """Flags and environment variables of `vmafx-operator`."""

    # fmt: off
    metrics_address: Annotated[ListenAddress | None, Setting(
        "Address to serve metrics on; 0 to disable.", default=":8081",
        flag="--metrics-bind-address", variable="VMAFX_OPERATOR_METRICS_ADDR", parse=ListenAddress.parse,
        metavar="ADDRESS",
    )]
    probe_address: Annotated[ListenAddress | None, Setting(
        "Address to serve /healthz and /readyz on; 0 to disable.", default=":8082",
        flag="--health-probe-bind-address", variable="VMAFX_OPERATOR_PROBE_ADDR", parse=ListenAddress.parse,
        metavar="ADDRESS",
    )]
    leader_elect: Annotated[bool, Setting(
        "Use leader election; required with more than one replica.", default="false",
        flag="--leader-elect", variable="VMAFX_OPERATOR_LEADER_ELECT", parse=parse_bool, switch=True,
        metavar="true|false",
    )]
    log_level: Annotated[LogLevel, Setting(
        "Minimum level to log: debug, info, warn or error.", default="info",
        flag="--log-level", variable="VMAFX_OPERATOR_LOG_LEVEL", parse=one_of(*LEVELS), metavar="LEVEL",
    )]
    log_format: Annotated[LogFormat, Setting(
        "Log format: json or console.", default="json",
        flag="--log-format", variable="VMAFX_OPERATOR_LOG_FORMAT", parse=one_of("json", "console"), metavar="FORMAT",
    )]
    namespace: Annotated[str, Setting(
        "Namespace to watch (default: all namespaces).",
        flag="--namespace", variable="VMAFX_OPERATOR_NAMESPACE", metavar="NAME",
    )]
    lease_namespace: Annotated[str, Setting(
        "Namespace of the Lease (default: the operator's own namespace).",
        flag="--leader-election-namespace", variable="VMAFX_OPERATOR_LEASE_NAMESPACE", metavar="NAME",
    )]
    kubeconfig: Annotated[str, Setting(
        "Path to a kubeconfig (default: $KUBECONFIG, then the Pod's service account, then ~/.kube/config).",
        flag="--kubeconfig", metavar="FILE",
    )]
    max_concurrent: Annotated[int, Setting(
        "Maximum number of concurrent reconciliations per kind; up to four more after a start.", default="32",
        flag="--max-concurrent-reconciles", variable="VMAFX_OPERATOR_MAX_CONCURRENT_RECONCILES", parse=at_least(1),
        metavar="N",
    )]
    intel_device: Annotated[str, Setting(
        "Resource name of an Intel GPU; gpu.intel.com/xe for the xe driver.",
        default=HARDWARE["intel"].resource or "", variable="VMAFX_INTEL_DEVICE",
    )]
    # fmt: on
