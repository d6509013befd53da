"""Sample reports and pictures, and parsers for the pages and charts that are made from them."""

import math
import re
from array import array
from collections.abc import Mapping
from fractions import Fraction
from html.parser import HTMLParser
from io import BytesIO
from typing import Any
from xml.etree import ElementTree as ET

import av

from vmafx.reports.charts import RatePoint
from vmafx.scoring.pooling import pool, summary
from vmafx.scoring.result import ClipFacts, EngineFacts, Report, ScoreResult

HOSTILE = """"'><script>alert(1)</script><img src=x onerror=alert(1)>`--></style></title></svg>&lt;\x00\u202e\ud800"""
SCORES = [95.0, 91.5, 62.25, 97.125, 94.0]
ALL_FEATURES = (
    *("psnr_y", "psnr_cb", "psnr_cr", "psnr_hvs", "psnr_hvs_y", "psnr_hvs_cb", "psnr_hvs_cr"),
    *("ssim", "ms_ssim", "ciede", "cambi", "integer_adm2", "integer_motion", "integer_motion2"),
    *(f"integer_{name}_scale{scale}" for name in ("adm", "vif") for scale in range(4)),
)

ENCODES = [
    RatePoint("h264-low", "H.264", 84.0, 41.5), RatePoint("h264-mid", "H.264", 176.0, 78.6),
    RatePoint("h264-high", "H.264", 780.0, 94.5), RatePoint("hevc", "HEVC", 160.0, 82.9),
    RatePoint("vp9", "VP9", 430.0, 90.2), RatePoint("<b>av1", "AV1", 214.0, 86.8),
]  # fmt: skip


def make_report(
    vmaf: list[float] = SCORES,
    *,
    distorted: str = "file:///clips/a.mp4",
    reference: str = "file:///clips/master.mov",
    model: str = "vmaf_v0.6.1",
    notes: tuple[str, ...] = (),
    key: str = "key",
    numbers: list[int] | None = None,
    rate: float | None = 25.0,
    extras: Mapping[str, list[float]] = {},
    codec: str = "h264",
    size: int = 1_250_000,
    bitrate: float | None = 2_500_000,
) -> Report:
    def clip(uri: str) -> ClipFacts:
        frames = len(vmaf)
        return ClipFacts(uri, "ab" * 32, "mov,mp4", codec, 1920, 1080, "yuv420p", frames, rate, size, bitrate)

    values = {"vmaf": vmaf, **extras}
    result = ScoreResult(
        score=pool(vmaf, "mean"),
        pooling="mean",
        model=model,
        frames=len(vmaf),
        fps=120.5,
        features={
            column: summary([*filter(math.isfinite, per_frame)] or [0.0]) for column, per_frame in values.items()
        },
        reference=clip(reference),
        distorted=clip(distorted),
        width=1920,
        height=1080,
        pixelFormat="yuv420p",
        subsample=1,
        engine=EngineFacts("7.1", "3.0.0", "cuda", "PyAV 18.1.0, libavcodec 62.28.102"),
        notes=notes,
        key=key,
    )
    columns = {column: array("d", per_frame) for column, per_frame in values.items()}
    return Report(result, array("q", numbers or range(len(vmaf))), columns)


class Page(HTMLParser):
    """A parsed page: elements with their attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in {"meta", "link", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(tag, tuple(attributes)) for tag, attributes in self.elements]

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def charts(text: str) -> list[ET.Element]:
    """All SVG charts on a page; a chart is drawn once per width."""
    found = re.findall(r"<svg[^>]* data-box=.*?</svg>", text, re.DOTALL)
    return [ET.fromstring(svg) for svg in found]  # noqa: S314 - written by this test


def points(path: str) -> list[tuple[float, float]]:
    """The points of an SVG path, absolute."""
    found: list[tuple[float, float]] = []
    for letter, rest in re.findall(r"([A-Za-z])([^A-Za-z]*)", path):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", rest)]
        for x, y in zip(numbers[::2], numbers[1::2], strict=True):
            from_x, from_y = found[-1] if letter.islower() else (0.0, 0.0)
            found.append((from_x + x, from_y + y))
    return found


def plot_area(chart: ET.Element) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of the plot area, from data-box."""
    _, _, wide, high = map(float, chart.attrib["viewBox"].split())
    left, top, across, down = (float(part) / 100 for part in chart.attrib["data-box"].split())
    return left * wide, top * high, (left + across) * wide, (top + down) * high


def pixels(png: bytes) -> Any:
    """The picture as an array of rows of RGB."""
    with av.open(BytesIO(png), "r") as container:
        (frame,) = container.decode(video=0)
        return frame.to_ndarray(format="rgb24")


def jpeg(level: int, width: int = 320, height: int = 180) -> bytes:
    """A picture that is grey all over."""
    frame = av.VideoFrame(width, height, "yuvj420p")
    for plane, value in zip(frame.planes, (level, 128, 128), strict=True):
        plane.update(bytes([value]) * plane.buffer_size)
    context = av.CodecContext.create("mjpeg", "w")
    context.width, context.height, context.pix_fmt, context.time_base = width, height, "yuvj420p", Fraction(1, 25)
    frame.pts = 0
    return b"".join(bytes(packet) for packet in (*context.encode(frame), *context.encode(None)))
