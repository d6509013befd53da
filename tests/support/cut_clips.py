"""Clips of several shots, whose cuts are known."""

from collections.abc import Sequence
from pathlib import Path

from tests.support.video import ffmpeg

RATE = 25
SIZE = f"s=256x144:r={RATE}"
BARS, FRACTAL, CLOCK, GREY = f"testsrc2={SIZE}", f"mandelbrot={SIZE}", f"testsrc={SIZE}", f"color=c=gray:{SIZE}"


def cut_clip(path: Path, shots: Sequence[tuple[str, int]], filters: str = "null") -> Path:
    """A clip of shots, each a source of lavfi and a number of frames."""
    inputs = [argument for source, _ in shots for argument in ("-f", "lavfi", "-i", source)]
    parts = [
        f"[{index}]trim=end_frame={frames},setpts=PTS-STARTPTS,format=yuv420p[p{index}]"
        for index, (_, frames) in enumerate(shots)
    ]
    joined = "".join(f"[p{index}]" for index in range(len(shots)))
    graph = ";".join([*parts, f"{joined}concat=n={len(shots)},{filters}[out]"])
    ffmpeg(*inputs, "-filter_complex", graph, "-map", "[out]", "-c:v", "ffv1", path)
    return path
