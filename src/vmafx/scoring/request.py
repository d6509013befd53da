"""What is to be scored, and how."""

import os
import re

import msgspec

from vmafx.api.job import THREADS_MOST, Feature, RawFormat
from vmafx.scoring.errors import BadInput

DEFAULT_MODEL = "vmaf_v0.6.1"
POOLINGS = re.compile(r"mean|harmonic_mean|min|max|median|p[1-9][0-9]?")


class Source(msgspec.Struct, frozen=True):
    """A clip, by path or URI; raw video needs its format said."""

    uri: str
    format: RawFormat | None = None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to score. What is off by default would change what a score means: it has to be asked for."""

    model: str = DEFAULT_MODEL
    features: tuple[Feature, ...] = ()
    pooling: str = "mean"
    subsample: int = 1
    threads: int = 0  # as many as there are cores to use
    size: tuple[int, int] | None = None  # score both clips at this size, not at the reference's
    shortest: bool = False  # leave out what one clip has beyond the end of the other
    conform: bool = False  # bring the distorted clip to the reference's frame rate
    stretch: bool = False  # compare clips of different shapes
    damaged: bool = False  # score a distorted clip with damage as it decodes

    def check(self) -> None:
        if not POOLINGS.fullmatch(self.pooling):
            raise BadInput(
                "options",
                f"pooling {self.pooling!r} is none of mean, harmonic_mean, min, max, median, or a percentile p1 to p99",
            )
        if self.subsample < 1:
            raise BadInput("options", f"subsample must be 1 or more, not {self.subsample}")
        if not 0 <= self.threads <= THREADS_MOST:
            raise BadInput("options", f"threads must be 1 to {THREADS_MOST}, not {self.threads}")

    def cores(self) -> int:
        return self.threads or min(len(os.sched_getaffinity(0)), THREADS_MOST)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a clip may ask of this machine."""

    pixels: int = 8192 * 4320  # in a frame
    frames: int = 2_000_000
    probe_seconds: float = 300.0
    memory: int = 4 << 30  # of the process that looks at a clip
