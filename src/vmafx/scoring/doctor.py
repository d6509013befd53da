"""`vmafx doctor`: what this machine can score with, found by running it."""

import asyncio
import platform
import shutil
import tempfile

import av
import msgspec

from vmafx.cores import usable_cores
from vmafx.process import sandbox
from vmafx.process.child import SpawnFailed, exit_description, python_command, run_command
from vmafx.scoring.cache import default_cache_folder
from vmafx.scoring.engines.ffmpeg import BUILT_IN_MODELS, Ffmpeg, FfmpegBuild, find_ffmpeg, inspect_build, missing_parts
from vmafx.scoring.engines.find import Engines, ProbedEngine
from vmafx.scoring.errors import NodeFault
from vmafx.scoring.media.uri import SCHEMES
from vmafx.scoring.models import can_load_model

ENCODERS = ("libx264", "libx265", "libvpx-vp9", "libaom-av1", "libsvtav1")


class DoctorReport(msgspec.Struct, frozen=True):
    """What was found; `wrong` lists problems, and is empty if clips can be scored."""

    ffmpeg: str
    version: str
    libvmaf: bool
    engines: tuple[ProbedEngine, ...]
    models: tuple[str, ...]
    encoders: tuple[str, ...]
    decoder: str
    schemes: tuple[str, ...]
    cores: int
    temporary: str
    temporaryFree: int
    cache: str
    machine: str
    sandbox: str
    wrong: tuple[str, ...]


async def examine() -> DoctorReport:
    engine, build, models, problems = await _check_engine()
    folder, engines = tempfile.gettempdir(), await Engines().probe()
    problems = problems or [one.problem for one in engines if one.facts is None and one.backend == "cpu"]
    return DoctorReport(
        ffmpeg=engine.path,
        version=engine.version,
        libvmaf="libvmaf" in build.filters,
        engines=engines,
        models=models,
        encoders=tuple(name for name in ENCODERS if name in build.encoders),
        decoder=f"PyAV {av.__version__}, libavcodec {'.'.join(map(str, av.library_versions['libavcodec']))}",
        schemes=tuple(name for name, scheme in SCHEMES.items() if scheme.is_installed()),
        cores=usable_cores(),
        temporary=folder,
        temporaryFree=shutil.disk_usage(folder).free,
        cache=str(default_cache_folder() or "none (no home folder)"),
        machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        sandbox=await _check_sandbox(),
        wrong=tuple(problems),
    )


async def _check_engine() -> tuple[Ffmpeg, FfmpegBuild, tuple[str, ...], list[str]]:
    """The engine, its build, the models that it can load, and problems."""
    engine, build = Ffmpeg("", ""), FfmpegBuild(frozenset(), frozenset(), frozenset())
    try:
        engine = await find_ffmpeg()
        build = await inspect_build(engine)
    except NodeFault as fault:
        return engine, build, (), [str(fault)]
    if missing := missing_parts(engine, build):
        return engine, build, (), [missing]
    loaded = await asyncio.gather(*(can_load_model(engine, f"version={name}") for name in BUILT_IN_MODELS))
    models = tuple(name for name, ok in zip(BUILT_IN_MODELS, loaded, strict=True) if ok)
    problems = [f"the libvmaf of {engine.path} has no model {name}" for name in BUILT_IN_MODELS if name not in models]
    return engine, build, models, problems


async def _check_sandbox() -> str:
    """What is in force for a process that confines itself. A missing part is not a problem: clips can be scored."""
    try:
        code, shown, _ = await run_command(python_command(sandbox.__file__))
    except (SpawnFailed, TimeoutError) as error:
        return f"unknown: {error or 'the confined process did not end'}"
    return shown.strip() if code == 0 else f"unknown: the confined process ended with {exit_description(code)}"
