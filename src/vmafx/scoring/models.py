"""Which VMAF model is meant: one that is built into libvmaf, or a file."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from vmafx.scoring.digest import sha256
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.opened import open_media
from vmafx.scoring.media.policy import Policy

BUILT_IN = ("vmaf_v0.6.1", "vmaf_v0.6.1neg", "vmaf_4k_v0.6.1")
FILE_MAX = 32 << 20


class Model(msgspec.Struct, frozen=True):
    name: str  # for people
    identity: str  # for the cache
    argument: str  # for libvmaf
    fd: int | None = None


class _Dict(msgspec.Struct):
    model: str
    model_type: str
    feature_names: list[str]


class _File(msgspec.Struct):
    model_dict: _Dict


@asynccontextmanager
async def open_model(name: str, policy: Policy) -> AsyncIterator[Model]:
    """A model by name, path or URI. A file is handed on as the descriptor whose content was checked."""
    if name in BUILT_IN:
        yield Model(name, name, f"version={name}")
        return
    if "/" not in name and not name.endswith(".json"):
        raise BadInput(
            "model",
            f"there is no model {name!r}; there are {', '.join(BUILT_IN)}, or the path or URI of a model's JSON",
        )
    bounded = msgspec.structs.replace(policy, max_bytes=min(policy.max_bytes, FILE_MAX))
    async with open_media(name, "model", bounded) as opened:
        if opened.size > FILE_MAX:
            raise BadInput("model", f"{opened.shown} is larger than a model can be ({FILE_MAX >> 20} MiB)")
        _check(os.pread(opened.fd, FILE_MAX, 0), opened.shown)
        identity = f"sha256:{opened.digest or await sha256(opened)}"
        yield Model(opened.shown, identity, f"path=/dev/fd/{opened.fd}", opened.fd)


def _check(content: bytes, shown: str) -> None:
    try:
        found = msgspec.json.decode(content, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput("model", f"{shown} is no VMAF model in JSON: {error}") from error
    if found.model_dict.model_type not in {"LIBSVMNUSVR", "RESIDUEBOOTSTRAP_LIBSVMNUSVR"}:
        raise BadInput("model", f"{shown} is a model of type {found.model_dict.model_type!r}, which libvmaf has not")
