"""From two clips and the options to one filter graph: pure. What would score wrongly is refused, with a reason.

Frames are paired by their number, never by their times: two containers round times differently, and ffmpeg would then
compare a frame with its neighbour. Both clips are counted to their ends in the same pass, beside the scoring.
"""

from fractions import Fraction

import msgspec

from vmafx.scoring.clip import Clip
from vmafx.scoring.errors import BadInput, InputPart
from vmafx.scoring.libvmaf import asked_for
from vmafx.scoring.notes import MATRICES, notes_on
from vmafx.scoring.notes import range_of as _range_of
from vmafx.scoring.request import ClipLimits, ScoreOptions

MIN_SIZE = 64  # below, libvmaf's wavelets see little but borders: two equal clips of 31x31 "score" 80
MS_SSIM_MIN_SIZE = 176
CAMBI_WIDTHS = range(320, 4097)
MAX_DEPTH = {"cambi": 10, "psnr_hvs": 12}  # bits; beyond them libvmaf crashes, or says nothing
STANDARD_HEIGHT = 576  # up to which untagged video is taken to be BT.601
SHAPES_DIFFER, RATES_DIFFER = 0.02, 0.005
# Packets may differ in number from the frames they give: only what is far apart is refused by their count.
COUNTS_DIFFER, COUNTS_APART = 0.1, 10
MAX_REPEATS = 250  # of one frame, to fill a gap: what is made between two frames is held in memory
HIDDEN_FRAMES = frozenset({"vp8"})  # whose packets are not all shown


class Plan(msgspec.Struct, frozen=True):
    """How two clips are brought together."""

    width: int
    height: int
    pixel_format: str
    reference: str  # chains of filters
    distorted: str
    expected: int | None  # frames
    notes: tuple[str, ...]

    def graph(self, reference: Clip, distorted: Clip, options: ScoreOptions, model: str, log: str) -> str:
        """The whole: [scored] comes out of libvmaf, [d] and [r] are there to be counted."""
        features = "|".join(f"name={name}" for name in asked_for(options.features))
        settings = {
            "log_fmt": "json",
            "log_path": log,
            "n_threads": str(options.cores()),
            "n_subsample": str(options.subsample),
            "shortest": "1",
            "model": model,
        } | ({"feature": features} if features else {})
        judge = ":".join(f"{name}={value}" for name, value in settings.items())
        return (
            f"[0:{distorted.stream}]{self.distorted},split[left][d];"
            f"[1:{reference.stream}]{self.reference},split[right][r];"
            f"[left][right]libvmaf={judge}[scored]"
        )


def make_plan(reference: Clip, distorted: Clip, options: ScoreOptions, limits: ClipLimits | None = None) -> Plan:
    """Raises BadInput where a score would not mean what it seems to."""
    _check_damage(reference, distorted, options)
    rate = _common_rate(reference, distorted, options)
    width, height = options.size or (reference.width, reference.height)
    limits = limits or ClipLimits()
    _check_sizes(reference, distorted, options, limits)
    pixel_format = _pixel_format(reference, distorted, options)
    target = _Target(
        width, height, pixel_format, rate, _full_range(reference, distorted), _matrix(reference, distorted, height)
    )
    expected = _expected(reference, distorted, options)
    if expected is not None and expected > limits.frames:
        raise BadInput("options", f"there would be {expected:,} frames to score, and {limits.frames:,} is the limit")
    notes = tuple(notes_on(reference, distorted, options, pixel_format, target.matrix))
    return Plan(width, height, pixel_format, target.chain(reference), target.chain(distorted), expected, notes)


def check_counts(reference: int, distorted: int, options: ScoreOptions) -> None:
    """Raises BadInput for clips of different length, unless only their common part was asked for."""
    if reference == distorted or options.shortest:
        return
    remedy = "score their common part with --shortest"
    if not options.conform:
        remedy += ", or, if the frame rates differ, bring them together with --conform"
    raise BadInput("distorted", f"it has {distorted:,} frames, and the reference has {reference:,}", remedy)


def _check_damage(reference: Clip, distorted: Clip, options: ScoreOptions) -> None:
    parts: tuple[tuple[InputPart, Clip], ...] = (("reference", reference), ("distorted", distorted))
    for part, clip in parts:
        if clip.broken and not options.damaged:
            raise damaged(part, clip.broken)


def damaged(part: InputPart, times: int) -> BadInput:
    return BadInput(part, f"it is damaged or cut off ({_times(times)})", "score it as it decodes with --damaged")


def _times(count: int) -> str:
    return "in one place" if count == 1 else f"in {count:,} places"


def _common_rate(reference: Clip, distorted: Clip, options: ScoreOptions) -> str | None:
    """The rate to bring both clips to; None if their frames are taken as they are."""
    if options.conform:
        if reference.rate is None or distorted.rate is None:
            part = "reference" if reference.rate is None else "distorted"
            raise BadInput("options", f"--conform needs to know the {part} clip's frame rate, which it does not say")
        return reference.rate
    if reference.rate and distorted.rate and reference.even and distorted.even:
        first, second = Fraction(reference.rate), Fraction(distorted.rate)
        if abs(first / second - 1) > RATES_DIFFER:
            raise BadInput(
                "distorted",
                f"it has {_per_second(second)} frames a second, and the reference has {_per_second(first)}",
                "bring it to the reference's rate with --conform",
            )
    return None


def _per_second(rate: Fraction) -> str:
    return f"{float(rate):.5g}"


