"""What vmaf-tune finds, as JSON. Bitrates are of the encoded file, without audio, in bits per second."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from vmafx.tune.scenes import Shot


class EncodeResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One encode; `error` instead of a score if it failed."""

    quality: float  # the encoder's setting, such as CRF
    bytes: int = 0
    bitrate: float = 0.0
    frames: int = 0
    score: float | None = None
    lowest: float | None = None  # of a frame
    p5: float | None = None  # 95 % of the frames exceed it
    seconds: float = 0.0  # to encode it, beside `parallel` others
    fps: float = 0.0  # frames encoded per second
    file: str = ""
    resumed: bool = False  # encoded by an earlier run
    error: str = ""


class TargetResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The search for a target. `quality` is the setting that was found, whose encode is in `encodes`.

    `bitrateDelta` is the difference to the bitrate that the first variant needs, in percent.
    """

    score: float  # to reach
    reached: bool
    quality: float
    sampleEncodes: int = 0  # of samples of the source
    sampleFrames: int = 0  # frames of these samples
    wholeEncodes: int = 0
    bitrateDelta: float | None = None
    note: str = ""


class VariantResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An encoder with a preset. The deltas are against the first variant, if the curves overlap."""

    name: str
    encoder: str
    preset: str
    codec: str
    encodes: tuple[EncodeResult, ...]
    options: dict[str, str] = {}  # that were passed on to the encoder
    bdRate: float | None = None  # percent of bitrate at the same score; negative is better
    bdScore: float | None = None  # points at the same bitrate; positive is better
    target: TargetResult | None = None

    @property
    def found(self) -> EncodeResult | None:
        """The encode that a search has found."""
        if self.target is None:
            return None
        return next((one for one in self.encodes if one.quality == self.target.quality and not one.error), None)

    @property
    def summary(self) -> str:
        """What a search has found, for people; empty without one."""
        if self.target is None or self.found is None:
            return ""
        found = f"{self.target.quality:g} gives {self.found.score:.2f} at {self.found.bitrate / 1000:,.0f} kbit/s"
        if self.target.bitrateDelta is not None:
            found += f", {self.target.bitrateDelta:+.1f} % bitrate"
        return f"{found}; {self.target.note}" if self.target.note else found

    @property
    def scored(self) -> list[EncodeResult]:
        """The encodes that have a score, from the lowest bitrate to the highest."""
        return sorted((one for one in self.encodes if one.score is not None), key=lambda one: one.bitrate)


class SourceFacts(msgspec.Struct, frozen=True):
    """The clip that was encoded."""

    uri: str
    digest: str
    width: int
    height: int
    frames: int
    frameRate: float


class CompareResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of `vmaf-tune compare`."""

    source: SourceFacts
    model: str
    pooling: str
    parallel: int  # encodes at the same time
    variants: tuple[VariantResult, ...]
    notes: tuple[str, ...] = ()
    schema: Literal[1] = 1  # increased when a field changes its meaning

    @property
    def errors(self) -> list[str]:
        return [
            f"{variant.name} {one.quality:g}: {one.error}"
            for variant in self.variants
            for one in variant.encodes
            if one.error
        ]


def options_text(options: Mapping[str, str]) -> str:
    """On one line: tune=film:aq-mode=3."""
    return ":".join(f"{name}={value}" for name, value in options.items())


class ShotEncode(msgspec.Struct, frozen=True, kw_only=True):
    """A shot in one rung; its bitrate is of the video alone, without the container."""

    target: float  # the score that the shot should have
    quality: float
    bitrate: float
    score: float
    lowest: float  # of a frame
    reached: bool  # the target
    tried: int  # settings


class LadderPoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """An encode in one size. With `shots`, one for each shot of the source, it was joined of their encodes.

    Its `encode` is then that of the joined file, with the quality that the whole source had for `target`.
    """

    width: int
    height: int
    encode: EncodeResult
    target: float | None = None
    shots: tuple[ShotEncode, ...] = ()

    @property
    def quality(self) -> str:
        """The setting, or those of all shots, for people."""
        qualities = [one.quality for one in self.shots] or [self.encode.quality]
        low, high = min(qualities), max(qualities)
        return f"{low:g}" if low == high else f"{low:g} to {high:g}"


class LadderResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of `vmaf-tune ladder`: the rungs from the best, and all encodes that were tried."""

    source: SourceFacts
    model: str
    pooling: str
    encoder: str
    preset: str
    options: dict[str, str] = {}  # that were passed on to the encoder
    codec: str
    keyFrames: int  # frames from one to the next
    rungs: tuple[LadderPoint, ...]
    encodes: tuple[LadderPoint, ...]
    shots: tuple[Shot, ...] = ()  # of the source; each begins with a key frame
    notes: tuple[str, ...] = ()
    schema: Literal[1] = 1  # increased when a field changes its meaning

    @property
    def key_frames(self) -> str:
        """Where they are, for people."""
        cuts = f", and at the start of each of {len(self.shots)} shots" if len(self.shots) > 1 else ""
        return f"a key frame every {self.keyFrames} frames{cuts}"

    @property
    def variant(self) -> str:
        """The encoder with its preset and options, for people."""
        return " ".join([self.encoder, self.preset, *filter(None, [options_text(self.options)])])

    @property
    def errors(self) -> list[str]:
        return [
            f"{self.encoder} {one.encode.quality:g} {one.height}p: {one.encode.error}"
            for one in self.encodes
            if one.encode.error
        ]
