"""From two clips and the options to one filter graph. Refuses pairs whose score would be misleading. No I/O.

Frames are paired by number, never by timestamp: containers round timestamps differently, so ffmpeg would pair a frame
with its neighbour. The ffmpeg process that scores the clips also counts their frames.
"""

from fractions import Fraction

import msgspec

from vmafx.scoring.clip import ASPECT_RATIO_TOLERANCE, Clip
from vmafx.scoring.errors import BadInput, InputPart
from vmafx.scoring.libvmaf import libvmaf_features
from vmafx.scoring.notes import MATRICES, comparison_notes, full_range_of
from vmafx.scoring.request import ClipLimits, ScoreOptions

MIN_SIZE = 64  # in smaller frames libvmaf's wavelets cover mostly borders: a 31x31 clip scores 80 against itself
MS_SSIM_MIN_SIZE = 176
CAMBI_WIDTHS = range(320, 4097)
MAX_BIT_DEPTH = {"cambi": 10, "psnr_hvs": 12}  # above, libvmaf crashes or omits the feature
MAX_BT601_HEIGHT = 576  # untagged video up to this height is taken as BT.601
FRAME_RATE_TOLERANCE = 0.005
# The number of packets can differ from that of frames, so only large differences are refused before decoding.
PACKET_TOLERANCE, MIN_PACKET_DIFFERENCE = 0.1, 10
MAX_REPEATS = 250  # of one frame to fill a gap: ffmpeg holds the repeated frames in memory
CODECS_WITH_HIDDEN_FRAMES = frozenset({"vp8"})  # they have more packets than displayed frames


class Plan(msgspec.Struct, frozen=True):
    """How two clips are converted for the comparison."""

    width: int
    height: int
    pixel_format: str
    reference: str  # filter chain
    distorted: str
    expected: int | None  # frames to score; None if unknown
    notes: tuple[str, ...]

    def graph(self, reference: Clip, distorted: Clip, options: ScoreOptions, model: str, log: str) -> str:
        """The filter graph. libvmaf outputs [scored]; [d] and [r] are the inputs, for counting their frames."""
        features = "|".join(f"name={name}" for name in libvmaf_features(options.features))
        settings = {
            "log_fmt": "xml",
            "log_path": log,
            "n_threads": str(options.thread_count()),
            "n_subsample": str(options.subsample),
            "shortest": "1",
            "model": model,
        } | ({"feature": features} if features else {})
        arguments = ":".join(f"{name}={value}" for name, value in settings.items())
        return (
            f"[0:{distorted.stream}]{self.distorted},split[left][d];"
            f"[1:{reference.stream}]{self.reference},split[right][r];"
            f"[left][right]libvmaf={arguments}[scored]"
        )


def make_plan(reference: Clip, distorted: Clip, options: ScoreOptions, limits: ClipLimits | None = None) -> Plan:
    """Raises BadInput if the clips cannot be compared, or a score would be misleading."""
    _check_damage(reference, distorted, options)
    rate = _common_rate(reference, distorted, options)
    width, height = options.size or (reference.width, reference.height)
    limits = limits or ClipLimits()
    _check_sizes(reference, distorted, options, limits)
    pixel_format = _common_pixel_format(reference, distorted, options)
    target = _Target(
        width, height, pixel_format, rate, _common_range(reference, distorted), _matrix(reference, distorted, height)
    )
    expected = _expected_frames(reference, distorted, options)
    if expected is not None and expected > limits.frames:
        raise BadInput("options", f"the {expected:,} frames to score exceed the limit of {limits.frames:,}")
    notes = tuple(comparison_notes(reference, distorted, options, pixel_format, target.matrix))
    return Plan(width, height, pixel_format, target.chain(reference), target.chain(distorted), expected, notes)


def check_counts(
    reference_frames: int, distorted_frames: int, options: ScoreOptions, *, variable_rate: bool, damaged: bool = False
) -> None:
    """Raises BadInput if the numbers of frames differ and `shortest` is off. `damaged`: decoding reported errors."""
    if reference_frames == distorted_frames or options.shortest:
        return
    why = f"it has {distorted_frames:,} frames, but the reference has {reference_frames:,}"
    if damaged:
        raise BadInput("distorted", f"{why}: frames were lost in decoding; a score would compare shifted frames")
    remedy = "use --shortest only if frames are missing at the end"
    if variable_rate and not options.conform:
        remedy += ", or --conform, because the frame rate is variable"
    raise BadInput("distorted", why, remedy)


