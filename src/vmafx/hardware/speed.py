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
from vmafx.jobs.work import Work
from vmafx.jobs.worker_process import Runner, Task
from vmafx.logs import log
from vmafx.process.child import output
from vmafx.scoring import engine
from vmafx.scoring.errors import NodeFault, started_here

WITHIN = 60.0  # seconds for all of it; a machine that takes longer is slow, and nothing else is wrong with it
SOURCE = "testsrc2=size=1920x1080:rate=24"
FRAMES = 48


class Measured(msgspec.Struct, frozen=True):
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
        known = msgspec.json.decode(cache.read_bytes(), type=Measured)
    except (OSError, msgspec.DecodeError):
        known = None
    if known is not None and (known.version, known.device) == (now, device.text):
        return known.fps
    log.info("measuring how fast this machine scores", device=device.text)
    try:
        async with asyncio.timeout(WITHIN):
            fps = await _measure(folder, device, environ)
    except TimeoutError:
        log.warn("this took too long; the speed of this machine is not known", seconds=WITHIN)
        return 0.0
    log.info("measured", fps=fps)
    put_whole(cache, msgspec.json.encode(Measured(now, device.text, fps)))
    return fps


async def _measure(folder: Path, device: Device, environ: Mapping[str, str]) -> float:
    # Limits on where jobs' clips come from do not hold for ours.
    unlimited = {name: value for name, value in environ.items() if not name.startswith("VMAFX_MEDIA_")}
    with TemporaryDirectory(dir=folder) as made:
        clips = [Path(made) / "reference.mkv", Path(made) / "distorted.mkv"]
        for clip, quality in zip(clips, ("2", "20"), strict=True):
            await _make(engine.find(environ), clip, quality)
        reference, distorted = (clip.as_uri() for clip in clips)
        work = msgspec.json.encode(Work(reference, distorted, id="speed")).decode()
        runner = Runner(Path(made) / "work", unlimited)
        async with runner.begun(Task("speed", work, device.backends[0])) as job:
            answer = await job.ended()
            progress = job.progress()
    if answer.fault is not None:
        raise NodeFault(f"{answer.message}")
    return round(progress.fps, 2) if progress is not None else 0.0


async def _make(ffmpeg: str, clip: Path, quality: str) -> None:
    """By an encoder that every ffmpeg has."""
    command = [shutil.which(ffmpeg) or ffmpeg, "-loglevel", "error", "-f", "lavfi", "-i", SOURCE]
    command += ["-frames:v", str(FRAMES), "-c:v", "mpeg4", "-q:v", quality, str(clip)]
    with started_here():
        code, _, said = await output(command, within=WITHIN)
    if code:
        raise NodeFault(f"ffmpeg cannot make a clip: {said[-500:]}")
