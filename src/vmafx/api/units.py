"""Durations as Go writes them, and quantities as Kubernetes writes them, as numbers."""

import re
from decimal import Decimal
from functools import lru_cache

MAX_NANOSECONDS = 2**63 - 1  # Go cannot represent longer durations
_NANOSECONDS = {
    "ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?")
_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@lru_cache(256)
def nanoseconds(duration: int | str) -> int:
    """A duration, such as 1m30s, in nanoseconds; an integer is a number of nanoseconds already.

    As in Go, fractions of a nanosecond are dropped from each part.
    """
    if isinstance(duration, int):
        return duration
    parts = _DURATION_PART.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        raise ValueError(f"{duration!r} is not a duration, such as 10s, 1m30s or 500ms")
    return sum(int(Decimal(number) * _NANOSECONDS[unit]) for number, unit in parts)


def quantity(text: int | str) -> Decimal:
    """A quantity, such as 500m or 16Gi, as a number."""
    if isinstance(text, int):
        return Decimal(text)
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a quantity, such as 500m, 4 or 16Gi")
    number, suffix = Decimal(found[1]), found[2] or ""
    if suffix in _BINARY_SUFFIXES:
        return number * (1 << _BINARY_SUFFIXES[suffix])
    exponent = _DECIMAL_SUFFIXES[suffix] if suffix in _DECIMAL_SUFFIXES else int(suffix[1:] or 0)
    return number.scaleb(exponent)


def parse_bytes(text: str) -> int:
    """The value of a setting. Raises ValueError."""
    try:
        size = int(quantity(text))
    except ValueError:
        size = 0
    if size < 1:
        raise ValueError(f"{text!r} is not a size such as 10Gi, 500Mi or a number of bytes")
    return size