def has_variable_rate(reference: Clip, distorted: Clip) -> bool:
    return not (reference.constant_rate and distorted.constant_rate)


def damage_error(part: InputPart, found: str) -> BadInput:
    why = f"ffmpeg reported {found}: the clip is damaged or truncated"
    return BadInput(part, why, "use --damaged to score it as it decodes")


def counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def _check_damage(reference: Clip, distorted: Clip, options: ScoreOptions) -> None:
    parts: tuple[tuple[InputPart, Clip], ...] = (("reference", reference), ("distorted", distorted))
    for part, clip in parts:
        if clip.corrupt_packets and not options.damaged:
            raise damage_error(part, counted(clip.corrupt_packets, "corrupt packet"))


def _common_rate(reference: Clip, distorted: Clip, options: ScoreOptions) -> str | None:
    """The frame rate to convert both clips to; None to leave the frames as they are."""
    if options.conform:
        if reference.frame_rate is None or distorted.frame_rate is None:
            name, clip = ("reference", reference) if reference.frame_rate is None else ("distorted clip", distorted)
            raise BadInput(
                "options",
                f"--conform needs the frame rate of the {name}, but the file does not state it",
                "set it with --fps" if clip.is_raw else "",
            )
        return reference.frame_rate
    if reference.frame_rate and distorted.frame_rate and reference.constant_rate and distorted.constant_rate:
        first, second = Fraction(reference.frame_rate), Fraction(distorted.frame_rate)
        if abs(first / second - 1) > FRAME_RATE_TOLERANCE:
            raise BadInput(
                "distorted",
                f"its frame rate is {float(second):.5g} fps, but the reference has {float(first):.5g} fps",
                "use --conform to convert both to the reference's frame rate; repeated or dropped frames then affect"
                f" the score{', or correct --fps' if reference.is_raw or distorted.is_raw else ''}",
            )
    return None


def _check_sizes(reference: Clip, distorted: Clip, options: ScoreOptions, limits: ClipLimits) -> None:
    width, height = options.size or (reference.width, reference.height)
    if width * height > limits.pixels:
        raise BadInput("options", f"{width}x{height} is more than the limit of {limits.pixels:,} pixels")
    if min(width, height) < MIN_SIZE:
        raise BadInput(
            "options" if options.size else "reference",
            f"{width}x{height} is too small for VMAF, which needs {MIN_SIZE}x{MIN_SIZE} or more",
            "use --scale-to to compare at a larger size",
        )
    if "ms_ssim" in options.features and min(width, height) < MS_SSIM_MIN_SIZE:
        raise BadInput(
            "options",
            f"ms_ssim needs {MS_SSIM_MIN_SIZE}x{MS_SSIM_MIN_SIZE} or more, not {width}x{height}",
            "use --scale-to to compare at a larger size",
        )
    if "cambi" in options.features and width not in CAMBI_WIDTHS:
        raise BadInput(
            "options",
            f"cambi needs a width of {CAMBI_WIDTHS[0]} to {CAMBI_WIDTHS[-1]}, not {width}",
            "use --scale-to to compare at another size",
        )
    if not options.stretch and abs(reference.aspect_ratio / distorted.aspect_ratio - 1) > ASPECT_RATIO_TOLERANCE:
        raise BadInput(
            "distorted",
            f"its aspect ratio ({distorted.width}x{distorted.height}, {distorted.aspect_ratio:.3f}:1) differs from the"
            f" reference's ({reference.width}x{reference.height}, {reference.aspect_ratio:.3f}:1)",
            "crop one of them, or use --stretch to scale it to the reference's size",
        )


