"""How a role is configured: each setting declared once, with its flag, its variable and its default.

    class AgentSettings(Settings):
        drain: Annotated[int, Setting("Seconds for work in hand.", default="30", flag="--drain", parse=at_least(0))]

The attribute is the setting's name. Flags win over variables. `docs/environment.md` is generated from these classes.
"""

import argparse
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, dataclass_transform, get_type_hints

import msgspec


class Setting(msgspec.Struct, frozen=True):
    """How one setting is given. `parse` turns its text into a value, or raises ValueError with what is wrong."""

    text: str
    default: str = ""
    flag: str = ""
    variable: str = ""
    parse: Callable[[str], Any] = str
    switch: bool = False  # `--flag` alone means true
    repeated: bool = False  # may be given several times; a variable has commas between
    metavar: str = "TEXT"


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """A group of settings: those of a role, or of a part of one. A field without a Setting keeps its default."""


class InvalidSetting(ValueError):
    """The flag or variable that has a wrong value, and what is wrong with it."""


S = TypeVar("S", bound=Settings)


class ParsedSettings(msgspec.Struct, frozen=True):
    """The values that a process was started with."""

    values: dict[Setting, Any]

    def read(self, group: type[S]) -> S:
        """One of the groups that were parsed."""
        return group(**{name: self.values[one] for name, one in declared(group).items()})


def declared(group: type[Settings]) -> dict[str, Setting]:
    """The settings of a group by their names; inherited ones come first."""
    hints = get_type_hints(group, include_extras=True)
    found = ((name, one) for name, hint in hints.items() for one in getattr(hint, "__metadata__", ()))
    return {name: one for name, one in found if isinstance(one, Setting)}


def parse(
    groups: Iterable[type[Settings]],
    program: str,
    about: str,
    arguments: Sequence[str],
    environ: Mapping[str, str] = os.environ,
) -> ParsedSettings:
    """Several groups from one command line; ends the process with a line of help for a value that is wrong.

    What two groups inherit from the same class is one flag, and has one value.
    """
    settings = dict.fromkeys(one for group in groups for one in declared(group).values())
    parser = _Parser(prog=program, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for one in settings:
        if one.flag:
            more: dict[str, Any] = {"nargs": "?", "const": "true"} if one.switch else {}
            more |= {"action": "append"} if one.repeated else {}
            parser.add_argument(one.flag, dest=one.flag, metavar=one.metavar, help=_help(one), **more)
    flags = vars(parser.parse_args(arguments))
    try:
        return ParsedSettings({one: _value(one, flags.get(one.flag), environ) for one in settings})
    except InvalidSetting as error:
        parser.error(str(error))


def load(
    group: type[S], program: str, about: str, arguments: Sequence[str], environ: Mapping[str, str] = os.environ
) -> S:
    """The only group of a command line."""
    return parse([group], program, about, arguments, environ).read(group)


def from_environ(group: type[S], environ: Mapping[str, str] = os.environ) -> S:
    """A group from variables alone; InvalidSetting for a value that is wrong."""
    return group(**{name: _value(one, None, environ) for name, one in declared(group).items()})


def parse_bool(text: str) -> bool:
    """true or false, in the ways Go's flags take them."""
    known = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
    if text.lower() not in known:
        raise ValueError(f"{text!r} is neither true nor false")
    return known[text.lower()]


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return parse


def at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ValueError(f"{text!r} is no whole number of at least {least}")
        return int(text)

    return parse


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; `{self.prog} --help` lists what there is\n")


def _help(one: Setting) -> str:
    variable = f" [{one.variable}]" if one.variable else ""
    return f"{one.text}{variable}" + (f" (default {one.default})" if one.default else "")


def _value(one: Setting, flag: str | list[str] | None, environ: Mapping[str, str]) -> Any:
    """From the flag, or else from the variable; one that is empty counts as not set."""
    text, source = ",".join(flag) if isinstance(flag, list) else flag, one.flag
    if text is None:
        text, source = environ.get(one.variable) or one.default, one.variable
    try:
        return one.parse(text)
    except ValueError as error:
        raise InvalidSetting(f"{source}: {error}") from error
