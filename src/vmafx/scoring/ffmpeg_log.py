"""Parses ffmpeg's log: decoding errors, format changes within a clip, and the last lines."""

import asyncio
import re
from collections import deque

import msgspec

from vmafx.scoring.clip import ASPECT_RATIO_TOLERANCE

MAX_LINES, MAX_LINE_LENGTH = 40, 500
CHUNK_SIZE, MAX_PENDING = 1 << 16, 1 << 17  # characters
# Messages of decoders and demuxers, not of filters, encoders and muxers.
DAMAGE_PATTERN = re.compile(
    r"\[(?!Parsed_|fc#|out#|vost#|graph |AVFilterGraph|libvmaf)[^\]]+ @ 0x[0-9a-f]+\] "
    r"(?:\[[^\]]+ @ 0x[0-9a-f]+\] )*(?:\[(?:error|fatal)\]|\[warning\] (?:corrupt |Packet corrupt))"
)
CHANGE_PATTERN = re.compile(
    r"\[graph -?\d+ input from stream (\d+):\d+ @ 0x[0-9a-f]+\] \[warning\] filter context - "
    r"w: (\d+) h: (\d+) (fmt: .*?), incoming frame - w: (\d+) h: (\d+) (fmt: .*?) pts_time"
)


class FormatChange(msgspec.Struct, frozen=True):
    """A frame whose size or format differs from other frames of its clip."""

    input: int
    size_only: bool  # same aspect ratio and pixel format
    description: str


class FfmpegLog(msgspec.Struct):
    errors: int = 0  # of decoders and demuxers
    changes: list[FormatChange] = []
    lines: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=MAX_LINES))

    def add_line(self, line: str) -> None:
        self.lines.append(line.strip()[:MAX_LINE_LENGTH])
        if DAMAGE_PATTERN.match(line):
            self.errors += 1
        elif match := CHANGE_PATTERN.match(line):
            self.changes.append(_format_change(match))

    def last_line(self) -> str:
        """The last line, without control characters: it can contain text from the clip."""
        line = next((line for line in reversed(self.lines) if line), "no error message")
        return "".join(character if character.isprintable() else "?" for character in line)

    def changes_of(self, number: int) -> list[FormatChange]:
        """The format changes of one input."""
        return [change for change in self.changes if change.input == number]


def _format_change(match: "re.Match[str]") -> FormatChange:
    """The description names no order: ffmpeg configures the filters with the last frame before all inputs are ready."""
    width, height, new_width, new_height = (int(match[group]) for group in (2, 3, 5, 6))
    same_aspect = abs(width * new_height - height * new_width) <= ASPECT_RATIO_TOLERANCE * width * new_height
    same_format = match[4] == match[7]
    formats = sorted([(width, height, match[4]), (new_width, new_height, match[7])], reverse=True)
    one, other = (f"{w}x{h}" + ("" if same_format else f" ({details})") for w, h, details in formats)
    return FormatChange(int(match[1]), same_aspect and same_format, f"between {one} and {other}")


async def read_log(stderr: asyncio.StreamReader | None, log: FfmpegLog) -> None:
    """Adds all lines of ffmpeg's standard error to `log`."""
    pending = ""
    while stderr and (chunk := await stderr.read(CHUNK_SIZE)):
        *lines, pending = (pending + chunk.decode(errors="replace"))[-MAX_PENDING:].split("\n")
        for line in lines:
            log.add_line(line)
    log.add_line(pending)
