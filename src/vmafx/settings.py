"""How a role is configured: each setting declared once, with its flag, its variable and its default.

Flags win over variables. `docs/environment.md` is generated from these declarations.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import msgspec


class Setting(msgspec.Struct, frozen=True):
    """One setting. `parse` turns its text into a value, or raises ValueError with what is wrong."""

    name: str
    text: str
    default: str = ""
    flag: str = ""
    variable: str = ""
    parse: Callable[[str], Any] = str
    switch: bool = False  # `--flag` alone means true
    metavar: str = "TEXT"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; `{self.prog} --help` lists what there is\n")


def truth(text: str) -> bool:
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


def load(
    settings: Sequence[Setting],
    program: str,
    about: str,
    arguments: Sequence[str],
    environ: Mapping[str, str] = os.environ,
) -> dict[str, Any]:
    """The value of every setting; ends the process with a line of help for one that is wrong."""
    parser = _Parser(prog=program, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for one in settings:
        if one.flag:
            switch: dict[str, Any] = {"nargs": "?", "const": "true"} if one.switch else {}
            parser.add_argument(one.flag, dest=one.name, metavar=one.metavar, help=_help(one), **switch)
    given = vars(parser.parse_args(arguments))
    values = {}
    for one in settings:
        text, source = given.get(one.name), one.flag
        if text is None:
            text, source = environ.get(one.variable) or None, one.variable
        try:
            values[one.name] = one.parse(one.default if text is None else text)
        except ValueError as error:
            parser.error(f"{source}: {error}")
    return values


def _help(one: Setting) -> str:
    variable = f" [{one.variable}]" if one.variable else ""
    return f"{one.text}{variable}" + (f" (default {one.default})" if one.default else "")
