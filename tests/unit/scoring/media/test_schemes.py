"""The table of URI schemes. This module implements a scheme `mem` to show that a new one needs only a row."""

import importlib
import os
import subprocess
import sys
import tomllib

import pytest

from tests.support.project import ROOT
from vmafx.cli import submit
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.access import deliver_report, open_media
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.staging import StagedFile
from vmafx.scoring.media.uri import SCHEMES, Location, Scheme, display_name

HERE = MediaPolicy(schemes=frozenset({"mem"}), reserve=0)
PROJECT = ROOT / "pyproject.toml"
MEMORY: dict[str, bytes] = {}


async def fetch(location: Location, staging: StagedFile) -> None:
    await staging.add(MEMORY[location.target])


async def put(location: Location, content: bytes, policy: MediaPolicy) -> None:
    policy.check_size(len(content), location.display_name, "options")
    MEMORY[location.target] = content


def parse(_uri: str, scheme: str, rest: str) -> Location:
    return Location(scheme, rest, f"{scheme}://{rest.partition('?')[0]}")


@pytest.fixture
def mem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEMES, "mem", Scheme("mem", parse, __name__))
    MEMORY.clear()


@pytest.mark.usefixtures("mem")
async def test_a_new_scheme_needs_only_a_row() -> None:
    assert await deliver_report("MEM://a.mp4?token=S3CRET", b"clip", HERE) == "mem://a.mp4"
    async with open_media("mem://a.mp4?token=S3CRET", "reference", HERE) as opened:
        assert (os.pread(opened.fd, 9, 0), opened.display_name) == (b"clip", "mem://a.mp4")
    assert display_name("mem://a.mp4?token=S3CRET") == "mem://a.mp4"
    assert MediaPolicy.from_environ({"VMAFX_MEDIA_SCHEMES": "mem"}).schemes == {"mem"}
    assert list(submit.warn_about_uris(["mem://a.mp4"])) == []
    assert SCHEMES["mem"].is_installed()


async def test_without_a_row_a_scheme_is_not_supported() -> None:
    assert display_name("mem://a.mp4?token=S3CRET") == "mem://..."
    with pytest.raises(BadInput, match="mem:// is not supported; use a path, or a URI with file://, http://, https://"):
        await deliver_report("mem://a.mp4", b"clip", HERE)
    assert any(
        "workers do not support mem:// URIs, only file://" in warning
        for warning in submit.warn_about_uris(["mem://a.mp4"])
    )


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
async def test_every_row_has_a_module_and_its_extra(scheme: Scheme) -> None:
    assert SCHEMES[scheme.name] is scheme
    transfer = await scheme.load_module()
    assert transfer is importlib.import_module(scheme.module)
    assert callable(transfer.put)
    assert scheme.in_place or callable(transfer.fetch)
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    assert extras.get(scheme.extra, [""]) == [scheme.package]


def test_local_files_load_no_modules_of_other_schemes() -> None:
    code = """
import asyncio, sys, tempfile
from pathlib import Path
from vmafx.scoring.media.access import deliver_report
from vmafx.scoring.media.access import open_media
from vmafx.scoring.media.policy import MediaPolicy
async def main(path):
    await deliver_report(f"{path}.json", b"clip", MediaPolicy(outputs=(Path(path).parent,)))
    async with open_media(path, "reference", MediaPolicy()):
        print(*sys.modules)
with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "clip").write_bytes(b"clip")
    asyncio.run(main(f"{folder}/clip"))
"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "vmafx.scoring.media.local" in loaded
    others = {scheme.module for scheme in SCHEMES.values() if not scheme.in_place}
    assert (others | {"aiohttp", "fsspec", "s3fs", "gcsfs"}) & set(loaded) == set()
