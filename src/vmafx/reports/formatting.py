"""Numbers, times and clip names formatted for people."""

import math
import re
from collections.abc import Sequence

MINUS, TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
POOLINGS = {
    "mean": "mean",
    "harmonic_mean": "harmonic mean",
    "min": "minimum",
    "max": "maximum",
    "median": "median",
}


def number(value: float, decimals: int = 2) -> str:
    if not math.isfinite(value):
        return "\N{EN DASH}" if math.isnan(value) else f"{MINUS if value < 0 else ''}∞"
    text = f"{value:,.{decimals}f}"
    return text.replace("-", MINUS) if float(text.replace(",", "")) else text.lstrip("-")


def size(width: int, height: int) -> str:
    return f"{width}{TIMES}{height}"


def rate(value: float | None) -> str:
    """Frames per second without trailing zeros: 25 or 29.97."""
    return "unknown" if value is None else f"{value:.3f}".rstrip("0").rstrip(".")


def clock(seconds: float, decimals: int = 3) -> str:
    """A time as ffmpeg's -ss accepts it: 1:02:03.450; without hours below one hour."""
    ticks = round(seconds * 10**decimals)
    whole, part = divmod(ticks, 10**decimals)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    front = f"{hours}:{minute:02}" if hours else f"{minute}"
    return f"{front}:{second:02}" + (f".{part:0{decimals}}" if decimals else "")


def pooling(method: str) -> str:
    if match := re.fullmatch(r"p(\d+)", method):
        return f"{ordinal(int(match[1]))} percentile"
    return POOLINGS.get(method, method)


def ordinal(number: int) -> str:
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def name(uri: str) -> str:
    """The last part of a path or URI."""
    path = re.split(r"[?#]", uri)[0] if "://" in uri else uri
    return path.rstrip("/").rsplit("/", 1)[-1] or uri


def names(uris: Sequence[str]) -> list[str]:
    """A distinct name for each clip: its file name, or the URI if that is not unique, or the URI and a number."""
    short = [name(uri) for uri in uris]
    longer = [last if short.count(last) == 1 else uri for last, uri in zip(short, uris, strict=True)]
    return [one if longer.count(one) == 1 else f"{one} ({number})" for number, one in enumerate(longer, 1)]
