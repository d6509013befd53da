"""Reads ffmpeg's log: decoding errors, format changes on the way, and its last lines."""

import asyncio
import re
from collections import deque

import msgspec

MAX_LINES, MAX_LINE = 40, 500
# Decoders and demuxers, by name and address; not the parts that come after them.
DAMAGE_PATTERNS = re.compile(
    r"\[(?!Parsed_|fc#|out#|vost#|graph |AVFilterGraph|libvmaf)[^\]]+ @ 0x[0-9a-f]+\] "
    r"(?:\[[^\]]+ @ 0x[0-9a-f]+\] )*(?:\[(?:error|fatal)\]|\[warning\] (?:corrupt |Packet corrupt))"
)
CHANGE_PATTERN = re.compile(
    r"\[graph -?\d+ input from stream (\d+):\d+ @ 0x[0-9a-f]+\] \[warning\] filter context - "
    r"w: (\d+) h: (\d+) (fmt: .*?), incoming frame - w: (\d+) h: (\d+) (fmt: .*?) pts_time"
)


class FormatChange(msgspec.Struct, frozen=True):
    """A frame that is not as others of its clip."""

    input: int
    size_only: bool  # the same shape and format, at another size
    what: str


class FfmpegLog(msgspec.Struct):
    damage: int = 0
    changes: list[FormatChange] = []
    words: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=MAX_LINES))

    def hear(self, line: str) -> None:
        self.words.append(line.strip()[:MAX_LINE])
        if DAMAGE_PATTERNS.match(line):
            self.damage += 1
        elif found := CHANGE_PATTERN.match(line):
            self.changes.append(_change(found))

    def last(self) -> str:
        """In printable characters: the terminal it is shown on is not the clip's to write to."""
        said = next((word for word in reversed(self.words) if word), "it said nothing")
        return "".join(one if one.isprintable() else "?" for one in said)

    def changed(self, number: int) -> list[FormatChange]:
        return [change for change in self.changes if change.input == number]


def _change(found: "re.Match[str]") -> FormatChange:
    """Which came first is not told: filters are set up for the last frame that came before all inputs were there."""
    width, height, new_width, new_height = (int(found[group]) for group in (2, 3, 5, 6))
    same_shape = abs(width * new_height - height * new_width) <= 0.02 * width * new_height
    same_format = found[4] == found[7]
    pictures = sorted([(width, height, found[4]), (new_width, new_height, found[7])], reverse=True)
    one, other = (f"{w}x{h}" + ("" if same_format else f" ({form})") for w, h, form in pictures)
    return FormatChange(int(found[1]), same_shape and same_format, f"between {one} and {other}")


async def read_log(stderr: asyncio.StreamReader | None, heard: FfmpegLog) -> None:
    rest = ""
    while stderr and (chunk := await stderr.read(1 << 16)):
        *lines, rest = (rest + chunk.decode(errors="replace"))[-(1 << 17) :].split("\n")
        for line in lines:
            heard.hear(line)
    heard.hear(rest)
