"""What the options of several commands share: the help flags, durations, KEY=VALUE pairs, and groups of options."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, get_type_hints

import msgspec
import typer

from vmafx.scoring.errors import BadInput

HELP = {"help_option_names": ["-h", "--help"]}
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MAX_SECONDS = 2**31 - 1


def _show_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and seldom needed

        typer.echo(f"vmafx {version('vmafx')}")
        raise typer.Exit


VersionFlag = Annotated[
    bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
]


def parse_seconds(text: str, option: str) -> int | None:
    """Seconds, with or without units: 90, 90s, 10m, 1h30m, 7d. None for an empty text."""
    if not text:
        return None
    parts = re.findall(r"([0-9]{1,10})([smhd]?)", text)
    seconds = sum(int(count) * _UNITS[unit] for count, unit in parts)
    units_given = len(parts) == 1 or all(unit for _, unit in parts)
    if not units_given or "".join(count + unit for count, unit in parts) != text or seconds > _MAX_SECONDS:
        raise BadInput("options", f"{option} {text!r} is not a duration; use e.g. 90s, 10m or 1h30m")
    return seconds


def parse_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """KEY=VALUE pairs; each text has one, or several separated by commas."""
    pairs = {}
    for pair in (part for text in texts for part in text.split(",") if part):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise BadInput("options", f"{option} {pair!r} is not KEY=VALUE; use e.g. rack=a")
        pairs[key] = value
    return pairs


def with_fields_as_options(
    command: Callable[..., None], parameter: str, flags_type: type[msgspec.Struct], **declared: object
) -> Callable[..., None]:
    """The command with a parameter replaced by one option for each field of its type.

    `declared` has the annotations of fields that differ between commands.
    """
    signature, hints = inspect.signature(command), get_type_hints(flags_type, include_extras=True) | declared
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in msgspec.structs.fields(flags_type)
    ]
    parameters: list[inspect.Parameter] = []
    for one in signature.parameters.values():
        keyword_only = one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        parameters += options if one.name == parameter else [keyword_only]

    @functools.wraps(command)
    def expanded(**values: Any) -> None:
        flags = flags_type(**{option.name: values.pop(option.name) for option in options})
        command(**{parameter: flags}, **values)

    expanded.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return expanded
