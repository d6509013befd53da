"""Which filter graph two clips get, and which get none; pure, so every case is cheap."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.api.job import PixelFormat, RawFormat
from vmafx.scoring.clip import Clip, raw_frame_bytes
from vmafx.scoring.errors import BadInput
from vmafx.scoring.plan import Plan, check_counts, plan
from vmafx.scoring.request import Options

CLIP = Clip(
    container="matroska,webm",
    codec="h264",
    stream=0,
    width=1920,
    height=1080,
    pixel_format="yuv420p",
    depth=8,
    chroma="420",
    packets=100,
    rate="25",
    seconds=4.0,
    longest=0.04,
)


def clip(**changes: object) -> Clip:
    return msgspec.structs.replace(CLIP, **changes)


def refused(reference: Clip, distorted: Clip, options: Options | None = None) -> str:
    with pytest.raises(BadInput) as error:
        plan(reference, distorted, options or Options())
    return str(error.value)


def test_equal_clips_are_taken_as_they_are() -> None:
    made = plan(CLIP, CLIP, Options())
    chain = (
        "settb=1/1000,setpts=N,scale=w=1920:h=1080:flags=bicubic:in_range=limited:out_range=limited,"
        "format=yuv420p,setsar=1"
    )
    assert made == Plan(1920, 1080, "yuv420p", chain, chain, 100, ())


def test_the_whole_graph() -> None:
    options = Options(threads=3, subsample=2, features=("psnr", "ssim"))
    graph = plan(CLIP, CLIP, options).graph(CLIP, clip(stream=2), options, "version=vmaf_v0.6.1", "/dev/fd/9")
    assert graph.startswith("[0:2]settb")
    assert ";[1:0]settb" in graph
    assert graph.endswith(
        "[left][right]libvmaf=log_fmt=json:log_path=/dev/fd/9:n_threads=3:n_subsample=2:shortest=1"
        ":model=version=vmaf_v0.6.1:feature=name=psnr|name=float_ssim[scored]"
    )


@pytest.mark.parametrize(
    ("reference", "distorted", "format_"),
    [
        ({}, {"depth": 10}, "yuv420p10le"),
        ({"depth": 12}, {}, "yuv420p12le"),
        ({"depth": 14}, {}, "yuv420p16le"),
        ({"chroma": "422"}, {}, "yuv422p"),
        ({"chroma": "rgb"}, {"chroma": "422"}, "yuv422p"),
        ({"chroma": "rgb"}, {"chroma": "rgb"}, "yuv444p"),
        ({"chroma": "gray", "depth": 16}, {"chroma": "gray"}, "yuv420p16le"),
    ],
)
def test_the_common_pixel_format(reference: dict[str, object], distorted: dict[str, object], format_: str) -> None:
    assert plan(clip(**reference), clip(**distorted), Options()).pixel_format == format_


def test_values_are_compared_in_the_references_range() -> None:
    made = plan(clip(full_range=False), clip(full_range=True), Options())
    assert "in_range=full:out_range=limited" in made.distorted
    assert "in_range=limited:out_range=limited" in made.reference
    assert "full-range" in made.notes[0]
    raw = clip(container="rawvideo", rate=None)
    made = plan(raw, clip(full_range=True), Options())
    assert "in_range=full:out_range=full" in made.reference
    assert made.notes == ()
    made = plan(clip(chroma="rgb"), clip(matrix=9), Options())
    assert "in_range=full:out_range=limited:out_color_matrix=bt2020" in made.reference


def test_rates() -> None:
    assert "it has 30 frames a second, and the reference has 25" in refused(CLIP, clip(rate="30"))
    assert plan(clip(rate="24"), clip(rate="24000/1001"), Options())  # within what containers round
    assert plan(CLIP, clip(rate="30", even=False), Options())  # an average of uneven ones says little
    assert plan(CLIP, clip(rate=None), Options())
    made = plan(CLIP, clip(rate="50", packets=200), Options(conform=True))
    assert made.distorted.startswith("setpts=PTS-STARTPTS,fps=fps=25:round=near,settb")
    assert made.expected == 100
    assert "does not say" in refused(CLIP, clip(rate=None), Options(conform=True))
    assert "it has 150 frames, and the reference has 100" in refused(CLIP, clip(seconds=6.0), Options(conform=True))
    assert plan(CLIP, clip(seconds=6.0), Options(conform=True, shortest=True)).expected == 100
    gap = clip(seconds=3600.0, longest=3596.0)
    assert "one of its frames stands for 3596 s" in refused(CLIP, gap, Options(conform=True, shortest=True))


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.booleans())
def test_counts(reference: int, distorted: int, shortest: bool) -> None:
    """Before the score only a gross difference is refused, after it any."""
    options = Options(shortest=shortest)
    gross = abs(reference - distorted) > max(2, 0.01 * max(reference, distorted))
    try:
        assert plan(clip(packets=reference), clip(packets=distorted), options).expected == min(reference, distorted)
        assert shortest or not gross
    except BadInput:
        assert gross
        assert not shortest
    try:
        check_counts(reference, distorted, options)
        assert shortest or reference == distorted
    except BadInput:
        assert not shortest


def test_packets_that_are_not_shown_do_not_count() -> None:
    assert plan(CLIP, clip(codec="vp8", packets=140), Options()).expected == 100


def test_what_the_container_calls_broken() -> None:
    assert refused(clip(broken=1), CLIP).startswith("reference: it is damaged or cut off (in one place")
    assert "in 3 places" in refused(CLIP, clip(broken=3))
    assert plan(CLIP, clip(broken=3), Options(damaged=True))


def test_notes() -> None:
    def notes(reference: Clip, distorted: Clip, **options: object) -> str:
        return " ".join(plan(reference, distorted, Options(**options)).notes)  # type: ignore[arg-type]

    large = clip(width=3840, height=2160)
    assert "vmaf_v0.6.1 is made for 1080p" in notes(large, large)
    assert "vmaf_4k_v0.6.1 is made for 2160p" in notes(CLIP, CLIP, model="vmaf_4k_v0.6.1")
    assert notes(large, large, model="vmaf_4k_v0.6.1") == ""
    assert "scaled to the reference's" in notes(CLIP, clip(width=1280, height=720))
    assert "scaled to 1280x720" in notes(CLIP, CLIP, size=(1280, 720))
    assert "HDR (PQ)" in notes(clip(transfer=16), CLIP)
    assert "interlaced" in notes(CLIP, clip(interlaced=True))


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
