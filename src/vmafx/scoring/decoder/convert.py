"""Converts decoded frames: frame rate, rotation, size, range and pixel format, with FFmpeg's filters."""

import struct
from collections.abc import Iterator
from fractions import Fraction

import av
import av.filter
from av.sidedata.sidedata import Type as SideDataType
from av.video.frame import VideoFrame

from vmafx.scoring.decoder.messages import Conversion

Filter = tuple[str, str]  # name and arguments
MAX_DURATION = 1 << 48  # ticks; the timestamps of a hostile clip can be 64 bits apart


class Converter:
    """Converts the frames of one clip. A frame that already has the format is passed on as it is."""

    def __init__(
        self, conversion: Conversion, time_base: Fraction | None, matrix: tuple[int, ...] | None = None
    ) -> None:
        """`matrix` is how to rotate the frames; without it, as the first one says."""
        self._conversion, self._time_base = conversion, time_base or Fraction(1, 1000)
        self._graph: av.filter.Graph | None = None
        self._same_range = conversion.full_range == conversion.from_full_range
        self._last_pts: int | None = None
        self._matrix = matrix

    def convert(self, frame: VideoFrame) -> Iterator[VideoFrame]:
        if self._matrix is None:
            self._matrix = display_matrix(frame)
        if self._conversion.rate is None and self._is_converted(frame, self._matrix):
            yield frame
            return
        if self._graph is None:
            grey = [] if self._conversion.from_full_range else _grey_to_yuv(frame)
            chain = [*grey, *filters(self._conversion, self._matrix)]
            self._graph = _graph(frame, self._time_base, chain)
        self._estimate_duration(frame)
        self._graph.vpush(frame)
        yield from self._pull(self._graph)

    def flush(self) -> Iterator[VideoFrame]:
        """The frames that the filters still hold."""
        if self._graph is not None:
            self._graph.vpush(None)
            yield from self._pull(self._graph)

    def _estimate_duration(self, frame: VideoFrame) -> None:
        """As ffmpeg does: that of the frame before. Without it, a change of the frame rate drops the last frame."""
        if not frame.duration and frame.pts is not None and self._last_pts is not None:
            frame.duration = min(max(frame.pts - self._last_pts, 0), MAX_DURATION)
        self._last_pts = frame.pts

    def _is_converted(self, frame: VideoFrame, matrix: tuple[int, ...]) -> bool:
        wanted = self._conversion
        return (
            self._same_range
            and (frame.width, frame.height, frame.format.name) == (wanted.width, wanted.height, wanted.pixel_format)
            and all(plane.line_size > 0 for plane in frame.planes)
            and not _rotation(matrix)
        )

    @staticmethod
    def _pull(graph: av.filter.Graph) -> Iterator[VideoFrame]:
        while True:
            try:
                yield graph.vpull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return


def filters(conversion: Conversion, matrix: tuple[int, ...]) -> list[Filter]:
    """The filters for frames with this display matrix."""
    scale = {
        "w": str(conversion.width),
        "h": str(conversion.height),
        "flags": "bicubic",
        "in_range": _range_name(conversion.from_full_range),
        "out_range": _range_name(conversion.full_range),
    } | ({"out_color_matrix": conversion.matrix} if conversion.matrix else {})
    return [
        *_rate_filters(conversion),
        *_rotation(matrix),
        ("scale", ":".join(f"{name}={value}" for name, value in scale.items())),
        ("format", f"pix_fmts={conversion.pixel_format}"),
    ]


def _grey_to_yuv(frame: VideoFrame) -> list[Filter]:
    """Adds chroma to a grey frame of limited range and leaves luma as it is: `scale` takes grey as full range."""
    if not frame.format.name.startswith(("gray", "ya")):
        return []
    depth = next((depth for depth in (8, 10, 12) if frame.format.components[0].bits <= depth), 16)
    name = "yuv420p" if depth == 8 else f"yuv420p{depth}le"
    return [("scale", "flags=bicubic:in_range=full:out_range=full"), ("format", f"pix_fmts={name}")]


def _rate_filters(conversion: Conversion) -> list[Filter]:
    """At a constant rate, timestamps are computed from frame numbers: the container has rounded its own."""
    if conversion.rate is None:
        return []
    fps = ("fps", f"fps={conversion.rate}:round=near")
    if conversion.own_rate is not None:
        return [("settb", str(1 / Fraction(conversion.own_rate))), ("setpts", "N"), fps]
    return [("setpts", "PTS-STARTPTS"), fps]


def display_matrix(frame: VideoFrame) -> tuple[int, ...]:
    """The matrix that rotates or mirrors the frame for display, in row order; empty if there is none.

    Ask only for the first frame of a clip: a frame whose side data was read refers to itself, and stays in memory until
    the garbage collector runs.
    """
    data = frame.side_data.get(SideDataType.DISPLAYMATRIX)  # type: ignore[call-overload]
    return struct.unpack("=9i", bytes(data)[:36]) if data is not None and len(bytes(data)) >= 36 else ()


def _rotation(matrix: tuple[int, ...]) -> list[Filter]:
    """Filters for rotations by multiples of 90 degrees and mirrored frames, which are all that cameras write.

    `copy` follows `vflip`, which only makes the rows run backwards in memory.
    """
    if not matrix:
        return []
    a, b, c, d = ((value > 0) - (value < 0) for value in (matrix[0], matrix[1], matrix[3], matrix[4]))
    if abs(matrix[0]) >= abs(matrix[1]):
        return [("hflip", "")] * (a < 0) + [("vflip", ""), ("copy", "")] * (d < 0)
    turn = ("clock" if c <= 0 else "cclock_flip") if b > 0 else ("cclock" if c >= 0 else "clock_flip")
    return [("transpose", f"dir={turn}")]


def _range_name(full: bool) -> str:
    return "full" if full else "limited"


def _graph(frame: VideoFrame, time_base: Fraction, chain: list[Filter]) -> av.filter.Graph:
    graph = av.filter.Graph()
    graph.threads = 1
    node = graph.add_buffer(
        width=frame.width, height=frame.height, format=frame.format, time_base=time_base, name="frames"
    )
    for name, arguments in (*chain, ("buffersink", "")):
        following = graph.add(name, arguments or None)
        node.link_to(following)
        node = following
    graph.configure()
    return graph
