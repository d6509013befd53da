"""How the controller is configured."""

from vmafx.http.address import Address
from vmafx.logs import LEVELS
from vmafx.settings import Setting, one_of

PROGRAM = "vmafx controller"
ABOUT = """The front door for clients and agents: gRPC and HTTP.

Each setting is a flag or a variable; flags win. It keeps nothing: any number of replicas may run."""

SETTINGS = (
    Setting(
        "grpc_address", "Where gRPC is served.", ":9090",
        "--grpc-address", "VMAFX_CONTROLLER_GRPC_LISTEN", Address.parse, metavar="ADDRESS",
    ),
    Setting(
        "http_address", "Where HTTP is served: /healthz, /readyz, /metrics, /v1; 0 for nowhere.", ":8080",
        "--http-address", "VMAFX_CONTROLLER_HTTP_LISTEN", Address.parse, metavar="ADDRESS",
    ),
    Setting(
        "auth",
        "Who may come in. token: bearers of a Kubernetes token for the audience vmafx-controller, and client "
        "certificates; insecure: everybody.",
        "token", "--auth", "VMAFX_CONTROLLER_AUTH", one_of("token", "insecure"), metavar="token|insecure",
    ),
    Setting(
        "tls_cert", "Certificate (PEM) to serve with; without one, nothing is encrypted.", "",
        "--tls-cert", "VMAFX_CONTROLLER_TLS_CERT", metavar="FILE",
    ),
    Setting("tls_key", "Its key (PEM).", "", "--tls-key", "VMAFX_CONTROLLER_TLS_KEY", metavar="FILE"),
    Setting(
        "client_ca",
        "Authority (PEM) of client certificates, which stand for users as in Kubernetes; "
        "gRPC then takes no caller without.", "",
        "--client-ca", "VMAFX_CONTROLLER_CLIENT_CA", metavar="FILE",
    ),
    Setting(
        "namespace", "Serve this namespace only; all if not said.", "",
        "--namespace", "VMAFX_CONTROLLER_NAMESPACE", metavar="NAME",
    ),
    Setting(
        "kubeconfig", "Path of a kubeconfig; if not said: $KUBECONFIG, the Pod's service account, ~/.kube/config.", "",
        "--kubeconfig", metavar="FILE",
    ),
    Setting(
        "log_level", "What is logged: debug, info, warn or error.", "info",
        "--log-level", "VMAFX_LOG_LEVEL", one_of(*LEVELS), metavar="LEVEL",
    ),
    Setting(
        "log_format", "How it is logged: json or console.", "json",
        "--log-format", "VMAFX_CONTROLLER_LOG_FORMAT", one_of("json", "console"), metavar="FORMAT",
    ),
)  # fmt: skip
