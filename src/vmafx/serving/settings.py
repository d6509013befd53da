"""The settings of `vmafx serve`."""

from pathlib import Path
from typing import Annotated

from vmafx.api.hardware import AUTO, BACKEND_VARIABLE, BACKENDS, Backend, parse_backend
from vmafx.api.inference import GATEWAY_HOST_VARIABLE, GRPC_VARIABLE, MODEL_VARIABLE, PORT_VARIABLE
from vmafx.api.units import parse_bytes
from vmafx.http.address import ListenAddress
from vmafx.http.hosts import parse_hosts
from vmafx.logs import LEVELS, LogFormat, LogLevel
from vmafx.settings import Setting, Settings, at_least, one_of

PROGRAM = "vmafx serve"
MAX_WAIT = 60  # seconds for which a request may wait for its job
ABOUT = """Serve scores over HTTP and gRPC, with a page for people.

Each setting is a flag, an environment variable, or both; the flag takes precedence. Local clips can be named only in
the folders of VMAFX_MEDIA_ROOTS; the other variables of `vmafx score` apply, too."""


def _parse_address(text: str) -> ListenAddress | None:
    return ListenAddress.parse(text) if text else None


def _parse_folder(text: str) -> Path | None:
    return Path(text).absolute() if text else None


def _parse_wait(text: str) -> int:
    seconds = at_least(0)(text)
    if seconds > MAX_WAIT:
        raise ValueError(f"{text!r} is more than {MAX_WAIT}, the longest time that a request can wait")
    return seconds


