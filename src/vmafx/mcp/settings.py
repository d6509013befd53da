"""The settings of `vmafx mcp`."""

from pathlib import Path
from typing import Annotated

from vmafx.api.units import parse_bytes
from vmafx.http.address import ListenAddress
from vmafx.http.hosts import parse_hosts
from vmafx.logs import LEVELS, LogFormat, LogLevel
from vmafx.settings import Setting, Settings, at_least, one_of, parse_bool

PROGRAM = "vmafx mcp"
ABOUT = """Serve scores, comparisons of encoders and jobs as tools for assistants (Model Context Protocol).

Without --http-address, it serves one client on standard input and output. Each setting is a flag, an environment
variable, or both; the flag takes precedence. Local clips can be named only in the folders of VMAFX_MEDIA_ROOTS; on
standard input and output these are by default the current folder, unless that is / or the home folder. The other
variables of `vmafx score` apply, too."""


def _parse_address(text: str) -> ListenAddress | None:
    return ListenAddress.parse(text) if text else None


def _parse_path(text: str) -> Path | None:
    return Path(text).absolute() if text else None


class McpSettings(Settings):
    """The flags and variables of `vmafx mcp`."""

    # fmt: off
    http_address: Annotated[ListenAddress | None, Setting(
        "Address to serve HTTP on, such as 127.0.0.1:8080: /mcp, /healthz, /readyz, /metrics (default: none; serve on "
        "standard input and output).",
        flag="--http-address", variable="VMAFX_MCP_HTTP_LISTEN", parse=_parse_address, metavar="ADDRESS",
    )]
    state: Annotated[Path | None, Setting(
        "Folder for jobs, results and encodes; a restart continues from it (default: /var/lib/vmafx/mcp if this user "
        "can write to /var/lib/vmafx, else ~/.local/state/vmafx/mcp).",
        flag="--state", variable="VMAFX_MCP_STATE", parse=_parse_path, metavar="FOLDER",
    )]
    auth: Annotated[str, Setting(
        "Authentication of HTTP callers. none: everybody may use all tools; keys: API keys; token: Kubernetes tokens "
        "for the audience vmafx-controller, whose users may create VmafxJobs.", default="none",
        flag="--auth", variable="VMAFX_MCP_AUTH", parse=one_of("none", "keys", "token"), metavar="none|keys|token",
    )]
    keys: Annotated[Path | None, Setting(
        "File with the API keys, a line each: NAME KEY. It is read again when it changes, within a second.",
        flag="--keys", variable="VMAFX_MCP_KEYS", parse=_parse_path, metavar="FILE",
    )]
    hosts: Annotated[tuple[str, ...], Setting(
        "Names under which clients reach this server, separated by commas, such as mcp.example.com; addresses, "
        "localhost and names inside the cluster are always allowed.",
        flag="--hosts", variable="VMAFX_MCP_HOSTS", parse=parse_hosts, metavar="NAMES",
    )]
    parallel: Annotated[int, Setting(
        "Jobs to work on at the same time.", default="1",
        flag="--parallel", variable="VMAFX_MCP_PARALLEL", parse=at_least(1), metavar="N",
    )]
    queue: Annotated[int, Setting(
        "Maximum number of jobs that wait; of it, a caller alone gets at most half.", default="64",
        flag="--queue", variable="VMAFX_MCP_QUEUE", parse=at_least(2), metavar="N",
    )]
    wait: Annotated[int, Setting(
        "Seconds that a call waits for its job, unless it asks for another time. Then it gets the ID of the job. "
        "Usual clients give up after a minute.", default="50",
        flag="--wait", variable="VMAFX_MCP_WAIT", parse=at_least(0), metavar="SECONDS",
    )]
    deadline: Annotated[int, Setting(
        "Seconds that a job may run; others wait for it.", default="86400",
        flag="--deadline", variable="VMAFX_MCP_DEADLINE", parse=at_least(1), metavar="SECONDS",
    )]
    results_size: Annotated[int, Setting(
        "Disk space for the values of frames; the least recently used are deleted above it.", default="2Gi",
        flag="--results-size", variable="VMAFX_MCP_RESULTS_SIZE", parse=parse_bytes, metavar="SIZE",
    )]
    encodes_size: Annotated[int, Setting(
        "Disk space for encodes; the least recently used are deleted above it, when the next job begins.",
        default="20Gi",
        flag="--encodes-size", variable="VMAFX_MCP_ENCODES_SIZE", parse=parse_bytes, metavar="SIZE",
    )]
    cluster: Annotated[bool, Setting(
        "Submit the jobs of submit_job to the cluster of the kubeconfig, and list its jobs and nodes.",
        default="false", switch=True,
        flag="--cluster", variable="VMAFX_MCP_CLUSTER", parse=parse_bool, metavar="true|false",
    )]
    kubeconfig: Annotated[str, Setting(
        "Path to a kubeconfig, for --cluster and --auth token (default: $KUBECONFIG, then the Pod's service account, "
        "then ~/.kube/config).", flag="--kubeconfig", metavar="FILE",
    )]
    namespace: Annotated[str, Setting(
        "Namespace of the cluster's jobs, in which users of --auth token must be allowed to create VmafxJobs (default: "
        "that of the kubeconfig).", flag="--namespace", variable="VMAFX_MCP_NAMESPACE", metavar="NAME",
    )]
    tls_cert: Annotated[str, Setting(
        "TLS certificate of the server (PEM); without one, connections are not encrypted.",
        flag="--tls-cert", variable="VMAFX_MCP_TLS_CERT", metavar="FILE",
    )]
    tls_key: Annotated[str, Setting(
        "Private key of the TLS certificate (PEM).",
        flag="--tls-key", variable="VMAFX_MCP_TLS_KEY", metavar="FILE",
    )]
    log_level: Annotated[LogLevel, Setting(
        "Minimum level to log, on standard error: debug, info, warn or error.", default="info",
        flag="--log-level", variable="VMAFX_LOG_LEVEL", parse=one_of(*LEVELS), metavar="LEVEL",
    )]
    log_format: Annotated[LogFormat, Setting(
        "Log format: json or console.", default="json",
        flag="--log-format", variable="VMAFX_MCP_LOG_FORMAT", parse=one_of("json", "console"), metavar="FORMAT",
    )]
    # fmt: on
