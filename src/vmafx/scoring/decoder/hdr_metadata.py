"""The HDR10 metadata of a frame: of FFmpeg's structures, what is complete and within the limits of H.265."""

import struct
from fractions import Fraction

import msgspec
from av.sidedata.sidedata import Type as SideDataType
from av.video.frame import VideoFrame

from vmafx.scoring.clip import CHROMATICITY_UNIT, LUMINANCE_UNIT, HdrMetadata, LightLevel, MasteringDisplay

MASTERING_DISPLAY = struct.Struct("=22i")  # AVMasteringDisplayMetadata: ten fractions, and which of them are set
LIGHT_LEVEL = struct.Struct("=2I")  # the start of AVContentLightMetadata


def hdr_metadata(frame: VideoFrame) -> HdrMetadata | None:
    """None if the frame has none. What is invalid counts as missing: it says nothing about the pictures."""
    found = HdrMetadata(_mastering_display(frame), _light_level(frame))
    return None if found == HdrMetadata() else found


def _mastering_display(frame: VideoFrame) -> MasteringDisplay | None:
    content = _side_data(frame, SideDataType.MASTERING_DISPLAY_METADATA, MASTERING_DISPLAY.size)
    if content is None:
        return None
    *numbers, has_primaries, has_luminance = MASTERING_DISPLAY.unpack(content)
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    if not has_primaries or not has_luminance or any(denominator <= 0 for _, denominator in pairs):
        return None
    *chromaticities, darkest, brightest = (Fraction(*pair) for pair in pairs)
    if darkest >= brightest:
        return None
    red_x, red_y, green_x, green_y, blue_x, blue_y, white_x, white_y = (
        round(one / CHROMATICITY_UNIT) for one in chromaticities
    )
    try:
        return msgspec.convert(
            {
                "red": (red_x, red_y),
                "green": (green_x, green_y),
                "blue": (blue_x, blue_y),
                "white": (white_x, white_y),
                "darkest": round(darkest / LUMINANCE_UNIT),
                "brightest": round(brightest / LUMINANCE_UNIT),
            },
            MasteringDisplay,
        )
    except msgspec.ValidationError:
        return None


def _light_level(frame: VideoFrame) -> LightLevel | None:
    content = _side_data(frame, SideDataType.CONTENT_LIGHT_LEVEL, LIGHT_LEVEL.size)
    if content is None:
        return None
    highest, average = LIGHT_LEVEL.unpack(content)
    try:
        return msgspec.convert({"highest": highest, "average": average}, LightLevel)
    except msgspec.ValidationError:
        return None


def _side_data(frame: VideoFrame, kind: SideDataType, size: int) -> bytes | None:
    data = frame.side_data.get(kind)  # type: ignore[call-overload]
    content = b"" if data is None else bytes(data)[:size]
    return content if len(content) == size else None
