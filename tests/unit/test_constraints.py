"""One file pins every version."""

import re
from importlib import metadata

from tests.support.project import ROOT

PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_all_that_is_declared_is_pinned() -> None:
    declared = {canonical(re.split(r"[ ;<>=!~\[]", line)[0]) for line in metadata.requires("vmafx") or ()}
    assert declared - PINS.keys() == set()


def test_all_that_is_installed_is_as_pinned() -> None:
    installed = {canonical(one.metadata["Name"]): one.version for one in metadata.distributions()}
    for name in ("vmafx", "pip", "setuptools"):  # ourselves, and what came with the interpreter
        installed.pop(name, None)
    different = {name: version for name, version in installed.items() if PINS.get(name) != version}
    assert different == {}


def test_no_pin_says_where_it_comes_from() -> None:
    assert "//" not in (ROOT / "constraints.txt").read_text()
