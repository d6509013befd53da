"""Fixtures for the tests of scoring."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.webserver import WebServer


@pytest.fixture
def temp_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of this process and its children."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with WebServer() as server:
        yield server
