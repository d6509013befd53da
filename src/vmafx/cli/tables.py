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
from rich.cells import cell_len, set_cell_size

from vmafx.scoring.media.uri import printable

GAP = "   "
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Layout:
    """Columns and how wide they are: as wide as what they held so far."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._widths = [len(column) for column in columns]

    def lines(self, rows: Iterable[Sequence[object]], *, head: bool = True, width: int | None = None) -> list[str]:
        """A line for each row, after the heads of the columns; none wider than `width`."""
        told = [[cell(value) for value in row] for row in rows]
        for row in told:
            self._widths = [max(known, _wide(text)) for known, text in zip(self._widths, row, strict=True)]
        return [self._line(row, width) for row in ([self._columns, *told] if head else told)]

    def _line(self, row: Sequence[str], width: int | None) -> str:
        padded = [text + " " * (known - _wide(text)) for known, text in zip(self._widths, row, strict=True)]
        line = GAP.join(padded).rstrip()
        return line if width is None or _wide(line) <= width else f"{set_cell_size(line, width - 1).rstrip()}…"


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


def _wide(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)
