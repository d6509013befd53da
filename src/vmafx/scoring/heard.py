"""What ffmpeg says while it works: damage, changes on the way, and its last words.

Its words are only hints. A clip may have any text in it, and ffmpeg repeats that: whoever acts on a hint about the
reference makes sure by a look at the reference alone.
"""

import asyncio
import re
from collections import deque

import msgspec

WORDS_KEPT, LINE_MOST = 40, 500
# Decoders and demuxers, by name and address; not the parts that come after them.
DAMAGE = re.compile(
    r"\[(?!Parsed_|fc#|out#|vost#|graph |AVFilterGraph|libvmaf)[^\]]+ @ 0x[0-9a-f]+\] "
    r"(?:\[[^\]]+ @ 0x[0-9a-f]+\] )*(?:\[(?:error|fatal)\]|\[warning\] (?:corrupt |Packet corrupt))"
)
CHANGE = re.compile(
    r"\[graph -?\d+ input from stream (\d+):\d+ @ 0x[0-9a-f]+\] \[warning\] filter context - "
    r"w: (\d+) h: (\d+) (fmt: .*?), incoming frame - w: (\d+) h: (\d+) (fmt: .*?) pts_time"
)


class Change(msgspec.Struct, frozen=True):
    """A frame that is not as others of its clip."""

    input: int
    size_only: bool  # the same shape and format, at another size
    what: str


class Heard(msgspec.Struct):
    damage: int = 0
    changes: list[Change] = []
    words: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=WORDS_KEPT))

    def hear(self, line: str) -> None:
        self.words.append(line.strip()[:LINE_MOST])
        if DAMAGE.match(line):
            self.damage += 1
        elif found := CHANGE.match(line):
            self.changes.append(_change(found))

    def last(self) -> str:
        """In printable characters: the terminal it is shown on is not the clip's to write to."""
        said = next((word for word in reversed(self.words) if word), "it said nothing")
        return "".join(one if one.isprintable() else "?" for one in said)

    def changed(self, number: int) -> list[Change]:
        return [change for change in self.changes if change.input == number]


def _change(found: "re.Match[str]") -> Change:
    """Which came first is not told: filters are set up for the last frame that came before all inputs were there."""
    width, height, new_width, new_height = (int(found[group]) for group in (2, 3, 5, 6))
    same_shape = abs(width * new_height - height * new_width) <= 0.02 * width * new_height
    same_format = found[4] == found[7]
    pictures = sorted([(width, height, found[4]), (new_width, new_height, found[7])], reverse=True)
    one, other = (f"{w}x{h}" + ("" if same_format else f" ({form})") for w, h, form in pictures)
    return Change(int(found[1]), same_shape and same_format, f"between {one} and {other}")


async def listen(stderr: asyncio.StreamReader | None, heard: Heard) -> None:
    rest = ""
    while stderr and (chunk := await stderr.read(1 << 16)):
        *lines, rest = (rest + chunk.decode(errors="replace"))[-(1 << 17) :].split("\n")
        for line in lines:
            heard.hear(line)
    heard.hear(rest)
