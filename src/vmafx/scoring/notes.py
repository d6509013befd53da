"""What a reader of a score should know of how it came about: pure."""

from collections.abc import Iterator
from fractions import Fraction

from vmafx.scoring.clip import Clip
from vmafx.scoring.request import ScoreOptions

HDR = {16: "PQ", 18: "HLG"}
MATRICES = {1: "bt709", 4: "fcc", 5: "bt601", 6: "bt601", 7: "smpte240m", 9: "bt2020", 10: "bt2020"}
DRIFT = 0.75  # frames


def range_of(clip: Clip) -> bool | None:
    """Whether values use the full range. Who does not say is limited, but a raw or grey clip is as the other."""
    if clip.chroma == "rgb":
        return True
    if clip.full_range is None and clip.container != "rawvideo" and clip.chroma != "gray":
        return False
    return clip.full_range


def notes_on(reference: Clip, distorted: Clip, options: ScoreOptions, pixel_format: str, matrix: str) -> Iterator[str]:
    yield from _of_size(reference, distorted, options)
    yield from _of_colour(reference, distorted, options, pixel_format, matrix)
    for part, clip in (("reference", reference), ("distorted clip", distorted)):
        if clip.transfer in HDR:
            yield f"the {part} is HDR ({HDR[clip.transfer]}); the models learnt from SDR only"
        if clip.interlaced:
            yield f"the {part} is interlaced; fields are compared as they lie in the frames"
        if clip.streams > 1:
            yield f"the {part} has {clip.streams} video streams; this is the default one, or the first"
        if options.conform and (not clip.even or _rate(clip) != _rate(reference)):
            rate = f"{float(_rate(reference)):.5g}"
            yield f"the {part} was brought to {rate} frames a second: some are repeated or left out"
    if not options.conform and (drift := _drift(reference, distorted)):
        yield drift


def _rate(clip: Clip) -> Fraction:
    return Fraction(clip.rate or 25)


def _of_size(reference: Clip, distorted: Clip, options: ScoreOptions) -> Iterator[str]:
    width, height = options.size or (reference.width, reference.height)
    if options.size:
        yield f"both clips were scaled to {width}x{height}"
    elif (distorted.width, distorted.height) != (width, height):
        yield (
            f"the distorted clip ({distorted.width}x{distorted.height}) was scaled to the reference's"
            f" {width}x{height}, bicubic"
        )
    if options.model.startswith("vmaf_v0.6.1") and height > 1440:
        yield f"{options.model} is made for 1080p; for 2160p there is vmaf_4k_v0.6.1, or compare at 1920x1080"
    if options.model.startswith("vmaf_4k") and height <= 1440:
        yield f"{options.model} is made for 2160p; for smaller pictures there is vmaf_v0.6.1"


def _of_colour(
    reference: Clip, distorted: Clip, options: ScoreOptions, pixel_format: str, matrix: str
) -> Iterator[str]:
    clips = (reference, distorted)
    ranges = {range_of(clip) for clip in clips if clip.chroma != "rgb"}
    if ranges == {True, False}:
        yield "one clip has full-range values, the other limited: the distorted one was converted"
    if ranges == {True, None}:
        yield "the clip that does not say its range of values was taken as full-range, like the other"
    if {clip.chroma for clip in clips} & {"rgb"}:
        yield f"RGB was converted to YUV by {matrix}"
    tagged = {MATRICES[clip.matrix] for clip in clips if clip.chroma != "rgb" and clip.matrix in MATRICES}
    if len(tagged) > 1:
        yield f"the clips' colours are coded differently ({', '.join(sorted(tagged))}) and were not converted"
    deepest = max(clip.depth for clip in clips)
    if deepest > 8 and not any(f"p{depth}" in pixel_format for depth in range(deepest, 17)):
        yield f"{deepest} bits are compared at {pixel_format}, the most that {', '.join(options.features)} can bear"
    if "ciede" in options.features and "444" in {clip.chroma for clip in clips} and "444" not in pixel_format:
        yield f"4:4:4 is compared at {pixel_format}, since ciede cannot bear more"


def _drift(reference: Clip, distorted: Clip) -> str | None:
    """Frames are paired by number: where times say that one is missing, all after it are pairs of strangers."""
    if reference.jumps is None or distorted.jumps is None:
        return None
    apart = 0.0
    late = sorted([(number, by) for number, by in distorted.jumps] + [(number, -by) for number, by in reference.jumps])
    for at, (number, by) in enumerate(late):
        apart += by
        last_here = at + 1 == len(late) or late[at + 1][0] != number
        if last_here and abs(apart) >= DRIFT:
            return (
                f"from frame {number} on, the clips' times are {abs(apart):.0f} frames apart: is one missing?"
                " Frames were paired by number"
            )
    return None
