"""The commands of the documentation that install vmafx: which files they name, and that packages are verified."""

import re
from pathlib import Path

import pytest
from tools.hashes import requirement_sets

from tests.support.project import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
VERIFIED = re.compile(r"pip install --require-hashes ((?:-r \S+ ?)+)\n(.*)")
BUILD_AND_PROGRAM = {"build", "vmafx"}


def verified_installations(text: str) -> list[tuple[list[str], str]]:
    """The files of each command with hashes, and the line after it."""
    return [(files.replace("-r ", "").split(), after.strip()) for files, after in VERIFIED.findall(text)]


@pytest.mark.parametrize("page", ["install.md", "agents.md", "ci.md"])
def test_packages_are_verified_before_vmafx_is_installed_without_any(page: str) -> None:
    ((files, after),) = verified_installations((ROOT / "docs" / page).read_text())
    assert all((ROOT / file).is_file() for file in files), files
    names = {Path(file).stem for file in files}
    assert BUILD_AND_PROGRAM <= names <= requirement_sets(ROOT).keys()
    assert after.endswith("pip install --no-deps --no-build-isolation .")


def test_no_page_installs_versions_of_the_day() -> None:
    for page in PAGES:
        for line in re.findall(r"^.*\bpip install .*$", page.read_text(), re.MULTILINE):
            known = ("--require-hashes ", "--no-deps ", "-c constraints.txt ", "`pip install 'vmafx[s3]'`", "error: ")
            assert any(one in line for one in known), f"{page.name}: {line}"


def test_the_bill_of_materials_is_that_of_the_documented_installation() -> None:
    (files, _), *_ = verified_installations((ROOT / "docs" / "install.md").read_text())
    (made,) = re.findall(r"--require-hashes \$\(foreach name,([a-z0-9 ]+),-r hashes/", (ROOT / "Makefile").read_text())
    assert {Path(file).stem for file in files} - {"build"} == set(made.split())


def test_the_page_says_for_which_machines_the_hashes_are() -> None:
    source = (ROOT / "tools" / "hashes.py").read_text()
    python, glibc = re.findall(r'--python-version=([\d.]+)", "--python-platform=x86_64-manylinux_([\d_]+)"', source)[0]
    page = (ROOT / "docs" / "install.md").read_text()
    assert f"what Python {python} needs on Linux x86_64 with glibc {glibc.replace('_', '.')} or later" in page
