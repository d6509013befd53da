"""Parts of the decoder that need no clip: filters, changes of format, raw planes."""

import numpy as np
import pytest
from av.video.frame import VideoFrame

from vmafx.scoring.decoder.convert import filters
from vmafx.scoring.decoder.emit import _Changes, raw_planes
from vmafx.scoring.decoder.messages import Conversion

SAME = Conversion(width=64, height=48, pixel_format="yuv420p")
ONE = 1 << 16


def matrix(a: int, b: int, c: int, d: int) -> tuple[int, ...]:
    return a, b, 0, c, d, 0, 0, 0, 1 << 30


@pytest.mark.parametrize(
    ("turn", "names"),
    [
        ((), []),
        (matrix(ONE, 0, 0, ONE), []),
        (matrix(-ONE, 0, 0, ONE), ["hflip"]),
        (matrix(ONE, 0, 0, -ONE), ["vflip", "copy"]),
        (matrix(-ONE, 0, 0, -ONE), ["hflip", "vflip", "copy"]),
        (matrix(0, ONE, -ONE, 0), ["dir=clock"]),
        (matrix(0, -ONE, ONE, 0), ["dir=cclock"]),
        (matrix(0, ONE, ONE, 0), ["dir=cclock_flip"]),
        (matrix(0, -ONE, -ONE, 0), ["dir=clock_flip"]),
        (matrix(0, 0, 0, 0), []),
    ],
)
def test_display_matrices_become_filters(turn: tuple[int, ...], names: list[str]) -> None:
    *turning, scale, form = filters(SAME, turn)
    assert [arguments or name for name, arguments in turning] == names
    assert scale == ("scale", "w=64:h=48:flags=bicubic:in_range=limited:out_range=limited")
    assert form == ("format", "pix_fmts=yuv420p")


def test_the_frame_rate_is_converted_first() -> None:
    rate = Conversion(width=64, height=48, pixel_format="yuv420p", rate="25", own_rate="30000/1001", matrix="bt709")
    names = [name for name, _ in filters(rate, matrix(-ONE, 0, 0, ONE))]
    assert names == ["settb", "setpts", "fps", "hflip", "scale", "format"]
    assert filters(rate, ())[0] == ("settb", "1001/30000")
    assert filters(rate, ())[-2][1].endswith(":out_color_matrix=bt709")


@pytest.mark.parametrize("name", ["yuv420p", "yuv422p", "yuv444p", "yuv420p10le", "yuv444p16le", "gray"])
@pytest.mark.parametrize("size", [(64, 48), (101, 67), (1, 1), (33, 2)])
def test_raw_planes_have_no_padding(size: tuple[int, int], name: str) -> None:
    frame = VideoFrame(*size, name)
    expected = b""
    for number, (plane, component) in enumerate(zip(frame.planes, frame.format.components, strict=True)):
        depth = np.dtype("u1" if component.bits == 8 else "<u2")
        rows = np.frombuffer(memoryview(plane), depth).reshape(-1, plane.line_size // depth.itemsize)
        content = np.arange(component.height * component.width).reshape(component.height, -1) + number
        padded = np.full_like(rows, 77)
        padded[: component.height, : component.width] = content % 200
        plane.update(padded.tobytes())
        expected += padded[: component.height, : component.width].tobytes()
    assert b"".join(raw_planes(frame)) == expected


def changes(*frames: tuple[int, int, str, int]) -> list[tuple[bool, str]]:
    found = _Changes()
    for width, height, name, colour_range in frames:
        frame = VideoFrame(width, height, name)
        frame.color_range = colour_range
        found.add(frame)
    return [(change.size_only, change.description) for change in found.found()]


def test_the_first_change_of_each_kind_is_found() -> None:
    first = (64, 48, "yuv420p", 1)
    assert changes(first, first) == []
    assert changes(first, (32, 24, "yuv420p", 1), (16, 12, "yuv420p", 1), first) == [(True, "between 64x48 and 32x24")]
    assert changes(first, (48, 48, "yuv420p", 1)) == [(False, "between 64x48 and 48x48")]
    assert changes(first, (32, 24, "yuv420p", 1), (64, 48, "yuv420p", 2)) == [
        (True, "between 64x48 and 32x24"),
        (
            False,
            "between 64x48 (yuv420p, limited range, matrix 2) and 64x48 (yuv420p, full range, matrix 2)",
        ),
    ]
