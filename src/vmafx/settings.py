"""Settings of a role: each declared once, with its flag, environment variable, default and help.

    class AgentSettings(Settings):
        drain: Annotated[int, Setting("Seconds for running jobs.", default="30", flag="--drain", parse=at_least(0))]

The attribute is the setting's name. Flags override variables. `docs/environment.md` is generated from these classes.
"""

import argparse
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, dataclass_transform, get_type_hints

import msgspec


class Setting(msgspec.Struct, frozen=True):
    """The declaration of one setting. `parse` turns text into the value, or raises ValueError with the reason."""

    text: str  # help
    default: str = ""
    flag: str = ""
    variable: str = ""
    parse: Callable[[str], Any] = str
    switch: bool = False  # `--flag` alone means true
    repeated: bool = False  # the flag may be repeated; the variable has a comma-separated list
    metavar: str = "TEXT"


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """A group of settings: those of a role, or of a part of it. A field without a Setting keeps its default."""


class InvalidSetting(ValueError):
    """A flag or variable has an invalid value; the message names it and gives the reason."""


S = TypeVar("S", bound=Settings)


class ParsedSettings(msgspec.Struct, frozen=True):
    """The values of the settings of all groups of a command line."""

    values: dict[Setting, Any]

    def read(self, group: type[S]) -> S:
        """The settings of one group that was parsed."""
        return group(**{name: self.values[setting] for name, setting in declared(group).items()})


def declared(group: type[Settings]) -> dict[str, Setting]:
    """The declarations of a group by name, inherited ones first."""
    hints = get_type_hints(group, include_extras=True)
    found = ((name, item) for name, hint in hints.items() for item in getattr(hint, "__metadata__", ()))
    return {name: item for name, item in found if isinstance(item, Setting)}


def parse(
    groups: Iterable[type[Settings]],
    program: str,
    about: str,
    arguments: Sequence[str],
    environ: Mapping[str, str] = os.environ,
) -> ParsedSettings:
    """Parse one command line into several groups; exits with code 2 and one line about an invalid value.

    A setting that two groups inherit from the same class has one flag and one value.
    """
    settings = dict.fromkeys(setting for group in groups for setting in declared(group).values())
    variables = [setting for setting in settings if setting.variable and not setting.flag]
    listed = "\n".join(f"  {setting.variable}\n{_wrapped(setting)}" for setting in variables)
    epilog = f"environment variables without a flag:\n{listed}" if variables else None
    parser = _Parser(
        prog=program, description=about, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for setting in settings:
        if setting.flag:
            options: dict[str, Any] = {"nargs": "?", "const": "true"} if setting.switch else {}
            options |= {"action": "append"} if setting.repeated else {}
            parser.add_argument(
                setting.flag, dest=setting.flag, metavar=setting.metavar, help=_help(setting), **options
            )
    flags = vars(parser.parse_args(arguments))
    try:
        return ParsedSettings({setting: _value(setting, flags.get(setting.flag), environ) for setting in settings})
    except InvalidSetting as error:
        parser.error(str(error))


def load(
    group: type[S], program: str, about: str, arguments: Sequence[str], environ: Mapping[str, str] = os.environ
) -> S:
    """Parse a command line that has one group."""
    return parse([group], program, about, arguments, environ).read(group)


def from_environ(group: type[S], environ: Mapping[str, str] = os.environ) -> S:
    """A group from environment variables alone. Raises InvalidSetting."""
    return group(**{name: _value(setting, None, environ) for name, setting in declared(group).items()})


def parse_bool(text: str) -> bool:
    """true or false, spelled as Go's flags accept them."""
    known = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
    if text.lower() not in known:
        raise ValueError(f"{text!r} is not true or false")
    return known[text.lower()]


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is not one of {', '.join(choices)}")
        return text

    return parse


def at_least(minimum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < minimum:
            raise ValueError(f"{text!r} is not a whole number of at least {minimum}")
        return int(text)

    return parse


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see `{self.prog} --help`\n")


def _wrapped(setting: Setting) -> str:
    """The description of a variable, laid out like that of a flag."""
    text = setting.text + (f" (default {setting.default})" if setting.default else "")
    return textwrap.fill(
        text,
        width=78,
        initial_indent=" " * 24,
        subsequent_indent=" " * 24,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _help(setting: Setting) -> str:
    variable = f" [{setting.variable}]" if setting.variable else ""
    return f"{setting.text}{variable}" + (f" (default {setting.default})" if setting.default else "")


def _value(setting: Setting, flag: str | list[str] | None, environ: Mapping[str, str]) -> Any:
    """From the flag, else from the variable, else the default; an empty variable counts as not set."""
    text, source = ",".join(flag) if isinstance(flag, list) else flag, setting.flag
    if text is None:
        text, source = environ.get(setting.variable) or setting.default, setting.variable
    try:
        return setting.parse(text)
    except ValueError as error:
        raise InvalidSetting(f"{source}: {error}") from error
