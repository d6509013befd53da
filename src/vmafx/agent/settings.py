"""The settings of `vmafx agent`."""

import os
import re
import socket
from pathlib import Path
from typing import Annotated, get_args

from vmafx.api.hardware import Backend
from vmafx.api.node import AGENT_NAME
from vmafx.logs import LEVELS, LogFormat, LogLevel
from vmafx.settings import Setting, Settings, at_least, one_of, parse_bool

PROGRAM = "vmafx agent"
ABOUT = """Scores on this machine what a vmafx controller hands out: registers a VmafxNode, pulls jobs, reports.

Each setting is a flag or a variable; flags win. Exit codes: 0 stopped as told, 1 it cannot go on, 2 wrong settings."""
DRAIN = 30  # seconds: less than systemd waits before it kills, and than the operator waits for a job to be taken
MAX_LABEL = 63


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not text:
        raise ValueError("say where the controller is: --controller HOST:PORT")
    if not host or not port.isdecimal() or not 0 < int(port) <= 65535:
        raise ValueError(f"{text!r} is no address: use HOST:PORT")
    return text


def _name(text: str) -> str:
    name = text or host_label(socket.gethostname())
    if not name:
        raise ValueError("the host name makes no name for a node: say --name NAME")
    if not AGENT_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name for a node: use lower-case letters, digits and '-', at most {MAX_LABEL} of them, "
            "such as workstation-7"
        )
    return name


def host_label(host: str) -> str:
    """A host's name as a DNS label, which is what a VmafxNode's name is."""
    return re.sub(r"[^a-z0-9]+", "-", host.lower())[:MAX_LABEL].strip("-")


def _backend(text: str) -> str | None:
    return one_of(*get_args(Backend))(text) if text else None


def _token(text: str) -> Path | None:
    """One that is no use from the start is a wrong setting; later it may be on its way."""
    file = _file(text)
    if file is not None:
        from vmafx.wire.client import read_token  # noqa: PLC0415 - brings grpc, which the help does without

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
        raise ValueError("this user has no home folder: say --state-dir FOLDER") from error
    return base / "vmafx" / "agent"


def _labels(text: str) -> dict[str, str]:
    labels = {}
    for one in filter(None, text.split(",")):
        key, equals, value = one.partition("=")
        if not equals or not key:
            raise ValueError(f"{one!r} is no label: use KEY=VALUE")
        labels[key] = value
    return labels


class AgentSettings(Settings):
    """The flags and variables of `vmafx agent`."""

    # fmt: off
    controller: Annotated[str, Setting(
        "Where the controller answers gRPC, such as vmafx.example.com:9090.",
        flag="--controller", variable="VMAFX_CONTROLLER_GRPC_ADDR", parse=_address, metavar="HOST:PORT",
    )]
    name: Annotated[str, Setting(
        "Of the VmafxNode; if not said, the host's name.",
        flag="--name", variable="VMAFX_AGENT_NAME", parse=_name, metavar="NAME",
    )]
    namespace: Annotated[str, Setting(
        "Of the VmafxNode; if not said, the controller's.",
        flag="--namespace", variable="VMAFX_AGENT_NAMESPACE", metavar="NAME",
    )]
    capacity: Annotated[int, Setting(
        "Jobs at once; 0 for one per GPU, or without one for every four cores.", default="0",
        flag="--capacity", variable="VMAFX_AGENT_CAPACITY", parse=at_least(0), metavar="N",
    )]
    backend: Annotated[Backend | None, Setting(
        "cpu, cuda, hip, sycl or metal, whatever is found; if not said, by what is found.",
        flag="--backend", variable="VMAFX_BACKEND", parse=_backend, metavar="BACKEND",
    )]
    labels: Annotated[dict[str, str], Setting(
        "A label of the VmafxNode that is made, as KEY=VALUE; repeated, or with commas between.",
        flag="--label", variable="VMAFX_AGENT_LABELS", parse=_labels, repeated=True, metavar="KEY=VALUE",
    )]
    token: Annotated[Path | None, Setting(
        "A file with a bearer token; read for every call, so it may be replaced at any time.",
        flag="--token-file", variable="VMAFX_AGENT_TOKEN_FILE", parse=_token, metavar="FILE",
    )]
    ca: Annotated[Path | None, Setting(
        "Certificates that the controller's is checked against; if not said, the system's.",
        flag="--ca", variable="VMAFX_AGENT_CA", parse=_file, metavar="FILE",
    )]
    cert: Annotated[Path | None, Setting(
        "A certificate to show the controller.",
        flag="--cert", variable="VMAFX_AGENT_CERT", parse=_file, metavar="FILE",
    )]
    key: Annotated[Path | None, Setting(
        "The key of that certificate.",
        flag="--key", variable="VMAFX_AGENT_KEY", parse=_file, metavar="FILE",
    )]
    insecure: Annotated[bool, Setting(
        "Without TLS: whoever is on the way reads and writes everything.", default="false",
        flag="--insecure", variable="VMAFX_AGENT_INSECURE", parse=parse_bool, switch=True, metavar="true|false",
    )]
    state: Annotated[Path, Setting(
        "A folder of this agent alone; clips are fetched into it. If not said, $XDG_STATE_HOME/vmafx/agent.",
        flag="--state-dir", variable="VMAFX_AGENT_STATE_DIR", parse=_folder, metavar="FOLDER",
    )]
    drain: Annotated[int, Setting(
        "Seconds that work in hand is given after SIGTERM; a second SIGTERM ends it at once.", default=str(DRAIN),
        flag="--drain-seconds", variable="VMAFX_AGENT_DRAIN_SECONDS", parse=at_least(0), metavar="N",
    )]
    log_level: Annotated[LogLevel, Setting(
        "What is logged: debug, info, warn or error.", default="info",
        flag="--log-level", variable="VMAFX_AGENT_LOG_LEVEL", parse=one_of(*LEVELS), metavar="LEVEL",
    )]
    log_format: Annotated[LogFormat, Setting(
        "How it is logged: json or console.", default="json",
        flag="--log-format", variable="VMAFX_AGENT_LOG_FORMAT", parse=one_of("json", "console"), metavar="FORMAT",
    )]
    # fmt: on
