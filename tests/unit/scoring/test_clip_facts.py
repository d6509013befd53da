"""Size and bitrate of a clip, and how people see them."""

from typing import cast

import msgspec
import pytest

from tests.support.reports import make_report
from vmafx.scoring.clip import Clip
from vmafx.scoring.comparison import renamed
from vmafx.scoring.decoder.clip_decoder import ClipDecoder
from vmafx.scoring.media.access import OpenedMedia
from vmafx.scoring.probed import ProbedClip
from vmafx.scoring.request import Source

CLIP = Clip(
    container="mov,mp4", codec="h264", width=64, height=64, pixel_format="yuv420p", bit_depth=8, chroma="420",
    packets=50, frame_rate="25", duration=2.0,
)  # fmt: skip


def probed(clip: Clip, size: int = 250_000, name: str = "clip") -> ProbedClip:
    decoder = cast("ClipDecoder", None)  # is not used
    return ProbedClip(Source(name), OpenedMedia(-1, size, name), decoder, clip, "ab")


def test_the_bitrate_is_that_of_the_whole_file() -> None:
    assert probed(CLIP).bitrate == 1_000_000
    few_frames = msgspec.structs.replace(CLIP, frame_rate=None, duration=0.04)
    assert probed(few_frames, size=1000).bitrate == 200_000


@pytest.mark.parametrize(
    ("container", "frame_rate", "duration", "known"),
    [
        ("mov,mp4", "25", 0.0, False),
        ("rawvideo", None, 2.0, False),  # by a frame rate that was only assumed
        ("rawvideo", "25", 2.0, True),
        ("h264", None, 2.0, False),
    ],
)
def test_without_a_duration_the_bitrate_is_unknown(
    container: str, frame_rate: str | None, duration: float, known: bool
) -> None:
    clip = msgspec.structs.replace(CLIP, container=container, frame_rate=frame_rate, duration=duration)
    assert (probed(clip).bitrate is not None) == known


def test_a_cached_result_gets_the_sizes_of_the_clips() -> None:
    old = make_report(size=0, bitrate=None)
    result = renamed(old, probed(CLIP, 500_000, "a"), probed(CLIP, 250_000, "b"), "model").result
    assert [(clip.uri, clip.bytes, clip.bitrate) for clip in (result.reference, result.distorted)] == [
        ("a", 500_000, 2_000_000),
        ("b", 250_000, 1_000_000),
    ]


@pytest.mark.parametrize(
    ("size", "bitrate", "shown"),
    [
        (0, None, ("", "")),
        (999, 7.0, ("999 B", "0.007 kbit/s")),
        (1234, 9_949.0, ("1.23 kB", "9.9 kbit/s")),
        (999_499, 9_950.0, ("999 kB", "10 kbit/s")),
        (999_500, 1_234_567.0, ("1 MB", "1,235 kbit/s")),
        (12_345_678_901, 12_345_678.0, ("12.3 GB", "12,346 kbit/s")),
    ],
)
def test_size_and_bitrate_as_people_see_them(size: int, bitrate: float | None, shown: tuple[str, str]) -> None:
    clip = make_report(size=size, bitrate=bitrate).result.distorted
    assert (clip.file_size, clip.kbits) == shown
