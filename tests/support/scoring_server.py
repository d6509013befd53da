"""`vmafx serve` as a process."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.commands import VMAFX
from tests.support.waiting import eventually
from vmafx.demo.roles import answers


@asynccontextmanager
async def scoring_server(folder: Path, *flags: str, **variables: str) -> AsyncIterator[str]:
    """A server that is ready, with its data and log in `folder`; yields its URL."""
    command = [VMAFX, "serve", "--http-address", "127.0.0.1:0", "--data", str(folder / "data"), "--grace", "0", *flags]
    log = folder / "serve.log"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(*command, stderr=errors, env={**os.environ, **variables})
    try:
        await eventually(lambda: process.returncode is not None or _port(log), "the server listens")
        assert process.returncode is None, log.read_text()
        url = f"http://127.0.0.1:{_port(log)}"
        await eventually(lambda: asyncio.to_thread(answers, f"{url}/readyz"), "the server is ready")
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _port(log: Path) -> int:
    """The port of the server, once it has logged it; 0 before."""
    lines = [line for line in log.read_text().splitlines() if '"serving"' in line]
    return int(json.loads(lines[0])["http"]) if lines else 0
