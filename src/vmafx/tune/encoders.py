"""The encoders, their settings, and which of them this machine has."""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec
import numpy as np

from vmafx.scoring.clip import CHROMATICITY_UNIT, LUMINANCE_UNIT, HdrMetadata, MasteringDisplay
from vmafx.scoring.errors import BadInput
from vmafx.tune.encoder_options import (
    AOM_OPTIONS,
    SVT_OPTIONS,
    VP9_OPTIONS,
    X264_OPTIONS,
    X265_OPTIONS,
    Extras,
    Options,
    parse_extras,
    with_extras,
)
from vmafx.tune.search import QualityRange, loss

Library = Literal["ffmpeg", "pyav"]
TYPICAL_SCORES = (78.0, 86.0, 92.0, 96.0)  # of the qualities that each encoder lists, the worst first


def _plain_gop(frames: int) -> dict[str, str]:
    return {"g": str(frames), "keyint_min": str(frames)}


class Encoder(msgspec.Struct, frozen=True, kw_only=True):
    """An encoder of FFmpeg, which aims at a constant quality. A lower `quality` is a better one, as with CRF."""

    name: str
    codec: str
    container: str
    best: float
    worst: float
    step: float  # between two qualities that differ
    qualities: tuple[float, ...]  # that a comparison tries
    presets: tuple[str, ...]  # from slow to fast, or from fast to slow
    preset: str
    options: Callable[[str, str], Mapping[str, str]]  # from a preset and a quality; the options of libavcodec
    # With headers that depend on no quality, so that encodes can be joined: stitchable of x264, info of x265.
    fixed_gop: Callable[[int], Mapping[str, str]] = _plain_gop
    bit_depths: tuple[int, ...] = (8, 10)
    hardware: str = ""  # without which it fails
    passed: Options = {}  # what people may pass on
    hdr: Callable[[HdrMetadata], tuple[str, str]] | None = None  # an option of parameters; None if it cannot write them

    @property
    def range(self) -> QualityRange:
        """Its settings, for a search."""
        slope = (loss(TYPICAL_SCORES[0]) - loss(TYPICAL_SCORES[-1])) / (self.qualities[-1] - self.qualities[0])
        return QualityRange(self.best, self.worst, self.step, slope)

    def typical_quality(self, score: float) -> float:
        """The setting that most clips need for this score: where a search starts."""
        return float(np.interp(score, TYPICAL_SCORES, self.qualities[::-1]))

    def check_quality(self, quality: float) -> None:
        if not self.best <= quality <= self.worst or abs(quality / self.step - round(quality / self.step)) > 1e-6:
            steps = "" if self.step == 1 else f" in steps of {self.step:g}"
            kind = "whole numbers" if self.step == 1 else "numbers"
            raise BadInput(
                "options",
                f"{quality:g} is no quality of {self.name}, which has {kind} from {self.best:g} (best) to "
                f"{self.worst:g}{steps}",
            )


