"""The ffmpeg at hand, and what it can do."""

import asyncio
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from vmafx.process.child import exit_description, run_command
from vmafx.scoring.errors import NodeFault, spawn_errors_as_node_fault
from vmafx.settings import Setting, Settings, from_environ

BINARY = "VMAFX_FFMPEG_BIN"
MIN_VERSION = 6  # the first that reads a descriptor it is given, and tells how many frames each stream had


class EngineSettings(Settings):
    """Which ffmpeg scores."""

    ffmpeg: Annotated[str, Setting(
        "The ffmpeg to score with, by path or name; if not said, the one that comes with vmafx.", variable=BINARY,
    )]  # fmt: skip


class Engine(msgspec.Struct, frozen=True):
    """The ffmpeg to score with."""

    path: str
    version: str

    def identity(self) -> tuple[int, int]:
        """Tells it from another of the same version."""
        status = Path(self.path).stat()
        return status.st_size, status.st_mtime_ns


class FfmpegBuild(msgspec.Struct, frozen=True):
    """What an ffmpeg is made of."""

    filters: frozenset[str]
    encoders: frozenset[str]
    protocols: frozenset[str]


def find_ffmpeg(environ: Mapping[str, str] = os.environ) -> str:
    """The path of the ffmpeg to use."""
    if named := from_environ(EngineSettings, environ).ffmpeg:
        found = shutil.which(named)
        if found is None:
            raise NodeFault(f"{BINARY} names {named!r}, which is no program here")
        return str(Path(found).absolute())
    import imageio_ffmpeg  # noqa: PLC0415 - only where no other is named

    try:
        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except RuntimeError as error:
        raise NodeFault(
            f"vmafx brings no ffmpeg for this platform; install one with libvmaf and name it in {BINARY}"
        ) from error


async def find_engine(environ: Mapping[str, str] = os.environ) -> Engine:
    """The ffmpeg to use. What it can do is asked only when it failed: that takes longer than many a score."""
    path = find_ffmpeg(environ)
    said = re.match(r"ffmpeg version (\S+)", await _ask(path, "-version"))
    if said is None:
        raise NodeFault(f"{path} does not say that it is ffmpeg")
    return Engine(path, said[1])


async def inspect_build(engine: Engine) -> FfmpegBuild:
    filters, encoders, protocols = await asyncio.gather(
        *(_ask(engine.path, what) for what in ("-filters", "-encoders", "-protocols"))
    )
    return FfmpegBuild(
        filters=frozenset(re.findall(r"^ [A-Z.|]{2,3} (\S+) ", filters, re.MULTILINE)),
        encoders=frozenset(re.findall(r"^ [VAS][A-Z.]{5} (\S+) ", encoders, re.MULTILINE)),
        protocols=frozenset(re.findall(r"^  (\w+)$", protocols.partition("Output:")[0], re.MULTILINE)),
    )


def missing_parts(engine: Engine, has: FfmpegBuild) -> str | None:
    """What is missing for scoring, and what to do about it; None if nothing is."""
    remedy = f"unset {BINARY}, or name another there"
    if "libvmaf" not in has.filters:
        return f"{engine.path} (ffmpeg {engine.version}) has no libvmaf filter; {remedy}"
    if "fd" not in has.protocols:
        return f"{engine.path} is ffmpeg {engine.version}, and {MIN_VERSION} or later is needed; {remedy}"
    return None


async def _ask(path: str, what: str) -> str:
    try:
        with spawn_errors_as_node_fault():
            code, out, err = await run_command([path, "-hide_banner", what])
    except TimeoutError as error:
        raise NodeFault(f"{path} {what} gave no answer within a minute") from error
    if code:
        said = (err or out).strip().splitlines()
        raise NodeFault(
            f"{path} {what} failed with {exit_description(code)}: {said[-1] if said else 'it said nothing'}"
        )
    return out
