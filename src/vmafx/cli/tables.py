"""What commands print: tables fitted to the terminal, and JSON or YAML for scripts."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import msgspec
import yaml
from rich.cells import cell_len, set_cell_size

from vmafx.text import printable

TEXT, NAME = 16, 16  # characters that still say something
CUT = "…"


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Heads, from left to right, and what gives way where there is too little room for all.

    First `texts` do, the widest first, down to a few words. Then `spare` columns are left out, one after the other:
    half a number is worse than none. Only then `names` are cut, and last of all the texts are left out.
    """

    heads: tuple[str, ...]
    names: tuple[str, ...] = ("NAME",)
    texts: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()

    def after(self, name: str) -> "Columns":
        """With a column of names before all others."""
        return msgspec.structs.replace(self, heads=(name, *self.heads), names=(name, *self.names))

    def fit(self, widths: Sequence[int], gap: int, room: int) -> list[int]:
        """The width of each column, of which `widths` would be enough; 0 is one that is left out."""
        whole = dict(zip(self.heads, widths, strict=True))
        for left_out, least in self._ways():
            kept = {head: min(width, room) for head, width in whole.items() if head not in left_out}
            found = self._squeezed(kept, least, room - gap * (len(kept) - 1))
            if found is not None:
                return [found.get(head, 0) for head in self.heads]
        return [room if head == self.names[-1] else 0 for head in self.heads]

    def _ways(self) -> Iterator[tuple[Collection[str], Mapping[str, int]]]:
        """What to leave out, and how narrow the rest may become: the best first."""
        texts, names = dict.fromkeys(self.texts, TEXT), dict.fromkeys(self.names, NAME)
        for count in range(len(self.spare) + 1):
            yield self.spare[:count], texts
        yield self.spare, texts | names
        gone = {*self.spare, *self.texts}
        yield set(gone), names
        for head in reversed([head for head in self.heads if head not in gone | names.keys()]):
            gone.add(head)
            yield set(gone), names

    def _squeezed(self, widths: Mapping[str, int], least: Mapping[str, int], room: int) -> dict[str, int] | None:
        """The same in less room, the widest text giving way first, names last; None if that is not enough."""
        found = dict(widths)
        for _ in range(sum(found.values()) - room):
            elastic = [head for head, width in found.items() if width > least.get(head, width)]
            if not elastic:
                return None
            found[max(elastic, key=lambda head: (head not in self.names, found[head]))] -= 1
        return found


def cell_width(text: str) -> int:
    """In cells of a terminal."""
    return len(text) if text.isascii() else cell_len(text)


def shorten(text: str, width: int, *, name: bool = False) -> str:
    """The beginning of a text; of a name its end too, since names mostly differ there."""
    if cell_width(text) <= width:
        return text
    if name and text.isascii() and width > 2:
        end = (width - 1) // 2
        return f"{text[: width - 1 - end]}{CUT}{text[-end:]}"
    return f"{set_cell_size(text, width - 1).rstrip()}{CUT}"


GAP = "   "
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class TableLayout:
    """Columns and how wide they are: as wide as what they held so far."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._widths = [len(head) for head in columns.heads]

    def lines(self, rows: Iterable[Sequence[object]], *, head: bool = True, width: int | None = None) -> list[str]:
        """A line for each row, after the heads of the columns; none wider than `width`, which some give way for."""
        told = [[cell(value) for value in row] for row in rows]
        for row in told:
            self._widths = [max(known, cell_width(text)) for known, text in zip(self._widths, row, strict=True)]
        widths = self._widths if width is None else self._columns.fit(self._widths, len(GAP), width)
        return [self._line(row, widths) for row in ([self._columns.heads, *told] if head else told)]

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        shown = [
            shorten(text, width, name=head in self._columns.names)
            for head, text, width in zip(self._columns.heads, row, widths, strict=True)
        ]
        padded = (text + " " * (width - cell_width(text)) for text, width in zip(shown, widths, strict=True) if width)
        return GAP.join(padded).rstrip()


def cell(value: object) -> str:
    """One value, on one line."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(" ".join(str(value).split()))


def duration(seconds: float | None) -> str:
    """A time in two units at most: 45s, 3m20s, 12m, 5h, 2d4h."""
    if seconds is None:
        return "-"
    whole = max(round(seconds), 0)
    for (unit, length), (smaller, part) in pairwise(_UNITS):
        if whole >= length:
            count, rest = divmod(whole, length)
            return f"{count}{unit}" + (f"{rest // part}{smaller}" if count < 10 and rest >= part else "")
    return f"{whole}s"


def elapsed(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds()


def as_json(thing: Any, *, indent: bool = True) -> str:
    text = msgspec.json.encode(thing)
    shown = (msgspec.json.format(text, indent=2) if indent else text).decode()
    # Printed to a terminal, some characters beyond those that JSON escapes are orders, too.
    return re.sub(r"[^\n -~]", lambda found: found[0] if found[0].isprintable() else _escaped(found[0]), shown)


def as_yaml(thing: Any) -> str:
    text: str = yaml.dump(msgspec.to_builtins(thing), Dumper=_DUMPER, sort_keys=False, width=120)
    return text.rstrip("\n")


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
