"""What this machine can score, found by trying it."""

import asyncio
import platform
import shutil
import tempfile

import av
import msgspec

from vmafx.cores import usable_cores
from vmafx.scoring import engine as engines
from vmafx.scoring.cache import default_cache_folder
from vmafx.scoring.engine import Engine, FfmpegBuild
from vmafx.scoring.errors import NodeFault
from vmafx.scoring.media.uri import SCHEMES
from vmafx.scoring.models import BUILT_IN, can_load_model

ENCODERS = ("libx264", "libx265", "libvpx-vp9", "libaom-av1", "libsvtav1")


class DoctorReport(msgspec.Struct, frozen=True):
    """All there is to know; `wrong` is empty if clips can be scored."""

    ffmpeg: str
    version: str
    libvmaf: bool
    models: tuple[str, ...]
    encoders: tuple[str, ...]
    prober: str
    schemes: tuple[str, ...]
    cores: int
    temporary: str
    temporaryFree: int
    cache: str
    machine: str
    wrong: tuple[str, ...]


async def examine() -> DoctorReport:
    engine, parts, models, wrong = await _engine()
    folder = tempfile.gettempdir()
    return DoctorReport(
        ffmpeg=engine.path,
        version=engine.version,
        libvmaf="libvmaf" in parts.filters,
        models=models,
        encoders=tuple(name for name in ENCODERS if name in parts.encoders),
        prober=f"PyAV {av.__version__}, libavcodec {'.'.join(map(str, av.library_versions['libavcodec']))}",
        schemes=tuple(name for name, scheme in SCHEMES.items() if scheme.is_installed()),
        cores=usable_cores(),
        temporary=folder,
        temporaryFree=shutil.disk_usage(folder).free,
        cache=str(default_cache_folder() or "none: there is no home folder"),
        machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        wrong=tuple(wrong),
    )


async def _engine() -> tuple[Engine, FfmpegBuild, tuple[str, ...], list[str]]:
    engine, parts = Engine("", ""), FfmpegBuild(frozenset(), frozenset(), frozenset())
    try:
        engine = await engines.find_engine()
        parts = await engines.inspect_build(engine)
    except NodeFault as fault:
        return engine, parts, (), [str(fault)]
    if lacking := engines.missing_parts(engine, parts):
        return engine, parts, (), [lacking]
    models = await _models(engine)
    return engine, parts, models, [f"model {name} is not in its libvmaf" for name in BUILT_IN if name not in models]


async def _models(engine: Engine) -> tuple[str, ...]:
    """Those with which two generated frames can be scored."""
    works = await asyncio.gather(*(can_load_model(engine, f"version={name}") for name in BUILT_IN))
    return tuple(name for name, can in zip(BUILT_IN, works, strict=True) if can)
