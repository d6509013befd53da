"""What encoders get of a source: size, bit depth, colours and rate."""

from fractions import Fraction
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scoring.test_plan import clip
from vmafx.scoring.clip import Clip, HdrMetadata, LightLevel
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.access import OpenedMedia
from vmafx.scoring.probed import ProbedClip
from vmafx.scoring.request import Source
from vmafx.tune.frames import MAX_RATE, MIN_RATE, SourceFrames, frame_rate, source_frames, source_notes

DEPTHS = (8, 10)


def frames_of(one: Clip, depths: tuple[int, ...] = DEPTHS, size: tuple[int, int] | None = None) -> SourceFrames:
    source = ProbedClip(Source("a.mkv"), OpenedMedia(-1, 1, "a.mkv"), cast("object", None), one, "ab")  # type: ignore[arg-type]
    return source_frames(source, depths, size)


@given(st.integers(2, 8192), st.integers(2, 4320))
def test_the_size_is_even_and_the_next_below(width: int, height: int) -> None:
    conversion = frames_of(clip(width=width, height=height)).conversion
    assert conversion.width % 2 == conversion.height % 2 == 0
    assert (width - conversion.width, height - conversion.height) == (width % 2, height % 2)


def test_a_picture_of_one_line_is_too_small() -> None:
    with pytest.raises(BadInput, match=r"its frames of 64x1 are too small to encode"):
        frames_of(clip(width=64, height=1))


@pytest.mark.parametrize(
    ("depth", "depths", "pixel_format"),
    [
        (1, DEPTHS, "yuv420p"), (8, DEPTHS, "yuv420p"), (9, DEPTHS, "yuv420p10le"), (10, DEPTHS, "yuv420p10le"),
        (12, DEPTHS, "yuv420p10le"), (16, DEPTHS, "yuv420p10le"), (10, (8,), "yuv420p"), (8, (10,), "yuv420p10le"),
    ],
)  # fmt: skip
def test_no_bit_is_lost_that_the_encoder_can_keep(depth: int, depths: tuple[int, ...], pixel_format: str) -> None:
    assert frames_of(clip(bit_depth=depth), depths).format.pixel_format == pixel_format


def test_frames_are_tagged_with_the_colours_of_the_source() -> None:
    assert frames_of(clip()).colours == {"color_range": "1"}
    tagged = frames_of(clip(full_range=True, matrix=1, transfer=1))
    assert tagged.colours == {"color_range": "2", "colorspace": "1", "color_trc": "1"}
    assert (tagged.conversion.full_range, tagged.conversion.from_full_range) == (True, True)
    hdr = frames_of(clip(matrix=9, transfer=16, bit_depth=10))
    assert hdr.colours == {"color_range": "1", "colorspace": "9", "color_trc": "16"}
    wide = frames_of(clip(primaries=9))
    assert wide.colours == {"color_range": "1", "color_primaries": "9"}
    assert frames_of(clip(primaries=0, transfer=0)).colours == {"color_range": "1"}, "reserved values are not passed on"
    unknown = frames_of(clip(matrix=14))  # a matrix that vmafx does not know is not passed on
    assert "colorspace" not in unknown.colours


@pytest.mark.parametrize(("height", "matrix", "number"), [(576, "bt601", "6"), (720, "bt709", "1")])
def test_rgb_becomes_limited_range_with_the_usual_matrix(height: int, matrix: str, number: str) -> None:
    frames = frames_of(clip(chroma="rgb", pixel_format="gbrp", height=height, full_range=True, matrix=0, transfer=13))
    assert frames.colours == {"color_range": "1", "colorspace": number}
    assert (frames.conversion.matrix, frames.conversion.from_full_range, frames.conversion.full_range) == (
        matrix, True, False,
    )  # fmt: skip


def test_the_rate_is_that_of_the_container_or_the_average() -> None:
    assert frame_rate(clip(frame_rate="24000/1001")) == Fraction(24000, 1001)
    variable = clip(constant_rate=False, frame_rate="1000", packets=100, duration=4.5)
    assert float(frame_rate(variable)) == pytest.approx(22.222, abs=1e-3)
    assert frame_rate(clip(frame_rate=None, packets=100, duration=4.0)) == 25
    assert frame_rate(clip(frame_rate=None, packets=0, duration=0.0)) == 25
    assert frame_rate(clip(frame_rate="50", constant_rate=False, packets=1, duration=0.04)) == 50


@given(st.integers(2, 2_000_000), st.floats(1e-9, 1e12))
def test_the_average_rate_is_one_that_containers_can_have(packets: int, duration: float) -> None:
    """Two pictures an hour apart have no rate of 0, and a thousand at once none of a billion."""
    rate = frame_rate(clip(constant_rate=False, frame_rate=None, packets=packets, duration=duration))
    assert MIN_RATE <= rate <= MAX_RATE
    assert rate.denominator <= 1001


def test_anamorphic_pixels_stay_so_and_odd_sizes_make_none() -> None:
    assert frames_of(clip(width=720, height=576, pixel_aspect=64 / 45)).pixel_aspect == Fraction(64, 45)
    assert frames_of(clip(width=1919, height=1079)).pixel_aspect == 1
    assert frames_of(clip(), size=(960, 540)).pixel_aspect == 1


def test_notes_say_what_encoding_changes() -> None:
    assert source_notes(clip()) == []
    assert source_notes(clip(chroma="gray", pixel_format="gray")) == []
    assert source_notes(clip(chroma="444")) == ["the source has 4:4:4, and is encoded in 4:2:0"]
    assert source_notes(clip(chroma="rgb")) == ["the source has RGB, and is encoded in 4:2:0"]
    assert source_notes(clip(bit_depth=12)) == ["the source has 12 bits, and is encoded with 10 at most"]
    assert source_notes(clip(interlaced=True)) == ["the source is interlaced; it is encoded as if it were progressive"]
    assert source_notes(clip(width=101, height=99)) == ["the source has 101x99; encodes have an even width and height"]
    pq = clip(transfer=16, hdr=HdrMetadata(light=LightLevel(1000, 400)))
    assert source_notes(pq, ["libvpx-vp9", "libaom-av1"]) == [
        "the source is HDR (PQ); the models were trained on SDR, so its scores compare encodes only",
        "the mastering display and light levels of the source are not kept by libaom-av1, libvpx-vp9",
    ]
    assert len(source_notes(pq)) == 1
    assert source_notes(clip(), ["libvpx-vp9"]) == []
    variable = clip(constant_rate=False, packets=100, duration=4.5)
    assert source_notes(variable) == ["the source has no constant frame rate; it is encoded at 22.222 fps"]
