"""VMAF models: built into libvmaf, from a JSON file, or learned."""

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from vmafx.process.child import run_command
from vmafx.scoring.engines.ffmpeg import BUILT_IN_MODELS, Ffmpeg
from vmafx.scoring.errors import BadInput, spawn_errors_as_node_fault
from vmafx.scoring.learned import LearnedModel, decode_model, is_learned, predict_scores
from vmafx.scoring.media.access import open_media, sha256
from vmafx.scoring.media.policy import MODEL_DIR, MediaPolicy
from vmafx.scoring.result import Column

MAX_MODEL_BYTES = 32 << 20


class VmafModel(msgspec.Struct, frozen=True):
    name: str  # as displayed
    identity: str  # in the cache key
    argument: str  # of the libvmaf filter
    fd: int | None = None  # of the model file
    learned: LearnedModel | None = None  # predicts from the features that libvmaf computes for its base


class _ModelDict(msgspec.Struct):
    model: str
    model_type: str
    feature_names: Annotated[list[str], Meta(min_length=1)]
    slopes: list[float]
    intercepts: list[float]
    score_clip: tuple[float, float]  # without it, scores are unbounded


class _ModelFile(msgspec.Struct):
    model_dict: _ModelDict


@asynccontextmanager
async def open_model(name: str, policy: MediaPolicy) -> AsyncIterator[VmafModel]:
    """Opens a model by name, path or URI. ffmpeg reads a file by the descriptor whose content was checked.

    With a learned model, libvmaf scores with its base, a built-in model.
    """
    if name in BUILT_IN_MODELS:
        yield VmafModel(name, name, f"version={name}")
        return
    uri = _model_uri(name, policy.model_dir)
    limited = msgspec.structs.replace(policy, max_bytes=min(policy.max_bytes, MAX_MODEL_BYTES))
    async with open_media(uri, "model", limited) as opened:
        if opened.size > MAX_MODEL_BYTES:
            limit = f"{MAX_MODEL_BYTES >> 20} MiB"
            raise BadInput("model", f"{opened.display_name} is larger than {limit}, the limit for models")
        content, shown = os.pread(opened.fd, MAX_MODEL_BYTES, 0), opened.display_name
        identity = f"sha256:{await sha256(opened)}"
        if not is_learned(content):
            _check_content(content, shown)
            yield VmafModel(shown, identity, f"path=/dev/fd/{opened.fd}", opened.fd)
            return
        learned = decode_model(content, shown)
        yield VmafModel(shown, f"{identity} on {learned.base}", f"version={learned.base}", learned=learned)


def with_scores(model: VmafModel, measured: dict[str, Column]) -> dict[str, Column]:
    """What an engine measured, with the scores of the model: those of a learned model are predicted here.

    The scores of its base are then in `vmaf_base`. Raises BadInput if the model cannot predict.
    """
    if model.learned is None:
        return measured
    values = {**measured, "vmaf_base": measured["vmaf"]}
    return {**values, "vmaf": predict_scores(model.learned, values, model.name)}


def _model_uri(name: str, folder: Path | None) -> str:
    """The path of `name` in the models folder, where its .json ending is optional; otherwise `name` as path or URI."""
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
        f"there is no model {name!r}; use {', '.join(BUILT_IN_MODELS)}, the path or URI of a model in JSON,"
        f" or the name of a model in {MODEL_DIR} ({folder or 'not set'})",
    )


def _check_content(content: bytes, name: str) -> None:
    try:
        model = msgspec.json.decode(content, type=_ModelFile).model_dict
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("model", f"{name} is not a VMAF model in JSON: {error}") from error
    if model.model_type not in {"LIBSVMNUSVR", "RESIDUEBOOTSTRAP_LIBSVMNUSVR"}:
        raise BadInput("model", f"{name} is of type {model.model_type!r}, which libvmaf does not support")
    count = len(model.feature_names) + 1
    if {len(model.slopes), len(model.intercepts)} != {count}:
        raise BadInput("model", f"{name} needs {count} slopes and intercepts: one for the score and each feature")


async def can_load_model(ffmpeg: Ffmpeg, argument: str, fds: Iterable[int] = ()) -> bool:
    """Whether libvmaf can score two generated frames with this model."""
    source = ("-f", "lavfi", "-i", "testsrc2=s=128x128:r=25:d=0.08,format=yuv420p")
    command = [ffmpeg.path, "-hide_banner", "-nostdin", "-loglevel", "error", *source, *source]
    try:
        with spawn_errors_as_node_fault():
            code, _, _ = await run_command(
                [*command, "-lavfi", f"[0][1]libvmaf=model={argument}", "-f", "null", "-"], fds
            )
    except TimeoutError:
        return False
    return code == 0