def _common_pixel_format(reference: Clip, distorted: Clip, options: ScoreOptions) -> str:
    """The chroma subsampling of the reference and the higher bit depth, as far as the features support them."""
    chroma = next((clip.chroma for clip in (reference, distorted) if clip.chroma in {"420", "422", "444"}), None)
    if chroma is None:
        chroma = "444" if "rgb" in {reference.chroma, distorted.chroma} else "420"
    if "ciede" in options.features and chroma == "444":  # libvmaf 2.3 writes out of bounds
        chroma = "420"
    highest = max(reference.bit_depth, distorted.bit_depth)
    bit_depth = min([highest, *(MAX_BIT_DEPTH.get(name, 16) for name in options.features)])
    suffix = next((f"{depth}le" for depth in (10, 12) if bit_depth <= depth), "16le") if bit_depth > 8 else ""
    return f"yuv{chroma}p{suffix}"


def _common_range(reference: Clip, distorted: Clip) -> bool:
    """Whether to compare in full range: as the reference, else as the distorted clip, else limited; RGB is ignored."""
    for clip in (reference, distorted):
        if clip.chroma != "rgb" and (full := full_range_of(clip)) is not None:
            return full
    return False


def _matrix(reference: Clip, distorted: Clip, height: int) -> str:
    """The matrix to convert RGB to YUV: that of the other clip, or the usual one for this height."""
    for clip in (reference, distorted):
        if clip.chroma != "rgb" and clip.matrix in MATRICES:
            return MATRICES[clip.matrix]
    return "bt601" if height <= MAX_BT601_HEIGHT else "bt709"


class _Target(msgspec.Struct, frozen=True):
    """The common format that both clips are converted to."""

    width: int
    height: int
    pixel_format: str
    rate: str | None
    full_range: bool
    matrix: str

    def chain(self, clip: Clip) -> str:
        """The filter chain that converts the clip."""
        known = full_range_of(clip)
        in_range = _range_name(self.full_range if known is None else known)
        out_range = _range_name(self.full_range)
        scale = f"scale=w={self.width}:h={self.height}:flags=bicubic:in_range={in_range}:out_range={out_range}"
        if clip.chroma == "rgb":
            scale += f":out_color_matrix={self.matrix}"
        return f"{self._rate_filters(clip)}settb=1/1000,setpts=N,{scale},format={self.pixel_format},setsar=1"

    def _rate_filters(self, clip: Clip) -> str:
        """At a constant rate, timestamps are computed from frame numbers: the container has rounded its own."""
        if self.rate is None:
            return ""
        if clip.constant_rate and clip.frame_rate:
            timestamps = f"settb={1 / Fraction(clip.frame_rate)},setpts=N"
        else:
            timestamps = "setpts=PTS-STARTPTS"
        return f"{timestamps},fps=fps={self.rate}:round=near,"


def _range_name(full: bool) -> str:
    return "full" if full else "limited"


def _expected_frames(reference: Clip, distorted: Clip, options: ScoreOptions) -> int | None:
    """The number of frames to score, estimated from packets. Raises BadInput if the numbers differ widely."""
    if options.conform:
        return _conformed_frames(reference, distorted, options)
    packets = [clip.packets for clip in (reference, distorted) if clip.codec not in CODECS_WITH_HIDDEN_FRAMES]
    if len(packets) == 2:
        _check_estimates(packets[0], packets[1], options, variable_rate=has_variable_rate(reference, distorted))
    return min(packets) if packets else None


def _conformed_frames(reference: Clip, distorted: Clip, options: ScoreOptions) -> int:
    """The number of frames after conversion to the reference's frame rate, estimated from durations."""
    rate = Fraction(reference.frame_rate or 25)
    parts: tuple[tuple[InputPart, Clip], ...] = (("reference", reference), ("distorted", distorted))
    for part, clip in parts:
        if clip.longest_frame * rate > MAX_REPEATS:
            raise BadInput(part, f"one of its frames lasts {clip.longest_frame:.0f} s, too long for --conform")
    first, second = (round(clip.duration * rate) for clip in (reference, distorted))
    _check_estimates(first, second, options, variable_rate=has_variable_rate(reference, distorted))
    return min(first, second)


def _check_estimates(reference: int, distorted: int, options: ScoreOptions, *, variable_rate: bool) -> None:
    tolerance = max(MIN_PACKET_DIFFERENCE, PACKET_TOLERANCE * max(reference, distorted))
    if abs(reference - distorted) > tolerance:
        check_counts(reference, distorted, options, variable_rate=variable_rate)
