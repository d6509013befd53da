"""What the options of commands share: the help flags, and values such as durations."""

import re
from collections.abc import Iterable

from vmafx.scoring.errors import BadInput

HELP = {"help_option_names": ["-h", "--help"]}


_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MAX_SECONDS = 2**31 - 1


def parse_seconds(text: str, option: str) -> int | None:
    """Seconds, or with units: 90, 90s, 10m, 1h30m, 7d. None for nothing."""
    if not text:
        return None
    parts = re.findall(r"([0-9]{1,10})([smhd]?)", text)
    found = sum(int(count) * _UNITS[unit] for count, unit in parts)
    alone = len(parts) == 1 or all(unit for _, unit in parts)
    if not alone or "".join(count + unit for count, unit in parts) != text or found > _MAX_SECONDS:
        raise BadInput("options", f"{option} {text!r} is no time; write it as 90s, 10m or 1h30m")
    return found


def parse_pairs(given: Iterable[str], option: str) -> dict[str, str]:
    """KEY=VALUE, one by one or several with commas."""
    found = {}
    for one in (part for text in given for part in text.split(",") if part):
        key, equals, value = one.partition("=")
        if not equals or not key:
            raise BadInput("options", f"{option} {one!r} is no KEY=VALUE, such as rack=a")
        found[key] = value
    return found
