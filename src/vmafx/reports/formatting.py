"""Numbers, times and clip names formatted for people."""

import math
import re
from collections.abc import Sequence

MINUS, TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
POOLINGS = {
    "mean": "mean",
    "harmonic_mean": "harmonic mean",
    "min": "lowest",
    "max": "highest",
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
    """Frames in a second, as short as it can be said: 25 or 29.97."""
    return "unknown" if value is None else f"{value:.3f}".rstrip("0").rstrip(".")


def clock(seconds: float, decimals: int = 3) -> str:
    """As ffmpeg's -ss takes it: 1:02:03.450, with hours only where there are any."""
    ticks = round(seconds * 10**decimals)
    whole, part = divmod(ticks, 10**decimals)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    front = f"{hours}:{minute:02}" if hours else f"{minute}"
    return f"{front}:{second:02}" + (f".{part:0{decimals}}" if decimals else "")


def pooling(how: str) -> str:
    if match := re.fullmatch(r"p(\d+)", how):
        return f"percentile {match[1]}"
    return POOLINGS.get(how, how)


def plural(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def name(uri: str) -> str:
    """The last part of a path or URI."""
    path = re.split(r"[?#]", uri)[0] if "://" in uri else uri
    return path.rstrip("/").rsplit("/", 1)[-1] or uri


def names(uris: Sequence[str]) -> list[str]:
    """The last parts where they tell the clips apart, the whole of it where not, a number where even that is equal."""
    short = [name(uri) for uri in uris]
    told = [last if short.count(last) == 1 else uri for last, uri in zip(short, uris, strict=True)]
    return [one if told.count(one) == 1 else f"{one} ({place})" for place, one in enumerate(told, 1)]
