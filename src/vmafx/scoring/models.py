"""Which VMAF model is meant: one that is built into libvmaf, or a file."""

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from vmafx.process.child import run_command
from vmafx.scoring.engine import Engine
from vmafx.scoring.errors import BadInput, spawn_errors_as_node_fault
from vmafx.scoring.media.access import open_media, sha256
from vmafx.scoring.media.policy import MODEL_DIR, MediaPolicy

BUILT_IN = ("vmaf_v0.6.1", "vmaf_v0.6.1neg", "vmaf_4k_v0.6.1")
MAX_MODEL_BYTES = 32 << 20


class VmafModel(msgspec.Struct, frozen=True):
    name: str  # for people
    identity: str  # for the cache
    argument: str  # for libvmaf
    fd: int | None = None


class _Dict(msgspec.Struct):
    model: str
    model_type: str
    feature_names: Annotated[list[str], Meta(min_length=1)]
    slopes: list[float]
    intercepts: list[float]
    score_clip: tuple[float, float]  # without it a score has no bounds


class _File(msgspec.Struct):
    model_dict: _Dict


@asynccontextmanager
async def open_model(name: str, policy: MediaPolicy) -> AsyncIterator[VmafModel]:
    """A model by name, path or URI. A file is handed on as the descriptor whose content was checked."""
    if name in BUILT_IN:
        yield VmafModel(name, name, f"version={name}")
        return
    name = _file_of(name, policy.model_dir)
    bounded = msgspec.structs.replace(policy, max_bytes=min(policy.max_bytes, MAX_MODEL_BYTES))
    async with open_media(name, "model", bounded) as opened:
        if opened.size > MAX_MODEL_BYTES:
            raise BadInput("model", f"{opened.shown} is larger than a model can be ({MAX_MODEL_BYTES >> 20} MiB)")
        _check(os.pread(opened.fd, MAX_MODEL_BYTES, 0), opened.shown)
        identity = f"sha256:{opened.digest or await sha256(opened)}"
        yield VmafModel(opened.shown, identity, f"path=/dev/fd/{opened.fd}", opened.fd)


def _file_of(name: str, folder: Path | None) -> str:
    """A name alone is that of a file in the folder of models, with its ending or without; else it is a path or URI."""
    if "/" in name:
        return name
    if folder is not None and name not in {"", ".", ".."}:
        found = folder / (name if name.endswith(".json") else f"{name}.json")
        if found.exists():
            return str(found)
    if name.endswith(".json"):
        return name
    raise BadInput(
        "model",
        f"there is no model {name!r}; there are {', '.join(BUILT_IN)}, or the path or URI of a model's JSON,"
        f" or the name of one in {MODEL_DIR} ({folder or 'not set'})",
    )


def _check(content: bytes, shown: str) -> None:
    try:
        found = msgspec.json.decode(content, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput("model", f"{shown} is no VMAF model in JSON: {error}") from error
    if found.model_dict.model_type not in {"LIBSVMNUSVR", "RESIDUEBOOTSTRAP_LIBSVMNUSVR"}:
        raise BadInput("model", f"{shown} is a model of type {found.model_dict.model_type!r}, which libvmaf has not")
    wanted = len(found.model_dict.feature_names) + 1
    if {len(found.model_dict.slopes), len(found.model_dict.intercepts)} != {wanted}:
        raise BadInput("model", f"{shown} needs {wanted} slopes and intercepts: of the score, and of each feature")


async def can_load_model(engine: Engine, argument: str, fds: Iterable[int] = ()) -> bool:
    """Whether two generated frames can be scored with this model."""
    source = ("-f", "lavfi", "-i", "testsrc2=s=128x128:r=25:d=0.08,format=yuv420p")
    command = [engine.path, "-hide_banner", "-nostdin", "-loglevel", "error", *source, *source]
    try:
        with spawn_errors_as_node_fault():
            code, _, _ = await run_command(
                [*command, "-lavfi", f"[0][1]libvmaf=model={argument}", "-f", "null", "-"], fds
            )
    except TimeoutError:
        return False
    return code == 0
