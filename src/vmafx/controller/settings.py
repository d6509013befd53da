"""The settings of `vmafx controller`."""

from typing import Annotated

from vmafx.http.address import ListenAddress
from vmafx.logs import LEVELS, LogFormat, LogLevel
from vmafx.settings import Setting, Settings, one_of

PROGRAM = "vmafx controller"
ABOUT = """The front door for clients and agents: gRPC and HTTP.

Each setting is a flag or a variable; flags win. It keeps nothing: any number of replicas may run."""


def _somewhere(text: str) -> ListenAddress:
    address = ListenAddress.parse(text)
    if address is None:
        raise ValueError(f"{text!r}: gRPC cannot be switched off; use :9090 or 127.0.0.1:9090")
    return address


class ControllerSettings(Settings):
    """The flags and variables of `vmafx controller`."""

    # fmt: off
    grpc_address: Annotated[ListenAddress, Setting(
        "Where gRPC is served.", default=":9090",
        flag="--grpc-address", variable="VMAFX_CONTROLLER_GRPC_LISTEN", parse=_somewhere, metavar="ADDRESS",
    )]
    http_address: Annotated[ListenAddress | None, Setting(
        "Where HTTP is served: /healthz, /readyz, /metrics, /v1; 0 for nowhere.", default=":8080",
        flag="--http-address", variable="VMAFX_CONTROLLER_HTTP_LISTEN", parse=ListenAddress.parse, metavar="ADDRESS",
    )]
    auth: Annotated[str, Setting(
        "Who may come in. token: bearers of a Kubernetes token for the audience vmafx-controller, and client "
        "certificates; insecure: everybody.", default="token",
        flag="--auth", variable="VMAFX_CONTROLLER_AUTH", parse=one_of("token", "insecure"), metavar="token|insecure",
    )]
    tls_cert: Annotated[str, Setting(
        "Certificate (PEM) to serve with; without one, nothing is encrypted.",
        flag="--tls-cert", variable="VMAFX_CONTROLLER_TLS_CERT", metavar="FILE",
    )]
    tls_key: Annotated[str, Setting(
        "Its key (PEM).",
        flag="--tls-key", variable="VMAFX_CONTROLLER_TLS_KEY", metavar="FILE",
    )]
    client_ca: Annotated[str, Setting(
        "Authority (PEM) of client certificates, which stand for users as in Kubernetes; "
        "gRPC then takes no caller without.",
        flag="--client-ca", variable="VMAFX_CONTROLLER_CLIENT_CA", metavar="FILE",
    )]
    namespace: Annotated[str, Setting(
        "Serve this namespace only; all if not said.",
        flag="--namespace", variable="VMAFX_CONTROLLER_NAMESPACE", metavar="NAME",
    )]
    kubeconfig: Annotated[str, Setting(
        "Path of a kubeconfig; if not said: $KUBECONFIG, the Pod's service account, ~/.kube/config.",
        flag="--kubeconfig", metavar="FILE",
    )]
    log_level: Annotated[LogLevel, Setting(
        "What is logged: debug, info, warn or error.", default="info",
        flag="--log-level", variable="VMAFX_LOG_LEVEL", parse=one_of(*LEVELS), metavar="LEVEL",
    )]
    log_format: Annotated[LogFormat, Setting(
        "How it is logged: json or console.", default="json",
        flag="--log-format", variable="VMAFX_CONTROLLER_LOG_FORMAT", parse=one_of("json", "console"), metavar="FORMAT",
    )]
    # fmt: on
