"""`vmafx mcp` as a process, and the official client for it, over HTTP and over standard input and output."""

import asyncio
import io
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, Self

import aiohttp
import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from tests.support.waiting import PATIENCE, eventually
from vmafx.devcluster.cluster import free_port

HANDSHAKE, STATELESS = "legacy", "2026-07-28"  # modes of the client
MODULE = "vmafx.mcp.main"


class McpServer:
    """A server with its state; it can be ended and started again."""

    def __init__(self, folder: Path, *flags: str, roots: Path | None = None, **variables: str) -> None:
        self.folder, self.state, self.flags = folder, folder / "state", flags
        self.log = folder / "mcp.log"
        (folder / "tmp").mkdir(exist_ok=True)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TMPDIR": str(folder / "tmp"),
            "VMAFX_MCP_STATE": str(self.state),
            **({"VMAFX_MEDIA_ROOTS": str(roots)} if roots is not None else {}),
            **variables,
        }

    def partial(self) -> list[Path]:
        """Encodes that are being made."""
        return list((self.state / "encodes").glob(".*.part"))

    def finished(self) -> list[Path]:
        """The records of finished encodes."""
        return list((self.state / "encodes").glob("*.json"))

    async def half_way(self) -> None:
        """The first encode has its record, the second has written something."""
        await eventually(self.finished, "the first encode is finished")
        await eventually(lambda: any(path.stat().st_size for path in self.partial()), "the second encode has begun")


class StdioServer(McpServer):
    """Started by each client."""

    @asynccontextmanager
    async def client(self, mode: str = HANDSHAKE, cwd: Path | None = None) -> AsyncIterator[Client]:
        parameters = StdioServerParameters(
            command=sys.executable, args=["-m", MODULE, *self.flags], cwd=cwd or self.folder, env=self.environment
        )
        with self.log.open("a") as log:
            async with Client(stdio_client(parameters, errlog=log), mode=mode) as client:
                yield client


class HttpServer(McpServer):
    """One process for all clients. Use as an async context manager."""

    def __init__(self, folder: Path, *flags: str, roots: Path | None = None, **variables: str) -> None:
        super().__init__(folder, *flags, roots=roots, **variables)
        self.port = free_port()
        self.process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        command = [sys.executable, "-m", MODULE, "--http-address", f"127.0.0.1:{self.port}", *self.flags]
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, env=self.environment, stderr=log, cwd=self.folder
            )
        await eventually(self._is_ready, "the server is ready")

    async def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.returncode is None, self.log.read_text()
        try:
            return (await self.call("GET", "/readyz"))[0] == 200
        except aiohttp.ClientError:
            return False

    async def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return await self.process.wait()

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    @asynccontextmanager
    async def client(self, mode: str = HANDSHAKE, key: str = "", url: str = "") -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http:
            transport = streamable_http_client(url or self.url, http_client=http)
            async with Client(transport, mode=mode) as client:
                yield client

    async def call(
        self, method: str, path: str = "/mcp", headers: Mapping[str, str] = {}, body: bytes | None = None
    ) -> tuple[int, Mapping[str, str], str]:
        """A plain request; returns the status, the headers and the body."""
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(
                method,
                f"http://127.0.0.1:{self.port}{path}",
                headers=dict(headers),
                data=io.BytesIO(body) if body is not None else None,
            ) as response,
        ):
            return response.status, response.headers, await response.text()


Transport = Literal["stdio", "http"]


@asynccontextmanager
async def started(
    transport: Transport, folder: Path, clips: Path, **variables: str
) -> AsyncIterator[StdioServer | HttpServer]:
    if transport == "stdio":
        yield StdioServer(folder, roots=clips, **variables)
        return
    async with HttpServer(folder, roots=clips, **variables) as server:
        yield server


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """The structured result of a call that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text(result)
    return result.structured_content


async def failed(client: Client, tool: str, **arguments: Any) -> str:
    """The message of a call that fails."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text(result)
    return text(result)


def text(result: CallToolResult) -> str:
    return "\n".join(getattr(part, "text", "") for part in result.content)
