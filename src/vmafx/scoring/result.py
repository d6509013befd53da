"""What scoring gives: one typed result, and the values of every frame."""

from typing import Literal

import msgspec


class FeatureStatistics(msgspec.Struct, frozen=True):
    """One measure over all frames. `percentiles` has p1 to p99 in useful steps: p5 is what 95 in 100 frames exceed."""

    mean: float
    harmonicMean: float
    min: float
    max: float
    percentiles: dict[str, float]


class ClipFacts(msgspec.Struct, frozen=True):
    """A clip as it was read."""

    uri: str  # without credentials
    digest: str  # sha256 of its bytes
    container: str
    codec: str
    width: int
    height: int
    pixelFormat: str
    frames: int
    frameRate: float | None = None


class EngineFacts(msgspec.Struct, frozen=True):
    ffmpeg: str
    libvmaf: str


class ScoreResult(msgspec.Struct, frozen=True, kw_only=True):
    """One distorted clip's score, and how it came about."""

    score: float
    pooling: str
    model: str
    frames: int  # that were scored
    fps: float  # at which they were
    features: dict[str, FeatureStatistics]
    reference: ClipFacts
    distorted: ClipFacts
    width: int  # at which they were compared
    height: int
    pixelFormat: str
    subsample: int
    engine: EngineFacts
    notes: tuple[str, ...] = ()  # what a reader of the score should know
    key: str = ""  # of the same clips, model and options in a cache
    cached: bool = False
    schema: Literal[1] = 1  # raised when a field changes its meaning: older cached results are then not used


class Report(msgspec.Struct, frozen=True):
    """A result with its frames: `values` has a column for each measure, beside the frames' `numbers`."""

    result: ScoreResult
    numbers: list[int]
    values: dict[str, list[float]]


class Progress(msgspec.Struct, frozen=True):
    """How far it is. `total` and `eta` (seconds) are None where they cannot be known."""

    stage: Literal["fetching", "reading", "waiting", "scoring"]
    done: int = 0  # bytes while fetching, frames while scoring
    total: int | None = None
    fps: float = 0.0
    eta: float | None = None
