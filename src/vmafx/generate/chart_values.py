"""The values of the Helm chart, with what the comments of values.yaml say about them.

The text after `# --` above a key is its description. `# @schema` has keywords of JSON Schema, beside the type of the
default; `# @setting` names the variable whose default in the code is that of the value.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import yaml

from vmafx.generate.environment import SECTIONS
from vmafx.settings import declared

DESCRIPTION, SCHEMA, SETTING = "# -- ", "# @schema ", "# @setting "


class ChartError(Exception):
    """values.yaml contradicts itself or the code; the message names the value."""


class Value(msgspec.Struct, frozen=True):
    """A key of values.yaml with what its comments say; `children` are those of a mapping whose keys are fixed."""

    path: tuple[str, ...]
    default: Any
    text: str = ""
    keywords: dict[str, Any] = {}
    setting: str = ""
    children: tuple["Value", ...] = ()


def read_values(text: str) -> list[Value]:
    """The values with their comments. Raises ChartError for a key without a description."""
    lines = text.splitlines()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise ChartError("values.yaml is not a mapping")
    return list(_children(root, yaml.safe_load(text), (), lines))


def _children(node: yaml.MappingNode, data: Any, path: tuple[str, ...], lines: Sequence[str]) -> Iterator[Value]:
    for key, value in node.value:
        name, here = key.value, (*path, key.value)
        text, keywords, setting = _comment(lines, key.start_mark.line, ".".join(here))
        nested = isinstance(value, yaml.MappingNode) and not keywords and value.value
        children = tuple(_children(value, data[name], here, lines)) if nested else ()
        if not children and not text:
            raise ChartError(f"{'.'.join(here)} has no description: write `{DESCRIPTION}TEXT` above it")
        yield Value(here, data[name], text, keywords, setting, children)


def _comment(lines: Sequence[str], line: int, name: str) -> tuple[str, dict[str, Any], str]:
    """The description, the schema and the setting in the comment above a line."""
    first = line
    while first > 0 and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    texts: list[str] = []
    keywords: dict[str, Any] = {}
    setting = ""
    for comment in (one.strip() for one in lines[first:line]):
        if comment.startswith(SCHEMA):
            keywords = yaml.safe_load(comment.removeprefix(SCHEMA))
        elif comment.startswith(SETTING):
            setting = comment.removeprefix(SETTING)
        elif comment.startswith(DESCRIPTION):
            texts = [comment.removeprefix(DESCRIPTION)]
        elif texts:
            texts.append(comment.removeprefix("#").strip())
    if not isinstance(keywords, dict):
        raise ChartError(f"{name}: `{SCHEMA}` is not followed by a mapping")
    return " ".join(texts), keywords, setting


def check_settings(values: Sequence[Value]) -> None:
    """Raises ChartError if the default of a value is not that of its setting."""
    known = {
        setting.variable: setting.default
        for groups in SECTIONS.values()
        for group in groups
        for setting in declared(group).values()
    }
    for value in leaves(values):
        if not value.setting:
            continue
        name = ".".join(value.path)
        if value.setting not in known:
            raise ChartError(f"{name}: no role has the variable {value.setting}")
        default = known[value.setting].removeprefix(":")  # of an address to listen on: its port
        if default != text_of(value.default):
            raise ChartError(f"{name} is {text_of(value.default)!r}, but {value.setting} is {default!r} by default")


def leaves(values: Sequence[Value]) -> Iterator[Value]:
    """The values that have no children."""
    for value in values:
        if value.children:
            yield from leaves(value.children)
        else:
            yield value


def text_of(value: Any) -> str:
    """A default as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
