"""Properties of a clip, as the decoder reports them."""

from fractions import Fraction
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vmafx.api.scoring import RawFormat

ASPECT_RATIO_TOLERANCE = 0.02  # a larger difference means that a clip was cropped or stretched
MAX_GAPS = 200

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_,.-]{1,80}\Z")]
Rate = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,9}(/[1-9][0-9]{0,9})?\Z")]  # a fraction
Count = Annotated[int, Meta(ge=0, le=1 << 40)]
Positive = Annotated[int, Meta(ge=1, le=1 << 31)]
Chroma = Literal["420", "422", "444", "gray", "rgb"]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]


Chromaticity = Annotated[int, Meta(ge=0, le=50_000)]
Luminance = Annotated[int, Meta(ge=0, le=100_000_000)]
LightLevelNits = Annotated[int, Meta(ge=0, le=65_535)]
CHROMATICITY_UNIT, LUMINANCE_UNIT = Fraction(1, 50_000), Fraction(1, 10_000)  # of ITU-T H.265, the latter in cd/m²


class MasteringDisplay(msgspec.Struct, frozen=True):
    """The display that HDR was graded on (SMPTE ST 2086): x and y of its colours, and its luminance."""

    red: tuple[Chromaticity, Chromaticity]
    green: tuple[Chromaticity, Chromaticity]
    blue: tuple[Chromaticity, Chromaticity]
    white: tuple[Chromaticity, Chromaticity]
    darkest: Luminance
    brightest: Luminance


class LightLevel(msgspec.Struct, frozen=True):
    """The brightest pixel of HDR and its brightest frame on average, in cd/m² (CTA-861.3)."""

    highest: LightLevelNits  # MaxCLL
    average: LightLevelNits  # MaxFALL


class HdrMetadata(msgspec.Struct, frozen=True):
    """The static metadata of HDR10."""

    display: MasteringDisplay | None = None
    light: LightLevel | None = None


class Clip(msgspec.Struct, frozen=True, kw_only=True):
    """One video stream of a clip. Width and height are those of the displayed frame, with rotation applied."""

    container: Name
    codec: Name
    width: Positive
    height: Positive
    pixel_format: Name
    bit_depth: Annotated[int, Meta(ge=1, le=64)]
    chroma: Chroma
    full_range: bool | None = None
    matrix: int = 2  # matrix coefficients (ITU-T H.273); 2 is unspecified
    transfer: int = 2  # transfer characteristics (ITU-T H.273)
    primaries: int = 2  # colour primaries (ITU-T H.273)
    hdr: HdrMetadata | None = None
    pixel_aspect: Annotated[float, Meta(ge=1e-6, le=1e6)] = 1.0
    interlaced: bool = False
    packets: Count = 0
    corrupt_packets: Count = 0  # flagged by the demuxer
    frame_rate: Rate | None = None  # None if the container states none
    constant_rate: bool = True  # all frames have the same duration
    duration: Seconds = 0.0  # from the first frame to the end of the last
    longest_frame: Seconds = 0.0
    gaps: (
        Annotated[tuple[tuple[int, float], ...], Meta(max_length=MAX_GAPS)] | None
    ) = ()  # (frame, frames it is late by); None if there are too many
    video_streams: Count = 1

    @property
    def is_raw(self) -> bool:
        return self.container == "rawvideo"

    @property
    def aspect_ratio(self) -> float:
        """Display aspect ratio: width to height."""
        return self.width * self.pixel_aspect / self.height


def raw_frame_bytes(raw: RawFormat) -> int:
    """The size of one frame of raw video."""
    name, _, depth = raw.pixelFormat.removesuffix("le").partition("gray" if raw.pixelFormat.startswith("gray") else "p")
    across, down = {"yuv420": (2, 2), "yuv422": (2, 1), "yuv444": (1, 1), "": (0, 0)}[name]
    samples = raw.width * raw.height
    if across:
        samples += 2 * -(-raw.width // across) * -(-raw.height // down)
    return samples * (2 if depth else 1)
