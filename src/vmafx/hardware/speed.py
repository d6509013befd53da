"""Measures how fast this machine scores: runs a real worker on a generated clip, and caches the result."""

import asyncio
import os
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from vmafx.atomic_write import write_atomic
from vmafx.hardware.devices import Device
from vmafx.jobs.attempt import AttemptSpec
from vmafx.jobs.worker_process import WorkerRunner, WorkerTask
from vmafx.logs import log
from vmafx.process.child import exit_description, run_command
from vmafx.scoring.engines.ffmpeg import ffmpeg_path
from vmafx.scoring.errors import NodeFault, spawn_errors_as_node_fault

MEASURE_TIMEOUT = 60.0  # seconds; a machine that takes longer is used, with unknown speed
SOURCE = "testsrc2=size=1920x1080:rate=24"
FRAMES = 48


class SpeedMeasurement(msgspec.Struct, frozen=True):
    """A measured speed, and the vmafx version and device it holds for."""

    version: str
    device: str
    fps: float


async def frames_per_second(folder: Path, device: Device, environ: Mapping[str, str] = os.environ) -> float:
    """The speed in frames per second, from the cache if vmafx and the device are the same; 0 after a timeout.

    Raises NodeFault if this machine cannot score.
    """
    cache, current = folder / "speed.json", version("vmafx")
    try:
        known = msgspec.json.decode(cache.read_bytes(), type=SpeedMeasurement)
    except (OSError, msgspec.DecodeError):
        known = None
    if known is not None and (known.version, known.device) == (current, device.text):
        return known.fps
    log.info("measuring speed", device=device.text)
    try:
        async with asyncio.timeout(MEASURE_TIMEOUT):
            fps = await _measure(folder, device, environ)
    except TimeoutError:
        log.warn("measuring speed timed out; the speed is unknown", seconds=MEASURE_TIMEOUT)
        return 0.0
    log.info("speed measured", fps=fps)
    write_atomic(cache, msgspec.json.encode(SpeedMeasurement(current, device.text, fps)))
    return fps


async def _measure(folder: Path, device: Device, environ: Mapping[str, str]) -> float:
    # The limits on the clips of jobs do not apply to these clips.
    unlimited = {name: value for name, value in environ.items() if not name.startswith("VMAFX_MEDIA_")}
    with TemporaryDirectory(dir=folder) as temporary:
        clips = [Path(temporary) / "reference.mkv", Path(temporary) / "distorted.mkv"]
        for clip, quality in zip(clips, ("2", "20"), strict=True):
            await _make_clip(ffmpeg_path(environ), clip, quality)
        reference, distorted = (clip.as_uri() for clip in clips)
        work = msgspec.json.encode(AttemptSpec(reference, distorted, id="speed")).decode()
        runner = WorkerRunner(Path(temporary) / "work", unlimited)
        async with runner.start(WorkerTask("speed", work, device.worker_backend)) as job:
            result = await job.wait()
            progress = job.progress()
    if result.fault is not None:
        raise NodeFault(f"{result.message}")
    return round(progress.fps, 2) if progress is not None else 0.0


async def _make_clip(ffmpeg: str, clip: Path, quality: str) -> None:
    """Encode a test picture with mpeg4, which every ffmpeg has."""
    command = [shutil.which(ffmpeg) or ffmpeg, "-loglevel", "error", "-f", "lavfi", "-i", SOURCE]
    command += ["-frames:v", str(FRAMES), "-c:v", "mpeg4", "-q:v", quality, str(clip)]
    with spawn_errors_as_node_fault():
        code, _, errors = await run_command(command, within=MEASURE_TIMEOUT)
    if code:
        raise NodeFault(f"ffmpeg cannot create the test clip: {errors.strip()[-500:] or exit_description(code)}")
