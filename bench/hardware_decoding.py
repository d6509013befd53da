"""Decodes a file on NVIDIA's decoder, to compare with decoding on the CPU: `hardware_decoding.py FILE [confined]`.

Prints frames per second after the first, or why the decoder cannot be used. With `confined`, the process first locks
itself in as the decoders of vmafx do.
"""

import sys
import time
from pathlib import Path

import av
import av.subtitles.codeccontext
import av.subtitles.stream
from av.codec.hwaccel import HWAccel

from vmafx.process.sandbox import confine, limit_resources

MEMORY = 64 << 30  # address space: CUDA reserves much of it


def main(path: str, confined: bool) -> None:
    with Path(path).open("rb") as clip:
        if confined:
            limit_resources(MEMORY)
            print(confine().describe())
        try:
            hardware = HWAccel("cuda", allow_software_fallback=False)
            with av.open(clip, "r", hwaccel=hardware) as container:
                decoded = container.decode(video=0)
                next(decoded)  # when the decoder has started
                started = time.perf_counter()
                frames = len([None for _ in decoded])
        except (av.FFmpegError, RuntimeError, OSError) as error:
            print(f"cannot decode on the GPU: {type(error).__name__}: {error}")
        else:
            print(f"{frames} frames, {frames / (time.perf_counter() - started):.0f} fps")


if __name__ == "__main__":
    main(sys.argv[1], "confined" in sys.argv[2:])