class Variant(msgspec.Struct, frozen=True):
    """An encoder with a preset, and with options of its own: what is compared."""

    encoder: Encoder
    preset: str
    extras: Extras = ()

    @property
    def name(self) -> str:
        """As people write it: libx264, libx264:slow, or libx264:slow:tune=film."""
        preset = [] if self.preset == self.encoder.preset else [self.preset]
        return ":".join([self.encoder.name, *preset, *(f"{name}={value}" for name, value in self.extras)])

    def options(self, quality: float, gop: int = 0, hdr: HdrMetadata | None = None) -> dict[str, str]:
        """The encoder's options, by their names in libavcodec; with `gop`, for a key frame every so many frames."""
        options = with_extras(self.encoder.options(self.preset, f"{quality:g}"), self.encoder.passed, self.extras)
        more = list(self.encoder.fixed_gop(gop).items()) if gop else []
        if hdr is not None and self.encoder.hdr is not None:
            more.append(self.encoder.hdr(hdr))
        for name, value in more:
            options[name] = f"{options[name]}:{value}" if name in options else value
        return options

    @classmethod
    def parse(cls, text: str) -> "Variant":
        """ENCODER, ENCODER:PRESET, and either with options as :NAME=VALUE. Raises BadInput."""
        name, *parts = text.strip().split(":")
        encoder = ENCODERS.get(name)
        if encoder is None:
            known = ", ".join(ENCODERS)
            raise BadInput("options", f"{name[:50]!r} is no encoder that vmaf-tune knows; choose from {known}")
        options = [(one[: one.index("=")], one[one.index("=") + 1 :]) for one in parts if "=" in one]
        presets = [one for one in parts if "=" not in one]
        preset = ":".join(presets) if presets else encoder.preset
        if preset not in encoder.presets:
            known = ", ".join(encoder.presets)
            raise BadInput("options", f"{name} has no preset {preset[:50]!r}; choose from {known}")
        return cls(encoder, preset, parse_extras(name, encoder.passed, options))


X26X_PRESETS = (
    "placebo", "veryslow", "slower", "slow", "medium", "fast", "faster", "veryfast", "superfast", "ultrafast",
)  # fmt: skip


def _numbered(last: int) -> tuple[str, ...]:
    return tuple(map(str, range(last + 1)))


def _x26x_hdr(hdr: HdrMetadata, display: str, light: str) -> str:
    """In the units of H.265."""
    parts = []
    if (one := hdr.display) is not None:
        colours = "".join(f"{name}({x},{y})" for name, (x, y) in _colours(one))
        parts.append(f"{display}={colours}L({one.brightest},{one.darkest})")
    if hdr.light is not None:
        parts.append(f"{light}={hdr.light.highest},{hdr.light.average}")
    return ":".join(parts)


def _svt_hdr(hdr: HdrMetadata) -> str:
    """In chromaticities and cd/m²."""
    parts = []
    if (one := hdr.display) is not None:
        decimal = {name: [float(value * CHROMATICITY_UNIT) for value in place] for name, place in _colours(one)}
        colours = "".join(f"{name}({x:.5f},{y:.5f})" for name, (x, y) in decimal.items())
        brightest, darkest = (float(level * LUMINANCE_UNIT) for level in (one.brightest, one.darkest))
        parts.append(f"mastering-display={colours}L({brightest:.4f},{darkest:.4f})")
    if hdr.light is not None:
        parts.append(f"content-light={hdr.light.highest},{hdr.light.average}")
    return ":".join(parts)


def _colours(display: MasteringDisplay) -> list[tuple[str, tuple[int, int]]]:
    """In the order in which all encoders want them."""
    return [("G", display.green), ("B", display.blue), ("R", display.red), ("WP", display.white)]


def _nvenc(name: str, codec: str) -> Encoder:
    return Encoder(
        name=name, codec=codec, container="mp4", best=1, worst=51, step=1, qualities=(20, 26, 32, 38),
        presets=("p7", "p6", "p5", "p4", "p3", "p2", "p1"), preset="p5",
        options=lambda preset, quality: {"preset": preset, "rc": "vbr", "cq": quality, "b": "0"},
        fixed_gop=lambda frames: {"g": str(frames), "no-scenecut": "1", "forced-idr": "1"},
        hardware="a GPU of NVIDIA",
        bit_depths=(8,) if codec == "H.264" else (8, 10),
    )  # fmt: skip


def _qsv(name: str, codec: str) -> Encoder:
    return Encoder(
        name=name, codec=codec, container="mp4", best=1, worst=51, step=1, qualities=(20, 26, 32, 38),
        presets=X26X_PRESETS[1:-2], preset="medium",
        options=lambda preset, quality: {"preset": preset, "global_quality": quality},
        hardware="a GPU of Intel",
        bit_depths=(8,) if codec == "H.264" else (8, 10),
    )  # fmt: skip


