"""Clips for tests: written by the ffmpeg that also scores, read back by other libraries."""

import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import av
import numpy as np

from tests.oracle.clips import Clip, panning
from tests.oracle.planes import Luma
from vmafx.process.child import ENVIRONMENT

FFMPEG = Path(import_module("imageio_ffmpeg").get_ffmpeg_exe())
SIZE = (256, 144)  # a width at which libvmaf 2.3 reads nothing beyond its buffers
FRAMES = 8


def ffmpeg(*arguments: str | Path) -> None:
    command = [str(FFMPEG), "-hide_banner", "-loglevel", "error", "-nostdin", "-y", *map(str, arguments)]
    subprocess.run(command, check=True, timeout=120, env=ENVIRONMENT)


def scene(frames: int = FRAMES, size: tuple[int, int] = SIZE, depth: int = 8, seed: int = 7) -> Clip:
    """A pan over a textured picture."""
    width, height = size
    levels = panning(np.random.default_rng(seed), frames, height, width) * (1 << (depth - 8))
    kept = np.clip(np.rint(levels), 16 << (depth - 8), 235 << (depth - 8))
    return Clip(tuple(kept.astype("<u2" if depth > 8 else "u1")), depth)


def raw_input(clip: Clip, path: Path, rate: str = "25") -> list[str | Path]:
    width, height = clip.size
    clip.write(path)
    return ["-f", "rawvideo", "-pix_fmt", clip.pixel_format, "-s", f"{width}x{height}", "-r", rate, "-i", path]


def lossless(clip: Clip, path: Path, rate: str = "25") -> Path:
    """Encode the clip losslessly."""
    ffmpeg(*raw_input(clip, path.with_suffix(".tmp.yuv"), rate), "-c:v", "ffv1", path)
    return path


def long_clip(path: Path, frames: int, size: tuple[int, int] = (640, 360)) -> Path:
    """A clip that is slow to score and quick to make: ten frames, repeated."""
    ten = lossless(scene(frames=10, size=size), path.with_suffix(".ten.mkv"))
    ffmpeg("-stream_loop", str(frames // 10 - 1), "-i", ten, "-c", "copy", path)
    return path


def luma(path: Path) -> Iterator[Luma]:
    """The luma planes of a clip, rotated for display; decoded by PyAV, not by FFMPEG."""
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            rows, columns = frame.height, frame.width
            plane = frame.planes[0]
            depth = np.dtype("<u2" if frame.format.components[0].bits > 8 else "u1")
            content = np.frombuffer(memoryview(plane), depth).reshape(-1, plane.line_size // depth.itemsize)
            yield np.rot90(content[:rows, :columns], frame.rotation // 90)
