"""The frames of a source as encoders get them."""

from collections.abc import Iterable
from fractions import Fraction

import msgspec

from vmafx.scoring.clip import Clip, HdrMetadata
from vmafx.scoring.decoder.messages import Conversion
from vmafx.scoring.engines.engine import FrameFormat
from vmafx.scoring.errors import BadInput
from vmafx.scoring.notes import HDR_TRANSFERS, MATRICES, full_range_of
from vmafx.scoring.plan import MAX_BT601_HEIGHT
from vmafx.scoring.probed import ProbedClip

DEFAULT_RATE = Fraction(25)
MIN_RATE, MAX_RATE = Fraction(1, 100), Fraction(1000)  # of clips whose timestamps are all that states one
SQUARE_TOLERANCE = 0.01  # rounding a size to even numbers changes its aspect ratio by less
UNSPECIFIED = 2  # of ITU-T H.273
LIMITED, FULL = "1", "2"  # FFmpeg's AVCOL_RANGE_MPEG and AVCOL_RANGE_JPEG
TRANSFERS, PRIMARIES = {1, *range(4, 19)}, {1, *range(4, 13), 22}  # those of ITU-T H.273 that are not reserved
MATRIX_NUMBERS = {"bt601": 6, "bt709": 1}


class SourceFrames(msgspec.Struct, frozen=True):
    """What an encoder gets: planar YUV 4:2:0, which every encoder takes, at a constant frame rate."""

    conversion: Conversion
    rate: Fraction
    pixel_aspect: Fraction  # width of a pixel to its height
    colours: dict[str, str]  # options of libavcodec that tag the frames
    count: int | None  # frames, as far as the container tells
    hdr: HdrMetadata | None = None  # to be written, if the encoder can

    @property
    def format(self) -> FrameFormat:
        return FrameFormat(self.conversion.width, self.conversion.height, self.conversion.pixel_format)

    @property
    def frame_bytes(self) -> int:
        """Of a raw frame: 4:2:0 of an even size."""
        samples = self.conversion.width * self.conversion.height * 3 // 2
        return samples if self.conversion.pixel_format == "yuv420p" else samples * 2

    @property
    def rate_text(self) -> str:
        return f"{self.rate.numerator}/{self.rate.denominator}"


def frame_rate(clip: Clip) -> Fraction:
    """The rate at which a clip is encoded; of a clip with a variable one, its average."""
    if clip.frame_rate is not None and clip.constant_rate:
        return Fraction(clip.frame_rate)
    if clip.duration > 0 and clip.packets > 1:
        average = Fraction(clip.packets / clip.duration).limit_denominator(1001)
        return min(max(average, MIN_RATE), MAX_RATE)
    return Fraction(clip.frame_rate) if clip.frame_rate is not None else DEFAULT_RATE


def source_frames(source: ProbedClip, depths: tuple[int, ...], size: tuple[int, int] | None = None) -> SourceFrames:
    """The frames for an encoder with these bit depths, in the size of the source or another one."""
    clip = source.clip
    width, height = size or (clip.width - clip.width % 2, clip.height - clip.height % 2)
    if min(width, height) < 2:
        raise BadInput("reference", f"its frames of {clip.width}x{clip.height} are too small to encode")
    depth = min((depth for depth in depths if depth >= clip.bit_depth), default=max(depths))
    full = full_range_of(clip) or False
    target_full = full and clip.chroma != "rgb"
    matrix = MATRICES.get(clip.matrix, "") if clip.chroma != "rgb" else ""
    from_rgb = "" if clip.chroma != "rgb" else ("bt601" if height <= MAX_BT601_HEIGHT else "bt709")
    number = MATRIX_NUMBERS[from_rgb] if from_rgb else clip.matrix if matrix else UNSPECIFIED
    colours = {"color_range": FULL if target_full else LIMITED}
    colours |= {"colorspace": str(number)} if number != UNSPECIFIED else {}
    if not from_rgb:
        colours |= {"color_trc": str(clip.transfer)} if clip.transfer in TRANSFERS else {}
        colours |= {"color_primaries": str(clip.primaries)} if clip.primaries in PRIMARIES else {}
    conversion = Conversion(
        width=width,
        height=height,
        pixel_format="yuv420p" if depth == 8 else f"yuv420p{depth}le",
        full_range=target_full,
        from_full_range=full,
        matrix=from_rgb,
    )
    aspect, hdr = _pixel_aspect(clip, width, height), None if from_rgb else clip.hdr
    return SourceFrames(conversion, frame_rate(clip), aspect, colours, clip.packets or None, hdr)


def _pixel_aspect(clip: Clip, width: int, height: int) -> Fraction:
    """That with which frames of this size are displayed as those of the clip."""
    aspect = clip.aspect_ratio * height / width
    return Fraction(1) if abs(aspect - 1) < SQUARE_TOLERANCE else Fraction(aspect).limit_denominator(1000)


def source_notes(clip: Clip, without_hdr: Iterable[str] = ()) -> list[str]:
    """What encoding changes about a clip, for people; `without_hdr` are encoders that cannot write HDR10's metadata."""
    notes = []
    if clip.transfer in HDR_TRANSFERS:
        kind = HDR_TRANSFERS[clip.transfer]
        notes.append(f"the source is HDR ({kind}); the models were trained on SDR, so its scores compare encodes only")
    if clip.hdr is not None and (lost := ", ".join(sorted(set(without_hdr)))):
        notes.append(f"the mastering display and light levels of the source are not kept by {lost}")
    if clip.chroma not in {"420", "gray"}:
        notes.append(f"the source has {_chroma_name(clip)}, and is encoded in 4:2:0")
    if clip.bit_depth > 10:
        notes.append(f"the source has {clip.bit_depth} bits, and is encoded with 10 at most")
    if not clip.constant_rate or clip.frame_rate is None:
        notes.append(f"the source has no constant frame rate; it is encoded at {float(frame_rate(clip)):.5g} fps")
    if clip.width % 2 or clip.height % 2:
        notes.append(f"the source has {clip.width}x{clip.height}; encodes have an even width and height")
    if clip.interlaced:
        notes.append("the source is interlaced; it is encoded as if it were progressive")
    return notes


def _chroma_name(clip: Clip) -> str:
    return "RGB" if clip.chroma == "rgb" else f"{clip.chroma[0]}:{clip.chroma[1]}:{clip.chroma[2]}"
