"""What commands print: tables for people, JSON and YAML for scripts.

Names and messages come from others, and a terminal obeys what it is sent: nothing is printed that is not printable.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import msgspec
import yaml

from vmafx.cli.columns import Columns, cut, wide
from vmafx.plain import printable

GAP = "   "
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Layout:
    """Columns and how wide they are: as wide as what they held so far."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._widths = [len(head) for head in columns.heads]

    def lines(self, rows: Iterable[Sequence[object]], *, head: bool = True, width: int | None = None) -> list[str]:
        """A line for each row, after the heads of the columns; none wider than `width`, which some give way for."""
        told = [[cell(value) for value in row] for row in rows]
        for row in told:
            self._widths = [max(known, wide(text)) for known, text in zip(self._widths, row, strict=True)]
        widths = self._widths if width is None else self._columns.fit(self._widths, len(GAP), width)
        return [self._line(row, widths) for row in ([self._columns.heads, *told] if head else told)]

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        shown = [
            cut(text, width, name=head in self._columns.names)
            for head, text, width in zip(self._columns.heads, row, widths, strict=True)
        ]
        padded = (text + " " * (width - wide(text)) for text, width in zip(shown, widths, strict=True) if width)
        return GAP.join(padded).rstrip()


def cell(value: object) -> str:
    """One value, on one line."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(" ".join(str(value).split()))


def span(seconds: float | None) -> str:
    """A time in two units at most: 45s, 3m20s, 12m, 5h, 2d4h."""
    if seconds is None:
        return "-"
    whole = max(round(seconds), 0)
    for (unit, length), (smaller, part) in pairwise(_UNITS):
        if whole >= length:
            count, rest = divmod(whole, length)
            return f"{count}{unit}" + (f"{rest // part}{smaller}" if count < 10 and rest >= part else "")
    return f"{whole}s"


def between(start: datetime | None, end: datetime | None) -> float | None:
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
