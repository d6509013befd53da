"""The scene as a PNG, drawn here: every pixel takes as much of a colour as the shape covers of it."""

import math
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise

from vmafx.demo.scene import HEIGHT, WIDTH, Dot, Label, Line, Shape
from vmafx.demo.strokes import CAPITAL, strokes, width

SCALE = 2  # pixels for each unit of the scene
PAPER = (255, 255, 255)
INKS = {
    "text": (22, 26, 33), "muted": (86, 96, 114), "hair": (223, 227, 233),
    "c0": (27, 92, 200), "c1": (192, 77, 5), "c2": (10, 122, 90),
    "c3": (173, 32, 121), "c4": (106, 61, 200), "c5": (119, 98, 0),
}  # fmt: skip
LETTER_HEIGHT = 0.7  # of a capital, in parts of the font's size
Colour = tuple[int, int, int]
Point = tuple[float, float]


def png(shapes: Sequence[Shape]) -> bytes:
    canvas = Canvas(WIDTH * SCALE, HEIGHT * SCALE)
    for shape in shapes:
        match shape:
            case Line():
                canvas.line([_scaled(point) for point in shape.points], shape.width * SCALE, INKS[shape.ink])
            case Dot():
                canvas.dot(_scaled(shape.at), (shape.radius + 1.5) * SCALE, PAPER)
                canvas.dot(_scaled(shape.at), shape.radius * SCALE, INKS[shape.ink])
            case Label():
                _write(canvas, shape)
    return canvas.png()


def _scaled(point: Point) -> Point:
    return point[0] * SCALE, point[1] * SCALE


def _write(canvas: "Canvas", label: Label) -> None:
    unit = label.size * LETTER_HEIGHT / CAPITAL * SCALE
    across, middle = _scaled(label.at)
    left = across - width(label.text) * unit * {"start": 0.0, "middle": 0.5, "end": 1.0}[label.anchor]
    pen = label.size * SCALE * (0.12 if label.bold else 0.085)
    written = [
        [(left + x * unit, middle + (y - CAPITAL / 2) * unit) for x, y in stroke] for stroke in strokes(label.text)
    ]
    for thickness, colour in ((pen + 3 * SCALE, PAPER), (pen, INKS[label.ink])):  # what is behind it gives way
        for stroke in written:
            canvas.line(stroke, thickness, colour)


class Canvas:
    """Pixels of red, green and blue, and what is drawn on them."""

    def __init__(self, wide: int, high: int) -> None:
        self._wide, self._high = wide, high
        self._pixels = bytearray(bytes(PAPER) * (wide * high))

    def dot(self, at: Point, radius: float, colour: Colour) -> None:
        self.line([at, at], radius * 2, colour)

    def line(self, points: Sequence[Point], thickness: float, colour: Colour) -> None:
        """With round ends and joints; where two parts of it meet, it is not twice as dark."""
        covered: dict[int, float] = {}
        for start, end in pairwise(points):
            self._cover(covered, start, end, thickness / 2)
        for place, part in covered.items():
            at = place * 3
            for channel, ink in enumerate(colour, at):
                self._pixels[channel] += round((ink - self._pixels[channel]) * part)

    def _cover(self, covered: dict[int, float], start: Point, end: Point, radius: float) -> None:
        """How much of each pixel is within `radius` of the piece from `start` to `end`."""
        (x0, y0), (x1, y1) = start, end
        dx, dy, reach = x1 - x0, y1 - y0, radius + 1
        square = dx * dx + dy * dy
        for row in range(max(int(min(y0, y1) - reach), 0), min(int(max(y0, y1) + reach) + 1, self._high)):
            low, high = min(x0, x1) - reach, max(x0, x1) + reach
            if abs(dy) > 1:  # no pixel of the row that is further from the line counts
                middle, aside = x0 + dx * (row - y0) / dy, reach * math.sqrt(square) / abs(dy) + 1
                low, high = max(low, middle - aside), min(high, middle + aside)
            for column in range(max(int(low), 0), min(int(high) + 1, self._wide)):
                x, y = column + 0.5 - x0, row + 0.5 - y0
                along = min(max((x * dx + y * dy) / square, 0.0), 1.0) if square else 0.0
                part = min(radius + 0.5 - math.hypot(x - along * dx, y - along * dy), 1.0)
                place = row * self._wide + column
                if part > covered.get(place, 0.0):
                    covered[place] = part

    def png(self) -> bytes:
        stride = self._wide * 3
        rows = b"".join(b"\0" + self._pixels[at : at + stride] for at in range(0, len(self._pixels), stride))
        head = struct.pack(">IIBBBBB", self._wide, self._high, 8, 2, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            (_chunk(b"IHDR", head), _chunk(b"IDAT", zlib.compress(rows, 6)), _chunk(b"IEND", b""))
        )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
