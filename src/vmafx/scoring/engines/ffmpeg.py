"""The ffmpeg program with libvmaf: finds it, and checks its version, filters and protocols."""

import asyncio
import importlib.util
import os
import platform
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
BUILT_IN_MODELS = ("vmaf_v0.6.1", "vmaf_v0.6.1neg", "vmaf_4k_v0.6.1")  # in libvmaf
MIN_VERSION = 6  # the first with the fd: protocol for inputs and -stats_enc_post for frame counts
REMEDY = f"unset {BINARY}, or set it to an ffmpeg {MIN_VERSION} or later with libvmaf"


class FfmpegSettings(Settings):
    """Which ffmpeg to use."""

    ffmpeg: Annotated[str, Setting(
        "Path or name of the ffmpeg to score with (default: the ffmpeg installed with vmafx).", variable=BINARY,
    )]  # fmt: skip


class Ffmpeg(msgspec.Struct, frozen=True):
    """The ffmpeg to score with."""

    path: str
    version: str

    def identity(self) -> tuple[int, int]:
        """Distinguishes builds of the same version."""
        status = Path(self.path).stat()
        return status.st_size, status.st_mtime_ns


class FfmpegBuild(msgspec.Struct, frozen=True):
    """What an ffmpeg was built with."""

    filters: frozenset[str]
    encoders: frozenset[str]
    protocols: frozenset[str]


def ffmpeg_path(environ: Mapping[str, str] = os.environ) -> str:
    """The path of the ffmpeg to use."""
    if configured := from_environ(FfmpegSettings, environ).ffmpeg:
        found = shutil.which(configured)
        if found is None:
            raise NodeFault(
                f"{BINARY} is set to {configured!r}, which is not an executable on this machine;"
                " correct the path, or unset it to use the ffmpeg installed with vmafx"
            )
        return str(Path(found).absolute())
    found = installed_ffmpeg() or shutil.which("ffmpeg")
    if found is None:
        raise NodeFault(
            f"no ffmpeg is installed with vmafx on {platform.system()} {platform.machine()};"
            f" install ffmpeg {MIN_VERSION} or later with libvmaf and set {BINARY} to its path"
        )
    return found


def installed_ffmpeg() -> str | None:
    """The program in the package imageio-ffmpeg, if it has one for this platform.

    The package is not imported: that would run the program, which takes longer than the rest of finding it.
    """
    package = importlib.util.find_spec("imageio_ffmpeg")
    folders = package.submodule_search_locations if package else None
    programs = [path for folder in folders or () for path in Path(folder, "binaries").glob("ffmpeg-*")]
    return str(max(programs)) if programs else None


async def find_ffmpeg(environ: Mapping[str, str] = os.environ) -> Ffmpeg:
    """The ffmpeg to use. `inspect_build` is called only after a failure, since it takes longer than many scores."""
    path = ffmpeg_path(environ)
    version = re.match(r"ffmpeg version (\S+)", await _query(path, "-version"))
    if version is None:
        raise NodeFault(f"{path} is not ffmpeg: `{path} -version` printed no ffmpeg version; {REMEDY}")
    return Ffmpeg(path, version[1])


async def inspect_build(ffmpeg: Ffmpeg) -> FfmpegBuild:
    filters, encoders, protocols = await asyncio.gather(
        *(_query(ffmpeg.path, flag) for flag in ("-filters", "-encoders", "-protocols"))
    )
    return FfmpegBuild(
        filters=frozenset(re.findall(r"^ [A-Z.|]{2,3} (\S+) ", filters, re.MULTILINE)),
        encoders=frozenset(re.findall(r"^ [VAS][A-Z.]{5} (\S+) ", encoders, re.MULTILINE)),
        protocols=frozenset(re.findall(r"^  (\w+)$", protocols.partition("Output:")[0], re.MULTILINE)),
    )


def missing_parts(ffmpeg: Ffmpeg, build: FfmpegBuild) -> str | None:
    """What the ffmpeg lacks for scoring, with the remedy; None if nothing."""
    if "libvmaf" not in build.filters:
        return f"{ffmpeg.path} (ffmpeg {ffmpeg.version}) has no libvmaf filter; {REMEDY}"
    if "fd" not in build.protocols:
        return f"{ffmpeg.path} is ffmpeg {ffmpeg.version}, but vmafx needs {MIN_VERSION} or later; {REMEDY}"
    return None


async def _query(path: str, flag: str) -> str:
    """The output of `ffmpeg FLAG`."""
    try:
        with spawn_errors_as_node_fault():
            code, out, err = await run_command([path, "-hide_banner", flag])
    except TimeoutError as error:
        raise NodeFault(
            f"{path} is not a working ffmpeg: `{path} {flag}` did not finish within a minute; {REMEDY}"
        ) from error
    if code:
        lines = (err or out).strip().splitlines()
        raise NodeFault(
            f"{path} is not a working ffmpeg: `{path} {flag}` failed with {exit_description(code)}:"
            f" {lines[-1] if lines else 'no error message'}; {REMEDY}"
        )
    return out
