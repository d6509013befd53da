"""Notes for the reader of a score: conversions, and facts that affect its meaning. No I/O."""

from collections.abc import Iterator
from fractions import Fraction

from vmafx.scoring.clip import Clip
from vmafx.scoring.request import ScoreOptions

HDR_TRANSFERS = {16: "PQ", 18: "HLG"}
MATRICES = {1: "bt709", 4: "fcc", 5: "bt601", 6: "bt601", 7: "smpte240m", 9: "bt2020", 10: "bt2020"}
MIN_DRIFT = 0.75  # frames


def full_range_of(clip: Clip) -> bool | None:
    """Whether the clip uses full colour range. Untagged clips are limited range; None for untagged raw or grey clips,
    which take the range of the other clip.
    """
    if clip.chroma == "rgb":
        return True
    if clip.full_range is None and not clip.is_raw and clip.chroma != "gray":
        return False
    return clip.full_range


def comparison_notes(
    reference: Clip, distorted: Clip, options: ScoreOptions, pixel_format: str, matrix: str
) -> Iterator[str]:
    yield from _size_notes(reference, distorted, options)
    yield from _colour_notes(reference, distorted, options, pixel_format, matrix)
    for part, clip in (("reference", reference), ("distorted clip", distorted)):
        if clip.transfer in HDR_TRANSFERS:
            yield f"the {part} is HDR ({HDR_TRANSFERS[clip.transfer]}); the models were trained on SDR only"
        if clip.interlaced:
            yield f"the {part} is interlaced; it was scored without deinterlacing"
        if clip.video_streams > 1:
            yield f"the {part} has {clip.video_streams} video streams; the default one, or else the first, was scored"
        if options.conform and (not clip.constant_rate or _rate(clip) != _rate(reference)):
            rate = f"{float(_rate(reference)):.5g}"
            yield f"the {part} was converted to {rate} fps: some frames were repeated or dropped"
    if not options.conform and (drift := _drift_note(reference, distorted)):
        yield drift


def _rate(clip: Clip) -> Fraction:
    return Fraction(clip.frame_rate or 25)


def _size_notes(reference: Clip, distorted: Clip, options: ScoreOptions) -> Iterator[str]:
    width, height = options.size or (reference.width, reference.height)
    for part, clip in (("reference", reference), ("distorted", distorted)):
        if (clip.width, clip.height) != (width, height):
            yield f"the {part} clip ({clip.width}x{clip.height}) was scaled to {width}x{height}, bicubic"
    if options.model.startswith("vmaf_v0.6.1") and height > 1440:
        yield f"{options.model} is made for 1080p; for 2160p use vmaf_4k_v0.6.1, or compare at 1920x1080"
    if options.model.startswith("vmaf_4k") and height <= 1440:
        yield f"{options.model} is made for 2160p; for smaller frames use vmaf_v0.6.1"


def _colour_notes(
    reference: Clip, distorted: Clip, options: ScoreOptions, pixel_format: str, matrix: str
) -> Iterator[str]:
    clips = (reference, distorted)
    for part, clip in (("reference", reference), ("distorted", distorted)):
        if clip.chroma != "rgb" and (clip.chroma, clip.bit_depth) != _chroma_and_depth(pixel_format):
            yield f"the {part} clip ({clip.pixel_format}) was converted to {pixel_format}"
    ranges = {full_range_of(clip) for clip in clips if clip.chroma != "rgb"}
    if ranges == {True, False}:
        yield "one clip is full-range and the other limited-range; the distorted clip was converted"
    if ranges == {True, None}:
        yield "the clip without a colour range tag was taken as full-range, like the other"
    if {clip.chroma for clip in clips} & {"rgb"}:
        yield f"RGB was converted to YUV with {matrix}"
    matrices = {MATRICES[clip.matrix] for clip in clips if clip.chroma != "rgb" and clip.matrix in MATRICES}
    if len(matrices) > 1:
        yield f"the clips have different colour matrices ({', '.join(sorted(matrices))}) and were not converted"
    highest = max(clip.bit_depth for clip in clips)
    if highest > 8 and not any(f"p{depth}" in pixel_format for depth in range(highest, 17)):
        yield f"{highest} bit was compared as {pixel_format}, the most that {', '.join(options.features)} supports"
    if "ciede" in options.features and "444" in {clip.chroma for clip in clips} and "444" not in pixel_format:
        yield f"4:4:4 was compared as {pixel_format}, because ciede does not support 4:4:4"


def _chroma_and_depth(pixel_format: str) -> tuple[str, int]:
    """Of a planar YUV format: yuv420p10le is 420 with 10 bits."""
    chroma, _, depth = pixel_format.removeprefix("yuv").removesuffix("le").partition("p")
    return chroma, int(depth or 8)


def _drift_note(reference: Clip, distorted: Clip) -> str | None:
    """Frames are paired by number: if timestamps show that one clip misses a frame, all later pairs are wrong."""
    if reference.gaps is None or distorted.gaps is None:
        return None
    drift = 0.0
    late = sorted([*distorted.gaps, *((number, -frames) for number, frames in reference.gaps)])
    for index, (number, frames) in enumerate(late):
        drift += frames
        last_of_number = index + 1 == len(late) or late[index + 1][0] != number
        if last_of_number and abs(drift) >= MIN_DRIFT:
            return (
                f"from frame {number} on, the timestamps of the clips differ by {_frames(drift)}:"
                " a frame may be missing in one of them; frames were paired by number"
            )
    return None


def _frames(drift: float) -> str:
    count = f"{abs(drift):.0f}"
    return "1 frame" if count == "1" else f"{count} frames"