# fmt: off
_ALL = (
    Encoder(
        name="libx264", codec="H.264", container="mp4", best=0, worst=51, step=0.1, qualities=(18, 23, 28, 33),
        presets=X26X_PRESETS, preset="medium",
        options=lambda preset, quality: {"preset": preset, "crf": quality},
        fixed_gop=lambda frames: {**_plain_gop(frames), "sc_threshold": "0", "x264-params": "stitchable=1"},
        passed=X264_OPTIONS,
        hdr=lambda hdr: ("x264-params", _x26x_hdr(hdr, "mastering-display", "cll")),
    ),
    Encoder(
        name="libx265", codec="HEVC", container="mp4", best=0, worst=51, step=0.1, qualities=(20, 25, 30, 35),
        presets=X26X_PRESETS, preset="medium",
        options=lambda preset, quality: {"preset": preset, "crf": quality, "x265-params": "log-level=error"},
        fixed_gop=lambda frames: {"x265-params": f"keyint={frames}:min-keyint={frames}:scenecut=0:open-gop=0:info=0"},
        passed=X265_OPTIONS,
        hdr=lambda hdr: ("x265-params", _x26x_hdr(hdr, "master-display", "max-cll")),
    ),
    Encoder(
        name="libvpx-vp9", codec="VP9", container="webm", best=0, worst=63, step=1, qualities=(24, 32, 40, 48),
        presets=_numbered(8), preset="3",
        options=lambda preset, quality: {
            "deadline": "good", "cpu-used": preset, "row-mt": "1", "crf": quality, "b": "0",
        },
        passed=VP9_OPTIONS,
    ),
    Encoder(
        name="libaom-av1", codec="AV1", container="mp4", best=0, worst=63, step=1, qualities=(24, 32, 40, 48),
        presets=_numbered(8), preset="6",
        options=lambda preset, quality: {"cpu-used": preset, "row-mt": "1", "crf": quality, "b": "0"},
        passed=AOM_OPTIONS,
    ),
    Encoder(
        name="libsvtav1", codec="AV1", container="mp4", best=1, worst=63, step=1, qualities=(24, 32, 40, 48),
        presets=_numbered(13), preset="8",
        options=lambda preset, quality: {"preset": preset, "crf": quality},
        fixed_gop=lambda frames: {"g": str(frames), "svtav1-params": "scd=0"},
        passed=SVT_OPTIONS,
        hdr=lambda hdr: ("svtav1-params", _svt_hdr(hdr)),
    ),
    _nvenc("h264_nvenc", "H.264"), _nvenc("hevc_nvenc", "HEVC"), _nvenc("av1_nvenc", "AV1"),
    _qsv("h264_qsv", "H.264"), _qsv("hevc_qsv", "HEVC"), _qsv("av1_qsv", "AV1"),
)
# fmt: on
ENCODERS = {encoder.name: encoder for encoder in _ALL}
DEFAULT_ENCODERS = ("libx264", "libx265", "libvpx-vp9", "libaom-av1", "libsvtav1")


def without_hdr(names: Iterable[str]) -> list[str]:
    """Those of the encoders that cannot write the metadata of HDR10."""
    return [name for name in names if ENCODERS[name].hdr is None]


def library_of(encoder: Encoder, in_ffmpeg: Iterable[str], in_pyav: Iterable[str]) -> Library:
    """What encodes: the ffmpeg that also scores if it has the encoder, else PyAV. Raises BadInput if neither has it."""
    if encoder.name in in_ffmpeg:
        return "ffmpeg"
    if encoder.name in in_pyav:
        return "pyav"
    remedy = "leave it out, or set VMAFX_FFMPEG_BIN to an ffmpeg that has it"
    raise BadInput("options", f"neither ffmpeg nor PyAV on this machine has the encoder {encoder.name}", remedy)
