"""The settings of `vmafx controller`."""

from typing import Annotated

from vmafx.http.address import ListenAddress
from vmafx.logs import LEVELS, LogFormat, LogLevel
from vmafx.settings import Setting, Settings, at_least, one_of
from vmafx.training.address import TRAINER_ADDRESS

PROGRAM = "vmafx controller"
ABOUT = """Serve clients and agents over gRPC and HTTP.

Each setting is a flag, an environment variable, or both; the flag takes precedence. The controller is
stateless: run any number of replicas."""


def _parse_grpc_address(text: str) -> ListenAddress:
    address = ListenAddress.parse(text)
    if address is None:
        raise ValueError(f"{text!r}: gRPC cannot be disabled; use :9090 or 127.0.0.1:9090")
    return address


class ControllerSettings(Settings):
    """The flags and variables of `vmafx controller`."""

    # fmt: off
    grpc_address: Annotated[ListenAddress, Setting(
        "Address to serve gRPC on.", default=":9090",
        flag="--grpc-address", variable="VMAFX_CONTROLLER_GRPC_LISTEN", parse=_parse_grpc_address, metavar="ADDRESS",
    )]
    http_address: Annotated[ListenAddress | None, Setting(
        "Address to serve HTTP on (/healthz, /readyz, /metrics, /v1); 0 to disable.", default=":8080",
        flag="--http-address", variable="VMAFX_CONTROLLER_HTTP_LISTEN", parse=ListenAddress.parse, metavar="ADDRESS",
    )]
    auth: Annotated[str, Setting(
        "Authentication of callers. token: Kubernetes tokens for the audience vmafx-controller, and client "
        "certificates; insecure: none.", default="token",
        flag="--auth", variable="VMAFX_CONTROLLER_AUTH", parse=one_of("token", "insecure"), metavar="token|insecure",
    )]
    tls_cert: Annotated[str, Setting(
        "TLS certificate of the server (PEM); without one, connections are not encrypted.",
        flag="--tls-cert", variable="VMAFX_CONTROLLER_TLS_CERT", metavar="FILE",
    )]
    tls_key: Annotated[str, Setting(
        "Private key of the TLS certificate (PEM).",
        flag="--tls-key", variable="VMAFX_CONTROLLER_TLS_KEY", metavar="FILE",
    )]
    client_ca: Annotated[str, Setting(
        "CA of client certificates (PEM), which identify users as in Kubernetes; gRPC then requires one from every "
        "caller.",
        flag="--client-ca", variable="VMAFX_CONTROLLER_CLIENT_CA", metavar="FILE",
    )]
    namespace: Annotated[str, Setting(
        "Namespace to serve (default: all).",
        flag="--namespace", variable="VMAFX_CONTROLLER_NAMESPACE", metavar="NAME",
    )]
    max_agent_capacity: Annotated[int, Setting(
        "Maximum capacity of a VmafxNode that an agent creates; an agent that asks for more gets this many jobs.",
        default="64",
        flag="--max-agent-capacity", variable="VMAFX_CONTROLLER_MAX_AGENT_CAPACITY", parse=at_least(1), metavar="N",
    )]
    trainer_address: Annotated[str, TRAINER_ADDRESS]
    kubeconfig: Annotated[str, Setting(
        "Path to a kubeconfig (default: $KUBECONFIG, then the Pod's service account, then ~/.kube/config).",
        flag="--kubeconfig", metavar="FILE",
    )]
    log_level: Annotated[LogLevel, Setting(
        "Minimum level to log: debug, info, warn or error.", default="info",
        flag="--log-level", variable="VMAFX_LOG_LEVEL", parse=one_of(*LEVELS), metavar="LEVEL",
    )]
    log_format: Annotated[LogFormat, Setting(
        "Log format: json or console.", default="json",
        flag="--log-format", variable="VMAFX_CONTROLLER_LOG_FORMAT", parse=one_of("json", "console"), metavar="FORMAT",
    )]
    # fmt: on
