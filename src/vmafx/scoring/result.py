"""What scoring returns: the result of a comparison, the values of every frame, and progress."""

from array import array
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

# Arrays, because a list takes four times the memory: two million frames of 23 features have 350 MiB as arrays.
Column: TypeAlias = "array[float]"  # typecode d; a value per frame
FrameNumbers: TypeAlias = "array[int]"  # typecode q

# What the models of libvmaf score: columns of results, in the order of trained models and samples.
MODEL_FEATURES = ("adm2", "motion2", "vif_scale0", "vif_scale1", "vif_scale2", "vif_scale3")


class FeatureStatistics(msgspec.Struct, frozen=True):
    """A feature pooled over all frames. `percentiles` has p1, p5, p10, p25, p50, p75, p90, p95 and p99.

    95 % of the frames exceed p5.
    """

    mean: float
    harmonicMean: float
    min: float
    max: float
    percentiles: dict[str, float]


class ClipFacts(msgspec.Struct, frozen=True):
    """Properties of a scored clip."""

    uri: str  # without credentials
    digest: str  # SHA-256 of the file
    container: str
    codec: str
    width: int
    height: int
    pixelFormat: str
    frames: int
    frameRate: float | None = None
    bytes: int = 0  # size of the file; 0 in results of versions that did not record it
    bitrate: float | None = None  # bits per second of the whole file, with audio; None if its duration is unknown

    @property
    def file_size(self) -> str:
        """As shown to people: 1.23 MB; empty if unknown."""
        value, unit = float(self.bytes), "B"
        for larger in ("kB", "MB", "GB", "TB"):
            if value >= 999.5:
                value, unit = value / 1000, larger
        return f"{value:.3g} {unit}" if self.bytes else ""

    @property
    def kbits(self) -> str:
        """The bitrate as shown to people: 1,234 kbit/s; empty if unknown."""
        if self.bitrate is None:
            return ""
        return f"{self.bitrate / 1000:,.0f} kbit/s" if self.bitrate >= 9950 else f"{self.bitrate / 1000:.2g} kbit/s"


class EngineFacts(msgspec.Struct, frozen=True):
    """What scored the clips, with its versions: libvmaf in an ffmpeg, or torch on a device."""

    ffmpeg: str = ""
    libvmaf: str = ""
    backend: str = "cpu"
    decoder: str = ""
    torch: str = ""
    triton: str = ""
    device: str = ""

    @property
    def versions(self) -> str:
        """The engine as shown to people."""
        if not self.torch:
            return f"libvmaf {self.libvmaf}, ffmpeg {self.ffmpeg}"
        return f"torch {self.torch}{f', Triton {self.triton}' if self.triton else ''} on {self.device}"


class ScoreResult(msgspec.Struct, frozen=True, kw_only=True):
    """The score of one distorted clip, and how it was computed."""

    score: float
    pooling: str
    model: str
    frames: int  # scored
    fps: float  # scored frames per second
    features: dict[str, FeatureStatistics]
    reference: ClipFacts
    distorted: ClipFacts
    width: int  # of the compared frames
    height: int
    pixelFormat: str
    subsample: int
    engine: EngineFacts
    base: str = ""  # of a learned model; the column `vmaf_base` has its scores
    notes: tuple[str, ...] = ()  # conversions and other facts that affect the score
    key: str = ""  # cache key
    cached: bool = False
    schema: Literal[1] = 1  # increased when a field changes its meaning, which invalidates cached results


class FramePair(msgspec.Struct, frozen=True):
    """The same frame of both clips, as JPEG."""

    frame: int
    score: float
    reference: bytes
    distorted: bytes


Pictures: TypeAlias = Sequence[FramePair] | None  # of the worst frames; None: they are being taken


class Report(msgspec.Struct, frozen=True):
    """A result with its frames: `values` has a column per feature, one value for each of `numbers`."""

    result: ScoreResult
    numbers: FrameNumbers
    values: dict[str, Column]


class Progress(msgspec.Struct, frozen=True):
    """Progress of a score. `total` and `eta` (seconds) are None if unknown."""

    stage: Literal["fetching", "reading", "waiting", "scoring"]
    done: int = 0  # bytes while fetching, frames while scoring
    total: int | None = None
    fps: float = 0.0
    eta: float | None = None

    @property
    def activity(self) -> str:
        """The stage as shown to people; the values of `stage` are part of the API."""
        return {"fetching": "downloading", "reading": "probing"}.get(self.stage, self.stage)
