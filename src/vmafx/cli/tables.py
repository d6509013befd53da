"""What commands print: tables fitted to a width, JSON and YAML."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import msgspec
import yaml
from rich.cells import cell_len, set_cell_size

from vmafx.text import printable

MIN_TEXT_WIDTH, MIN_NAME_WIDTH = 16, 16  # cells; narrower cuts are not readable
ELLIPSIS = "…"
GAP = "   "
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """The heads of the columns, and how the table shrinks to a width.

    First `texts` are cut, the widest first, down to MIN_TEXT_WIDTH. Then `optional` columns are left out, in their
    order; numbers are never cut. Then `names` are cut down to MIN_NAME_WIDTH. Last, all other columns are left out.
    """

    heads: tuple[str, ...]
    names: tuple[str, ...] = ("NAME",)
    texts: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def after(self, name: str) -> "Columns":
        """These columns after a new first column of names."""
        return msgspec.structs.replace(self, heads=(name, *self.heads), names=(name, *self.names))

    def fit(self, widths: Sequence[int], gap: int, room: int) -> list[int]:
        """The width of each column, at most that of `widths`, so that all fit into `room`; 0 to leave it out."""
        full = dict(zip(self.heads, widths, strict=True))
        for left_out, minimums in self._steps():
            kept = {head: min(width, room) for head, width in full.items() if head not in left_out}
            fitted = self._shrink(kept, minimums, room - gap * (len(kept) - 1))
            if fitted is not None:
                return [fitted.get(head, 0) for head in self.heads]
        return [room if head == self.names[-1] else 0 for head in self.heads]

    def _steps(self) -> Iterator[tuple[Collection[str], Mapping[str, int]]]:
        """The columns to leave out and the minimum widths of the others, in the order in which to try them."""
        texts, names = dict.fromkeys(self.texts, MIN_TEXT_WIDTH), dict.fromkeys(self.names, MIN_NAME_WIDTH)
        for count in range(len(self.optional) + 1):
            yield self.optional[:count], texts
        yield self.optional, texts | names
        left_out = {*self.optional, *self.texts}
        yield set(left_out), names
        for head in reversed([head for head in self.heads if head not in left_out | names.keys()]):
            left_out.add(head)
            yield set(left_out), names

    def _shrink(self, widths: Mapping[str, int], minimums: Mapping[str, int], room: int) -> dict[str, int] | None:
        """Cut the widest text first, names last; None if that is not enough. Without a minimum, a column is not cut."""
        fitted = dict(widths)
        for _ in range(sum(fitted.values()) - room):
            shrinkable = [head for head, width in fitted.items() if width > minimums.get(head, width)]
            if not shrinkable:
                return None
            fitted[max(shrinkable, key=lambda head: (head not in self.names, fitted[head]))] -= 1
        return fitted


def cell_width(text: str) -> int:
    """The width of a text in cells of a terminal."""
    return len(text) if text.isascii() else cell_len(text)


def shorten(text: str, width: int, *, name: bool = False) -> str:
    """Cut a text at its end; a name in its middle, since names mostly differ at their ends."""
    if cell_width(text) <= width:
        return text
    if name and text.isascii() and width > 2:
        end = (width - 1) // 2
        return f"{text[: width - 1 - end]}{ELLIPSIS}{text[-end:]}"
    return f"{set_cell_size(text, width - 1).rstrip()}{ELLIPSIS}"


class TableLayout:
    """Columns, each as wide as the widest value so far, so that lines printed later stay aligned."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._widths = [len(head) for head in columns.heads]

    def lines(self, rows: Iterable[Sequence[object]], *, head: bool = True, width: int | None = None) -> list[str]:
        """One line per row, after the heads if `head`; no line is wider than `width`."""
        texts = [[cell(value) for value in row] for row in rows]
        for row in texts:
            self._widths = [max(known, cell_width(text)) for known, text in zip(self._widths, row, strict=True)]
        widths = self._widths if width is None else self._columns.fit(self._widths, len(GAP), width)
        return [self._line(row, widths) for row in ([self._columns.heads, *texts] if head else texts)]

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        shown = [
            shorten(text, width, name=head in self._columns.names)
            for head, text, width in zip(self._columns.heads, row, widths, strict=True)
        ]
        padded = (text + " " * (width - cell_width(text)) for text, width in zip(shown, widths, strict=True) if width)
        return GAP.join(padded).rstrip()


def cell(value: object) -> str:
    """A value as one printable line; - for none."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(" ".join(str(value).split()))


def duration(seconds: float | None) -> str:
    """A duration in at most two units: 45s, 3m20s, 12m, 5h, 2d4h."""
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


def as_json(value: Any, *, indent: bool = True) -> str:
    encoded = msgspec.json.encode(value)
    text = (msgspec.json.format(encoded, indent=2) if indent else encoded).decode()
    # JSON does not escape all control characters of terminals.
    return re.sub(r"[^\n -~]", lambda match: match[0] if match[0].isprintable() else _escaped(match[0]), text)


def as_yaml(value: Any) -> str:
    text: str = yaml.dump(msgspec.to_builtins(value), Dumper=_DUMPER, sort_keys=False, width=120)
    return text.rstrip("\n")


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