class ServeSettings(Settings):
    """The flags and variables of `vmafx serve`."""

    # fmt: off
    http_address: Annotated[ListenAddress | None, Setting(
        "Address to serve HTTP on: the page, /v1, /healthz, /readyz, /metrics (default :8080, or the port in PORT).",
        flag="--http-address", variable="VMAFX_SERVE_HTTP_LISTEN", parse=_parse_address, metavar="ADDRESS",
    )]
    port: Annotated[int, Setting(
        "Port to serve HTTP on, if no address is given; set by the operator for inference services.", default="8080",
        variable=PORT_VARIABLE, parse=at_least(0),
    )]
    grpc_address: Annotated[ListenAddress | None, Setting(
        "Address to serve gRPC on; 0 to disable.", default=":9090",
        flag="--grpc-address", variable=GRPC_VARIABLE, parse=ListenAddress.parse, metavar="ADDRESS",
    )]
    model: Annotated[str, Setting(
        "Model that scores are made with, unless a request names another one: a name, a path or URI, or the oci:// "
        "digest of a training.", default="vmaf_v0.6.1",
        flag="--model", variable=MODEL_VARIABLE, metavar="MODEL",
    )]
    backend: Annotated[Backend | None, Setting(
        f"Backend to score on, unless a request names another one: {', '.join(BACKENDS)}; {AUTO} for the best engine "
        "of the machine. Without an engine for it, the server ends at once.",
        default=AUTO, flag="--backend", variable=BACKEND_VARIABLE, parse=parse_backend, metavar="BACKEND",
    )]
    data: Annotated[Path | None, Setting(
        "Folder for jobs, uploaded clips and results; a restart continues from it (default: a temporary one, so that "
        "nothing survives a restart).",
        flag="--data", variable="VMAFX_SERVE_DATA", parse=_parse_folder, metavar="FOLDER",
    )]
    auth: Annotated[str, Setting(
        "Authentication of callers. none: everybody may score; keys: API keys; token: Kubernetes tokens for the "
        "audience vmafx-controller, whose users may create VmafxJobs.", default="none",
        flag="--auth", variable="VMAFX_SERVE_AUTH", parse=one_of("none", "keys", "token"), metavar="none|keys|token",
    )]
    keys: Annotated[Path | None, Setting(
        "File with the API keys, a line each: NAME KEY. It is read again when it changes, within a second.",
        flag="--keys", variable="VMAFX_SERVE_KEYS", parse=_parse_folder, metavar="FILE",
    )]
    hosts: Annotated[tuple[str, ...], Setting(
        "Names under which browsers reach this server, separated by commas, such as vmaf.example.com; addresses, "
        "localhost and names inside the cluster are always allowed.",
        flag="--hosts", variable="VMAFX_SERVE_HOSTS", parse=parse_hosts, metavar="NAMES",
    )]
    gateway_host: Annotated[tuple[str, ...], Setting(
        "Name of an inference service at its gateway; set by the operator.",
        variable=GATEWAY_HOST_VARIABLE, parse=parse_hosts,
    )]
    parallel: Annotated[int, Setting(
        "Jobs to score at the same time; they share the cores (0: one for every four cores).", default="0",
        flag="--parallel", variable="VMAFX_SERVE_PARALLEL", parse=at_least(0), metavar="N",
    )]
    queue: Annotated[int, Setting(
        "Maximum number of jobs that wait; of it, a caller alone gets at most half.", default="256",
        flag="--queue", variable="VMAFX_SERVE_QUEUE", parse=at_least(2), metavar="N",
    )]
    wait: Annotated[int, Setting(
        "Seconds after which a request gets 202 and the URL of its job instead of the score, unless it asks for "
        "another time (`Prefer: wait=N`, at most 60).", default="10",
        flag="--wait", variable="VMAFX_SERVE_WAIT", parse=_parse_wait, metavar="SECONDS",
    )]
    deadline: Annotated[int, Setting(
        "Seconds for a job, from its request to its score.", default="14400",
        flag="--deadline", variable="VMAFX_SERVE_DEADLINE", parse=at_least(1), metavar="SECONDS",
    )]
    grace: Annotated[int, Setting(
        "Seconds for jobs to finish after SIGTERM; those that do not are continued after the next start.",
        default="45", flag="--grace", variable="VMAFX_SERVE_GRACE", parse=at_least(0), metavar="SECONDS",
    )]
    max_upload: Annotated[int, Setting(
        "Maximum size of an uploaded clip, such as 10Gi.", default="8Gi",
        flag="--max-upload", variable="VMAFX_SERVE_MAX_UPLOAD", parse=parse_bytes, metavar="SIZE",
    )]
    results_size: Annotated[int, Setting(
        "Disk space for results; the least recently used are deleted above it.", default="2Gi",
        flag="--results-size", variable="VMAFX_SERVE_RESULTS_SIZE", parse=parse_bytes, metavar="SIZE",
    )]
    kubeconfig: Annotated[str, Setting(
        "Path to a kubeconfig, for --auth token (default: $KUBECONFIG, then the Pod's service account, then "
        "~/.kube/config).", flag="--kubeconfig", metavar="FILE",
    )]
    namespace: Annotated[str, Setting(
        "Namespace in which users of --auth token must be allowed to create VmafxJobs (default: that of the "
        "kubeconfig).", flag="--namespace", variable="VMAFX_SERVE_NAMESPACE", metavar="NAME",
    )]
    tls_cert: Annotated[str, Setting(
        "TLS certificate of the server (PEM); without one, connections are not encrypted.",
        flag="--tls-cert", variable="VMAFX_SERVE_TLS_CERT", metavar="FILE",
    )]
    tls_key: Annotated[str, Setting(
        "Private key of the TLS certificate (PEM).",
        flag="--tls-key", variable="VMAFX_SERVE_TLS_KEY", metavar="FILE",
    )]
    log_level: Annotated[LogLevel, Setting(
        "Minimum level to log: debug, info, warn or error.", default="info",
        flag="--log-level", variable="VMAFX_LOG_LEVEL", parse=one_of(*LEVELS), metavar="LEVEL",
    )]
    log_format: Annotated[LogFormat, Setting(
        "Log format: json or console.", default="json",
        flag="--log-format", variable="VMAFX_SERVE_LOG_FORMAT", parse=one_of("json", "console"), metavar="FORMAT",
    )]
    # fmt: on
