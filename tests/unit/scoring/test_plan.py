"""The plan of a comparison: conversions, refusals and notes."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.api.scoring import PixelFormat, RawFormat
from vmafx.scoring.clip import Clip, raw_frame_bytes
from vmafx.scoring.decoder.messages import Conversion
from vmafx.scoring.engines.engine import FrameFormat
from vmafx.scoring.errors import BadInput
from vmafx.scoring.plan import Plan, check_counts, make_plan
from vmafx.scoring.request import ClipLimits, ScoreOptions

CLIP = Clip(
    container="matroska,webm",
    codec="h264",
    width=1920,
    height=1080,
    pixel_format="yuv420p",
    bit_depth=8,
    chroma="420",
    packets=100,
    frame_rate="25",
    duration=4.0,
    longest_frame=0.04,
)


def clip(**changes: object) -> Clip:
    return msgspec.structs.replace(CLIP, **changes)


def ranges(conversion: Conversion) -> tuple[bool, bool]:
    return conversion.from_full_range, conversion.full_range


def refusal(reference: Clip, distorted: Clip, options: ScoreOptions | None = None) -> str:
    with pytest.raises(BadInput) as error:
        make_plan(reference, distorted, options or ScoreOptions())
    return str(error.value)


def test_clips_of_the_same_format_are_not_converted() -> None:
    plan = make_plan(CLIP, CLIP, ScoreOptions())
    same = Conversion(width=1920, height=1080, pixel_format="yuv420p")
    assert plan == Plan(FrameFormat(1920, 1080, "yuv420p"), same, same, 100, ())


@pytest.mark.parametrize(
    ("reference", "distorted", "format_"),
    [
        ({}, {"bit_depth": 10}, "yuv420p10le"),
        ({"bit_depth": 12}, {}, "yuv420p12le"),
        ({"bit_depth": 14}, {}, "yuv420p16le"),
        ({"chroma": "422"}, {}, "yuv422p"),
        ({"chroma": "rgb"}, {"chroma": "422"}, "yuv422p"),
        ({"chroma": "rgb"}, {"chroma": "rgb"}, "yuv444p"),
        ({"chroma": "gray", "bit_depth": 16}, {"chroma": "gray"}, "yuv420p16le"),
    ],
)
def test_the_common_pixel_format(reference: dict[str, object], distorted: dict[str, object], format_: str) -> None:
    assert make_plan(clip(**reference), clip(**distorted), ScoreOptions()).frames.pixel_format == format_


def test_clips_are_compared_in_the_range_of_the_reference() -> None:
    plan = make_plan(clip(full_range=False), clip(full_range=True), ScoreOptions())
    assert ranges(plan.distorted) == (True, False)
    assert ranges(plan.reference) == (False, False)
    assert "full-range" in plan.notes[0]
    raw = clip(container="rawvideo", frame_rate=None)
    plan = make_plan(raw, clip(full_range=True), ScoreOptions())
    assert ranges(plan.reference) == (True, True)
    assert "taken as full-range, like the other" in plan.notes[0]
    plan = make_plan(clip(chroma="rgb"), clip(matrix=9), ScoreOptions())
    assert (*ranges(plan.reference), plan.reference.matrix, plan.distorted.matrix) == (True, False, "bt2020", "")


def test_frame_rates_must_match_unless_conformed() -> None:
    assert "its frame rate is 30 fps, but the reference has 25 fps" in refusal(CLIP, clip(frame_rate="30"))
    assert make_plan(
        clip(frame_rate="24"), clip(frame_rate="24000/1001"), ScoreOptions()
    )  # within the rounding of containers
    assert make_plan(CLIP, clip(frame_rate="30", constant_rate=False), ScoreOptions())  # the average of a variable rate
    assert make_plan(CLIP, clip(frame_rate=None), ScoreOptions())
    plan = make_plan(CLIP, clip(frame_rate="50", packets=200), ScoreOptions(conform=True))
    assert (plan.distorted.own_rate, plan.distorted.rate) == ("50", "25")
    assert plan.expected == 100
    assert "does not state it" in refusal(CLIP, clip(frame_rate=None), ScoreOptions(conform=True))
    assert "it has 150 frames, but the reference has 100" in refusal(
        CLIP, clip(duration=6.0), ScoreOptions(conform=True)
    )
    assert make_plan(CLIP, clip(duration=6.0), ScoreOptions(conform=True, shortest=True)).expected == 100
    gap = clip(duration=3600.0, longest_frame=3596.0)
    assert "one of its frames lasts 3596 s" in refusal(CLIP, gap, ScoreOptions(conform=True, shortest=True))


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.booleans())
def test_different_numbers_of_frames_are_refused(reference: int, distorted: int, shortest: bool) -> None:
    """Before decoding only a large difference is refused, after it any."""
    options = ScoreOptions(shortest=shortest)
    large_difference = abs(reference - distorted) > max(10, 0.1 * max(reference, distorted))
    try:
        assert make_plan(clip(packets=reference), clip(packets=distorted), options).expected == min(
            reference, distorted
        )
        assert shortest or not large_difference
    except BadInput:
        assert large_difference
        assert not shortest
    try:
        check_counts(reference, distorted, options, variable_rate=False)
        assert shortest or reference == distorted
    except BadInput:
        assert not shortest


def remedy(reference: Clip, distorted: Clip, options: ScoreOptions | None = None) -> str:
    with pytest.raises(BadInput) as error:
        make_plan(reference, distorted, options or ScoreOptions())
    return error.value.remedy


def test_conform_is_suggested_only_for_a_variable_frame_rate() -> None:
    shortest = "use --shortest only if frames are missing at the end"
    assert remedy(CLIP, clip(packets=200)) == shortest
    variable = clip(packets=200, constant_rate=False)
    assert remedy(CLIP, variable) == f"{shortest}, or --conform, because the frame rate is variable"


def test_frames_lost_in_decoding_are_refused_without_a_remedy() -> None:
    with pytest.raises(BadInput, match="frames were lost in decoding; a score would compare shifted frames") as error:
        check_counts(20, 19, ScoreOptions(damaged=True), variable_rate=False, damaged=True)
    assert error.value.remedy == ""
    check_counts(20, 19, ScoreOptions(damaged=True, shortest=True), variable_rate=False, damaged=True)


def test_the_remedy_for_a_raw_clip_names_fps() -> None:
    raw = clip(container="rawvideo", frame_rate="30")
    assert remedy(CLIP, clip(frame_rate="30")).endswith("then affect the score")
    assert remedy(CLIP, raw).endswith("then affect the score, or correct --fps")
    unknown = clip(container="rawvideo", frame_rate=None)
    assert remedy(CLIP, unknown, ScoreOptions(conform=True)) == "set it with --fps"
    assert remedy(CLIP, clip(container="h264", frame_rate=None), ScoreOptions(conform=True)) == ""


def test_the_remedy_for_a_clip_too_small_for_ms_ssim_is_scale_to() -> None:
    small = clip(width=160, height=90)
    assert "--scale-to" in remedy(small, small, ScoreOptions(features=("ms_ssim",)))


def test_notes_name_the_clip_whose_pixel_format_or_size_is_converted() -> None:
    deep = clip(pixel_format="yuv444p10le", chroma="444", bit_depth=10)
    assert make_plan(CLIP, deep, ScoreOptions()).notes == (
        "the reference clip (yuv420p) was converted to yuv420p10le",
        "the distorted clip (yuv444p10le) was converted to yuv420p10le",
    )
    assert make_plan(CLIP, clip(pixel_format="nv12"), ScoreOptions()).notes == ()
    small = clip(width=1280, height=720)
    assert make_plan(CLIP, small, ScoreOptions(size=(1280, 720))).notes == (
        "the reference clip (1920x1080) was scaled to 1280x720, bicubic",
    )


def test_packets_of_hidden_frames_are_not_counted() -> None:
    assert make_plan(CLIP, clip(codec="vp8", packets=140), ScoreOptions()).expected == 100


def test_corrupt_packets_are_refused() -> None:
    assert refusal(clip(corrupt_packets=1), CLIP).startswith(
        "reference: ffmpeg reported 1 corrupt packet: the clip is damaged"
    )
    assert "3 corrupt packets" in refusal(CLIP, clip(corrupt_packets=3))
    assert make_plan(CLIP, clip(corrupt_packets=3), ScoreOptions(damaged=True))


def test_notes_name_conversions_and_limitations() -> None:
    def notes(reference: Clip, distorted: Clip, **options: object) -> str:
        return " ".join(make_plan(reference, distorted, ScoreOptions(**options)).notes)  # type: ignore[arg-type]

    large = clip(width=3840, height=2160)
    assert "vmaf_v0.6.1 is made for 1080p" in notes(large, large)
    assert "vmaf_4k_v0.6.1 is made for 2160p" in notes(CLIP, CLIP, model="vmaf_4k_v0.6.1")
    assert notes(large, large, model="vmaf_4k_v0.6.1") == ""
    assert notes(CLIP, clip(width=1280, height=720)) == "the distorted clip (1280x720) was scaled to 1920x1080, bicubic"
    assert "scaled to 1280x720" in notes(CLIP, CLIP, size=(1280, 720))
    assert "HDR (PQ)" in notes(clip(transfer=16), CLIP)
    assert "interlaced" in notes(CLIP, clip(interlaced=True))
    assert "the distorted clip has 3 video streams" in notes(CLIP, clip(video_streams=3))
    assert "RGB was converted to YUV with bt709" in notes(CLIP, clip(chroma="rgb"))
    small = clip(width=720, height=405)
    assert "RGB was converted to YUV with bt601" in notes(small, msgspec.structs.replace(small, chroma="rgb"))
    assert "different colour matrices (bt601, bt709)" in notes(clip(matrix=1), clip(matrix=6))
    assert notes(CLIP, CLIP, conform=True) == ""
    assert "the reference was converted to 25 fps" in notes(clip(constant_rate=False), CLIP, conform=True)


def test_features_limit_bit_depth_and_chroma() -> None:
    deep = clip(bit_depth=16, chroma="444")
    for features, format_ in (
        (("psnr",), "yuv444p16le"),
        (("psnr_hvs",), "yuv444p12le"),
        (("cambi", "psnr_hvs"), "yuv444p10le"),
        (("ciede",), "yuv420p16le"),
    ):
        plan = make_plan(deep, deep, ScoreOptions(features=features))  # type: ignore[arg-type]
        assert plan.frames.pixel_format == format_
        assert (plan.notes == ()) == (features == ("psnr",))


@pytest.mark.parametrize(
    ("reference", "distorted", "note"),
    [
        ((), (), ""),
        (((5, 1.0),), ((5, 1.0),), ""),  # the same gap in both
        ((), ((10, 1.0),), "from frame 10 on, the timestamps of the clips differ by 1 frame:"),
        (((40, 2.0),), ((10, 1.0),), "from frame 10 on"),
        (((10, 1.0),), ((12, 1.0),), "from frame 10 on"),
        ((), ((10, 0.6),), ""),
        ((), None, ""),
    ],
)
def test_timestamps_that_drift_apart_are_noted(reference: Any, distorted: Any, note: str) -> None:
    notes = " ".join(make_plan(clip(gaps=reference), clip(gaps=distorted), ScoreOptions()).notes)
    assert note in notes
    assert bool(note) == bool(notes)


def test_limits_on_pixels_and_frames() -> None:
    assert "more than the limit of 35,389,440 pixels" in refusal(CLIP, CLIP, ScoreOptions(size=(16384, 9216)))
    with pytest.raises(BadInput, match="the 100 frames to score exceed the limit of 99"):
        make_plan(CLIP, CLIP, ScoreOptions(), ClipLimits(frames=99))


@pytest.mark.parametrize(
    ("form", "size"),
    [
        ("yuv420p", 5 * 3 + 2 * 3 * 2),
        ("yuv420p10le", 2 * (5 * 3 + 2 * 3 * 2)),
        ("yuv422p", 5 * 3 + 2 * 3 * 3),
        ("yuv444p16le", 2 * 3 * 15),
        ("gray", 15),
        ("gray12le", 30),
    ],
)
def test_the_size_of_a_raw_frame(form: PixelFormat, size: int) -> None:
    assert raw_frame_bytes(RawFormat(width=5, height=3, pixelFormat=form)) == size