def _check_sizes(reference: Clip, distorted: Clip, options: ScoreOptions, limits: ClipLimits) -> None:
    width, height = options.size or (reference.width, reference.height)
    if width * height > limits.pixels:
        raise BadInput("options", f"{width}x{height} is more than the limit of {limits.pixels:,} pixels")
    if min(width, height) < MIN_SIZE:
        raise BadInput(
            "options" if options.size else "reference",
            f"{width}x{height} is too small for VMAF, which needs {MIN_SIZE}x{MIN_SIZE}",
            "see --scale-to",
        )
    if "ms_ssim" in options.features and min(width, height) < MS_SSIM_MIN_SIZE:
        raise BadInput("options", f"ms_ssim needs {MS_SSIM_MIN_SIZE}x{MS_SSIM_MIN_SIZE} or more, not {width}x{height}")
    if "cambi" in options.features and width not in CAMBI_WIDTHS:
        raise BadInput(
            "options",
            f"cambi needs a width of {CAMBI_WIDTHS[0]} to {CAMBI_WIDTHS[-1]}, not {width}",
            "see --scale-to",
        )
    if not options.stretch and abs(reference.shape / distorted.shape - 1) > SHAPES_DIFFER:
        raise BadInput(
            "distorted",
            f"its shape ({distorted.width}x{distorted.height}, {distorted.shape:.3f}:1) is not the reference's"
            f" ({reference.width}x{reference.height}, {reference.shape:.3f}:1)",
            "crop one of them, or stretch it over the reference with --stretch",
        )


def _pixel_format(reference: Clip, distorted: Clip, options: ScoreOptions) -> str:
    """The reference's chroma, and the greater of the two depths, as far as the features can bear them."""
    chroma = next((clip.chroma for clip in (reference, distorted) if clip.chroma in {"420", "422", "444"}), None)
    if chroma is None:
        chroma = "444" if "rgb" in {reference.chroma, distorted.chroma} else "420"
    if "ciede" in options.features and chroma == "444":  # with which libvmaf 2.3 writes where it must not
        chroma = "420"
    depth = min([max(reference.depth, distorted.depth), *(MAX_DEPTH.get(name, 16) for name in options.features)])
    return f"yuv{chroma}p{_suffix(depth)}"


def _suffix(depth: int) -> str:
    for most, suffix in ((8, ""), (10, "10le"), (12, "12le")):
        if depth <= most:
            return suffix
    return "16le"


def _full_range(reference: Clip, distorted: Clip) -> bool:
    """The range to compare in: the reference's, else the distorted clip's, else the usual one; RGB has no say."""
    for clip in (reference, distorted):
        if clip.chroma != "rgb" and (known := _range_of(clip)) is not None:
            return known
    return False


def _matrix(reference: Clip, distorted: Clip, height: int) -> str:
    """By which RGB becomes YUV: as the other clip has it, or as clips of that size mostly do."""
    for clip in (reference, distorted):
        if clip.chroma != "rgb" and clip.matrix in MATRICES:
            return MATRICES[clip.matrix]
    return "bt601" if height <= STANDARD_HEIGHT else "bt709"


class _Target(msgspec.Struct, frozen=True):
    """What both clips are brought to."""

    width: int
    height: int
    pixel_format: str
    rate: str | None
    full: bool
    matrix: str

    def chain(self, clip: Clip) -> str:
        known = _range_of(clip)
        own = self.full if known is None else known
        scale = (
            f"scale=w={self.width}:h={self.height}:flags=bicubic:in_range={_range(own)}:out_range={_range(self.full)}"
        )
        if clip.chroma == "rgb":
            scale += f":out_color_matrix={self.matrix}"
        return f"{self._timing(clip)}settb=1/1000,setpts=N,{scale},format={self.pixel_format},setsar=1"

    def _timing(self, clip: Clip) -> str:
        """At even distances a frame's number tells its time better than the container, which rounds it."""
        if self.rate is None:
            return ""
        times = f"settb={1 / Fraction(clip.rate)},setpts=N" if clip.even and clip.rate else "setpts=PTS-STARTPTS"
        return f"{times},fps=fps={self.rate}:round=near,"


def _range(full: bool) -> str:
    return "full" if full else "limited"


def _expected(reference: Clip, distorted: Clip, options: ScoreOptions) -> int | None:
    """How many frames there will be to score; refuses at once what differs by more than packets can mislead."""
    if options.conform:
        return _conformed(reference, distorted, options)
    packets = [clip.packets for clip in (reference, distorted) if clip.codec not in HIDDEN_FRAMES]
    if len(packets) == 2:
        _check_far_apart(packets[0], packets[1], options)
    return min(packets) if packets else None


def _conformed(reference: Clip, distorted: Clip, options: ScoreOptions) -> int:
    """How many frames the clips have once they are at one rate, by their times."""
    rate = Fraction(reference.rate or 25)
    parts: tuple[tuple[InputPart, Clip], ...] = (("reference", reference), ("distorted", distorted))
    for part, clip in parts:
        if clip.longest * rate > MAX_REPEATS:
            raise BadInput(part, f"one of its frames stands for {clip.longest:.0f} s, too long to be conformed")
    first, second = (round(clip.seconds * rate) for clip in (reference, distorted))
    _check_far_apart(first, second, options)
    return min(first, second)


def _check_far_apart(first: int, second: int, options: ScoreOptions) -> None:
    if abs(first - second) > max(COUNTS_APART, COUNTS_DIFFER * max(first, second)):
        check_counts(first, second, options)
