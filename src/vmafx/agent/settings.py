"""The settings of `vmafx agent`."""

import os
import re
import socket
from pathlib import Path
from typing import Annotated

from vmafx.api.hardware import AUTO, BACKEND_VARIABLE, Backend, parse_backend
from vmafx.api.node import AGENT_NAME
from vmafx.logs import LEVELS, LogFormat, LogLevel
from vmafx.settings import Setting, Settings, at_least, one_of, parse_bool

PROGRAM = "vmafx agent"
ABOUT = """Run jobs of a vmafx controller on this machine: registers a VmafxNode, pulls jobs, reports their results.

Each setting is a flag, an environment variable, or both; the flag takes precedence.
Exit codes: 0 stopped on request, 1 cannot continue, 2 wrong settings."""
DRAIN = 30  # seconds; shorter than systemd's TimeoutStopSec, and than the operator waits for a job to be taken
MAX_LABEL = 63


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not text:
        raise ValueError("the address of the controller is required: use --controller HOST:PORT")
    if not host or not port.isdecimal() or not 0 < int(port) <= 65535:
        raise ValueError(f"{text!r} is not an address: use HOST:PORT")
    return text


def _name(text: str) -> str:
    name = text or host_label(socket.gethostname())
    if not name:
        raise ValueError("the host name contains no letters or digits to name the node with: use --name NAME")
    if not AGENT_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid node name: use lower-case letters, digits and '-', at most {MAX_LABEL} "
            "characters, such as workstation-7"
        )
    return name


def host_label(host: str) -> str:
    """A host name as a DNS label, the form of a VmafxNode's name."""
    return re.sub(r"[^a-z0-9]+", "-", host.lower())[:MAX_LABEL].strip("-")


def _token(text: str) -> Path | None:
    """Check the file at the start; later, a missing file is retried, because it may be about to be replaced."""
    file = _file(text)
    if file is not None:
        from vmafx.wire.client import read_token  # noqa: PLC0415 - imports grpc, which --help does not need

        read_token(file)
    return file


def _file(text: str) -> Path | None:
    return Path(text) if text else None


def _folder(text: str) -> Path:
    if text:
        return Path(text).absolute()
    try:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError as error:
        raise ValueError("this user has no home folder: use --state-dir FOLDER") from error
    return base / "vmafx" / "agent"


def _labels(text: str) -> dict[str, str]:
    labels = {}
    for label in filter(None, text.split(",")):
        key, equals, value = label.partition("=")
        if not equals or not key:
            raise ValueError(f"{label!r} is not a label: use KEY=VALUE")
        labels[key] = value
    return labels


class AgentSettings(Settings):
    """The flags and environment variables of `vmafx agent`."""

    # fmt: off
    controller: Annotated[str, Setting(
        "Address of the controller's gRPC port, such as vmafx.example.com:9090.",
        flag="--controller", variable="VMAFX_CONTROLLER_GRPC_ADDR", parse=_address, metavar="HOST:PORT",
    )]
    name: Annotated[str, Setting(
        "Name of the VmafxNode (default: derived from the host name).",
        flag="--name", variable="VMAFX_AGENT_NAME", parse=_name, metavar="NAME",
    )]
    namespace: Annotated[str, Setting(
        "Namespace of the VmafxNode (default: the controller's).",
        flag="--namespace", variable="VMAFX_AGENT_NAMESPACE", metavar="NAME",
    )]
    capacity: Annotated[int, Setting(
        "Jobs to run at a time; 0: one per GPU, or without a GPU one per four cores.", default="0",
        flag="--capacity", variable="VMAFX_AGENT_CAPACITY", parse=at_least(0), metavar="N",
    )]
    backend: Annotated[Backend | None, Setting(
        "Backend of the device to register with: cpu, cuda, hip, sycl or metal; auto: detected.", default=AUTO,
        flag="--backend", variable=BACKEND_VARIABLE, parse=parse_backend, metavar="BACKEND",
    )]
    labels: Annotated[dict[str, str], Setting(
        "Label of a VmafxNode that the agent creates; repeat the flag, or separate labels by commas.",
        flag="--label", variable="VMAFX_AGENT_LABELS", parse=_labels, repeated=True, metavar="KEY=VALUE",
    )]
    token: Annotated[Path | None, Setting(
        "File with a bearer token; read for every call, so it can be replaced at any time.",
        flag="--token-file", variable="VMAFX_AGENT_TOKEN_FILE", parse=_token, metavar="FILE",
    )]
    ca: Annotated[Path | None, Setting(
        "File with the CA certificates that verify the controller (default: the system's).",
        flag="--ca", variable="VMAFX_AGENT_CA", parse=_file, metavar="FILE",
    )]
    cert: Annotated[Path | None, Setting(
        "File with a client certificate, for mutual TLS.",
        flag="--cert", variable="VMAFX_AGENT_CERT", parse=_file, metavar="FILE",
    )]
    key: Annotated[Path | None, Setting(
        "File with the private key of the client certificate.",
        flag="--key", variable="VMAFX_AGENT_KEY", parse=_file, metavar="FILE",
    )]
    insecure: Annotated[bool, Setting(
        "Connect without TLS; anyone on the network path can read and change the traffic.", default="false",
        flag="--insecure", variable="VMAFX_AGENT_INSECURE", parse=parse_bool, switch=True, metavar="true|false",
    )]
    state: Annotated[Path, Setting(
        "Folder for results and downloaded clips, used by this agent only (default: $XDG_STATE_HOME/vmafx/agent).",
        flag="--state-dir", variable="VMAFX_AGENT_STATE_DIR", parse=_folder, metavar="FOLDER",
    )]
    samples_mib: Annotated[int, Setting(
        "MiB in the state folder for samples that no training has received yet; the oldest are deleted beyond that; "
        "0: none.", default="64",
        flag="--samples-mib", variable="VMAFX_AGENT_SAMPLES_MIB", parse=at_least(0), metavar="N",
    )]
    drain: Annotated[int, Setting(
        "Seconds for running jobs to finish after SIGTERM; a second SIGTERM stops them at once.", default=str(DRAIN),
        flag="--drain-seconds", variable="VMAFX_AGENT_DRAIN_SECONDS", parse=at_least(0), metavar="N",
    )]
    log_level: Annotated[LogLevel, Setting(
        "Minimum level of log messages: debug, info, warn or error.", default="info",
        flag="--log-level", variable="VMAFX_AGENT_LOG_LEVEL", parse=one_of(*LEVELS), metavar="LEVEL",
    )]
    log_format: Annotated[LogFormat, Setting(
        "Format of the log: json or console.", default="json",
        flag="--log-format", variable="VMAFX_AGENT_LOG_FORMAT", parse=one_of("json", "console"), metavar="FORMAT",
    )]
    # fmt: on
