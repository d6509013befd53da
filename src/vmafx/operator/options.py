"""How the operator is configured."""

from vmafx.api.hardware import HARDWARE
from vmafx.http.address import Address
from vmafx.logs import LEVELS
from vmafx.operator.job import following
from vmafx.operator.node.probes import DEFAULT_ADDRESS
from vmafx.settings import NamedSetting as Setting
from vmafx.settings import at_least, one_of, truth

PROGRAM = "vmafx-operator"
ABOUT = """Reconciles VmafxJob, VmafxNode and the other kinds of vmafx.dev.

Each setting is a flag or a variable; flags win. The probes are /healthz and /readyz, the metrics /metrics."""

SETTINGS = (
    Setting(
        "metrics_address", "Where metrics are served; 0 for nowhere.", ":8081",
        "--metrics-bind-address", "VMAFX_OPERATOR_METRICS_ADDR", Address.parse, metavar="ADDRESS",
    ),
    Setting(
        "probe_address", "Where /healthz and /readyz are served; 0 for nowhere.", ":8082",
        "--health-probe-bind-address", "VMAFX_OPERATOR_PROBE_ADDR", Address.parse, metavar="ADDRESS",
    ),
    Setting(
        "leader_elect", "Elect a leader; needed with several replicas.", "false",
        "--leader-elect", "VMAFX_OPERATOR_LEADER_ELECT", truth, switch=True, metavar="true|false",
    ),
    Setting(
        "log_level", "What is logged: debug, info, warn or error.", "info",
        "--log-level", "VMAFX_OPERATOR_LOG_LEVEL", one_of(*LEVELS), metavar="LEVEL",
    ),
    Setting(
        "log_format", "How it is logged: json or console.", "json",
        "--log-format", "VMAFX_OPERATOR_LOG_FORMAT", one_of("json", "console"), metavar="FORMAT",
    ),
    Setting(
        "namespace", "Watch this namespace only; all if not said.", "",
        "--namespace", "VMAFX_OPERATOR_NAMESPACE", metavar="NAME",
    ),
    Setting(
        "lease_namespace", "Namespace of the lease; if not said, the one it runs in.", "",
        "--leader-election-namespace", "VMAFX_OPERATOR_LEASE_NAMESPACE", metavar="NAME",
    ),
    Setting(
        "kubeconfig", "Path of a kubeconfig; if not said: $KUBECONFIG, the Pod's service account, ~/.kube/config.", "",
        "--kubeconfig", metavar="FILE",
    ),
    Setting(
        "workers", "Reconciliations at once, for each kind.", "32",
        "--max-concurrent-reconciles", "VMAFX_OPERATOR_MAX_CONCURRENT_RECONCILES", at_least(1), metavar="N",
    ),
    Setting(
        "controller_address", "Where the controller of a namespace answers /healthz; {namespace} is filled in.",
        DEFAULT_ADDRESS, "", "VMAFX_CONTROLLER_HTTP_ADDR",
    ),
    Setting(
        "following_address",
        "Where another controller is asked about the jobs it has, by gRPC; {namespace} is filled in.",
        following.DEFAULT_ADDRESS, "", "VMAFX_CONTROLLER_GRPC_ADDR", following.address,
    ),
    Setting(
        "worker_image", "The image that jobs run in, where their VmafxNode names none.", "vmafx:latest",
        "", "VMAFX_WORKER_IMAGE",
    ),
    Setting(
        "intel_device", "What the cluster calls an Intel GPU; gpu.intel.com/xe for the newer driver.",
        HARDWARE["intel"].resource or "", "", "VMAFX_INTEL_DEVICE",
    ),
)  # fmt: skip
