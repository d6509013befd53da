"""constraints.txt pins the version of every dependency."""

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


def test_every_declared_dependency_is_pinned() -> None:
    declared = {canonical(re.split(r"[ ;<>=!~\[]", line)[0]) for line in metadata.requires("vmafx") or ()}
    assert declared - PINS.keys() == set()


def test_installed_versions_are_those_pinned() -> None:
    installed = {canonical(dist.metadata["Name"]): dist.version for dist in metadata.distributions()}
    for name in ("vmafx", "pip", "setuptools"):  # not dependencies
        installed.pop(name, None)
    different = {name: version for name, version in installed.items() if PINS.get(name) != version}
    assert different == {}


def test_no_pin_is_a_url() -> None:
    assert "//" not in (ROOT / "constraints.txt").read_text()
