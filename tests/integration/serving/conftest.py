"""Fixtures for the tests of `vmafx serve`: a web server with clips, and servers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.serve_process import ServeProcess, held
from tests.support.webserver import WebServer


@pytest.fixture
async def web() -> AsyncIterator[WebServer]:
    async with WebServer() as server:
        yield server


class Held:
    """A reference at `uri` that is sent once `release` is set."""

    def __init__(self, uri: str, release: asyncio.Event) -> None:
        self.uri, self.release = uri, release


@pytest.fixture
def gate(web: WebServer, clips: Path) -> Held:
    release = asyncio.Event()
    return Held(web.serve("/held.mkv", held((clips / "reference.mkv").read_bytes(), release)), release)


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory, clips: Path) -> AsyncIterator[ServeProcess]:
    """A server for all tests of a module; clips are in its root. One job runs at a time."""
    async with ServeProcess(tmp_path_factory.mktemp("serve"), "--parallel", "1", roots=clips) as server:
        yield server
