"""How fast this machine scores, measured by scoring: the real worker, on a clip made for it."""

import asyncio
import os
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from vmafx.atomic_write import put_whole
from vmafx.hardware.devices import Device
from vmafx.jobs.attempt import AttemptSpec
from vmafx.jobs.worker_process import WorkerRunner, WorkerTask
from vmafx.logs import log
from vmafx.process.child import run_command
from vmafx.scoring import engine
from vmafx.scoring.errors import NodeFault, spawn_errors_as_node_fault

MEASURE_TIMEOUT = 60.0  # seconds for all of it; a machine that takes longer is slow, and nothing else is wrong with it
SOURCE = "testsrc2=size=1920x1080:rate=24"
FRAMES = 48


class SpeedMeasurement(msgspec.Struct, frozen=True):
    """What was found before, and with what."""

    version: str
    device: str
    fps: float


async def frames_per_second(folder: Path, device: Device, environ: Mapping[str, str] = os.environ) -> float:
    """As measured now, or before with the same vmafx and device; 0 if it took too long.

    NodeFault if this machine cannot score at all.
    """
    cache, now = folder / "speed.json", version("vmafx")
    try:
        known = msgspec.json.decode(cache.read_bytes(), type=SpeedMeasurement)
    except (OSError, msgspec.DecodeError):
        known = None
    if known is not None and (known.version, known.device) == (now, device.text):
        return known.fps
    log.info("measuring how fast this machine scores", device=device.text)
    try:
        async with asyncio.timeout(MEASURE_TIMEOUT):
            fps = await _measure(folder, device, environ)
    except TimeoutError:
        log.warn("this took too long; the speed of this machine is not known", seconds=MEASURE_TIMEOUT)
        return 0.0
    log.info("measured", fps=fps)
    put_whole(cache, msgspec.json.encode(SpeedMeasurement(now, device.text, fps)))
    return fps


async def _measure(folder: Path, device: Device, environ: Mapping[str, str]) -> float:
    # Limits on where jobs' clips come from do not hold for ours.
    unlimited = {name: value for name, value in environ.items() if not name.startswith("VMAFX_MEDIA_")}
    with TemporaryDirectory(dir=folder) as made:
        clips = [Path(made) / "reference.mkv", Path(made) / "distorted.mkv"]
        for clip, quality in zip(clips, ("2", "20"), strict=True):
            await _make(engine.find_ffmpeg(environ), clip, quality)
        reference, distorted = (clip.as_uri() for clip in clips)
        work = msgspec.json.encode(AttemptSpec(reference, distorted, id="speed")).decode()
        runner = WorkerRunner(Path(made) / "work", unlimited)
        async with runner.start(WorkerTask("speed", work, device.backends[0])) as job:
            answer = await job.wait()
            progress = job.progress()
    if answer.fault is not None:
        raise NodeFault(f"{answer.message}")
    return round(progress.fps, 2) if progress is not None else 0.0


async def _make(ffmpeg: str, clip: Path, quality: str) -> None:
    """By an encoder that every ffmpeg has."""
    command = [shutil.which(ffmpeg) or ffmpeg, "-loglevel", "error", "-f", "lavfi", "-i", SOURCE]
    command += ["-frames:v", str(FRAMES), "-c:v", "mpeg4", "-q:v", quality, str(clip)]
    with spawn_errors_as_node_fault():
        code, _, said = await run_command(command, within=MEASURE_TIMEOUT)
    if code:
        raise NodeFault(f"ffmpeg cannot make a clip: {said[-500:]}")
