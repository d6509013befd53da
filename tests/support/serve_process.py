"""`vmafx serve` as a process, and its clients. Every response is compared with the OpenAPI document."""

import asyncio
import io
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import aiohttp
from multidict import CIMultiDictProxy

from tests.support.served_api import violations
from tests.support.waiting import PATIENCE, eventually
from tests.support.webserver import Answer, Request, head
from vmafx.devcluster.cluster import free_port


class Reply(NamedTuple):
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class ServeProcess:
    """The server with its folder; it can be killed and started again. Use as an async context manager."""

    def __init__(
        self, folder: Path, *flags: str, roots: Path | None = None, ready: bool = True, **variables: str
    ) -> None:
        """`ready`: whether a start waits until it is ready, and not only alive."""
        self.folder, self.port, self.flags, self._ready = folder, free_port(), flags, ready
        self.grpc_port = free_port()
        self.data, self.log = folder / "data", folder / "serve.log"
        (folder / "tmp").mkdir(exist_ok=True)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TMPDIR": str(folder / "tmp"),
            "VMAFX_SERVE_DATA": str(self.data),
            "VMAFX_SERVE_GRPC_LISTEN": f"127.0.0.1:{self.grpc_port}",
            "VMAFX_MEDIA_ALLOW_PRIVATE": "true",
            **({"VMAFX_MEDIA_ROOTS": str(roots)} if roots is not None else {}),
            **variables,
        }
        self.key = ""  # sent with each request
        self.trust: ssl.SSLContext | None = None  # set it for a server with TLS
        self.process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self.session = aiohttp.ClientSession(
            f"{'http' if self.trust is None else 'https'}://127.0.0.1:{self.port}",
            connector=aiohttp.TCPConnector(limit=0, ssl=self.trust or True),
            timeout=aiohttp.ClientTimeout(total=PATIENCE),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        try:
            await self.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
        await self.session.close()

    async def start(self) -> None:
        command = [sys.executable, "-m", "vmafx.serving.main", "--http-address", f"127.0.0.1:{self.port}"]
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, *self.flags, env=self.environment, stderr=log, cwd=self.folder
            )
        await eventually(self.is_ready if self._ready else self.is_alive, "the server is ready")

    async def is_ready(self) -> bool:
        return await self._probe("/readyz") == 200

    async def is_alive(self) -> bool:
        return await self._probe("/healthz") == 200

    async def _probe(self, path: str) -> int:
        assert self.process is not None
        assert self.process.returncode is None, self.log.read_text()
        try:
            async with self.session.get(path) as response:
                return response.status
        except aiohttp.ClientError:
            return 0

    def terminate(self) -> None:
        assert self.process is not None
        self.process.terminate()

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def stop(self) -> int:
        """Stop it gracefully; returns the exit code."""
        assert self.process is not None
        self.terminate()
        return await self.process.wait()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    async def call(self, method: str, path: str, **options: Any) -> Reply:
        headers = {**({"Authorization": f"Bearer {self.key}"} if self.key else {}), **options.pop("headers", {})}
        async with self.session.request(method, path, headers=headers, **options) as response:
            reply = Reply(response.status, response.headers, await response.read())
        assert violations(method, path, reply.status, response.content_type, reply.body) == []
        return reply

    async def get(self, path: str, **options: Any) -> Reply:
        return await self.call("GET", path, **options)

    async def score(self, reference: Path | str, distorted: Path | str, prefer: str = "wait=60", **more: Any) -> Reply:
        """Score clips by path or URI."""
        body = {"reference": _uri(reference), "distorted": _uri(distorted), **more}
        return await self.call("POST", "/v1/score", json=body, headers={"Prefer": prefer})

    async def upload(
        self,
        reference: Path | str,
        distorted: Path | str,
        prefer: str = "wait=60",
        names: tuple[str, str] = ("ref.mkv", "dist.mp4"),
        **spec: Any,
    ) -> Reply:
        """Score clips; those given as a Path are uploaded under these names."""
        form = aiohttp.FormData()
        for part, clip, name in zip(("reference", "distorted"), (reference, distorted), names, strict=True):
            if isinstance(clip, Path):
                form.add_field(part, io.BytesIO(clip.read_bytes()), filename=name, content_type="video/x")
            else:
                form.add_field(part, clip)
        if spec:
            form.add_field("spec", json.dumps(spec))
        return await self.call("POST", "/v1/score", data=form, headers={"Prefer": prefer})

    async def job(self, path: str) -> dict[str, Any]:
        reply = await self.get(path)
        assert reply.status == 200, reply.body
        found: dict[str, Any] = reply.json()
        return found

    async def until_state(self, path: str, *states: str) -> dict[str, Any]:
        """Wait until the job has one of these states."""
        seen: list[dict[str, Any]] = []

        async def holds() -> bool:
            seen.append(await self.job(path))
            return seen[-1]["state"] in states

        await eventually(holds, f"{path} is {' or '.join(states)}")
        return seen[-1]

    async def metric(self, name: str) -> float:
        """The value of a sample, named with its labels."""
        for line in (await self.get("/metrics")).body.decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"there is no metric {name}")

    @asynccontextmanager
    async def events(self, path: str) -> AsyncIterator[AsyncIterator[tuple[str, dict[str, Any]]]]:
        """The server-sent events of a path: type and data."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        async with self.session.get(path, headers=headers) as response:
            assert (response.status, response.content_type) == (200, "text/event-stream")
            yield _events(response.content)


async def _events(stream: aiohttp.StreamReader) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    fields: dict[str, str] = {}
    async for line in stream:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "data" in fields:
            yield fields["event"], json.loads(fields["data"])
            fields = {}


def _uri(clip: Path | str) -> str:
    return clip.as_uri() if isinstance(clip, Path) else clip


def held(content: bytes, release: asyncio.Event) -> Answer:
    """A file that the web server sends once `release` is set: a job that fetches it runs until then."""

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.write(head(200, {"Content-Length": len(content)}) + content)

    return answer
