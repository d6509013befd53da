"""A web server on a real socket with scripted responses, correct or faulty."""

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable

import msgspec

from tests.support.tcp_server import LOCAL, TcpServer


class Request(msgspec.Struct, frozen=True):
    target: str
    headers: dict[str, str]  # by lower-case name


Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


class WebServer(TcpServer):
    """Each path has a list of responses; the last one repeats. Use as an async context manager."""

    def __init__(self, tls: ssl.SSLContext | None = None, address: str = LOCAL) -> None:
        super().__init__(tls, address)
        self.requests: list[Request] = []
        self._scripts: dict[str, list[Answer]] = {}

    def serve(self, path: str, *answers: Answer, login: str = "", host: str = "127.0.0.1") -> str:
        """Serve these responses at `path`; return its URL."""
        self._scripts[path] = list(answers)
        scheme = "https" if self._tls else "http"
        return f"{scheme}://{login}{'@' if login else ''}{host}:{self.port}{path}"

    def asked(self, header: str) -> list[str | None]:
        return [request.headers.get(header.lower()) for request in self.requests]

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        target = head[0].split(" ")[1]
        headers = dict(line.lower().split(": ", 1)[:1] + line.split(": ", 1)[1:] for line in head[1:] if line)
        request = Request(target, headers)
        self.requests.append(request)
        script = self._scripts[target.partition("?")[0]]
        answer = asyncio.ensure_future((script.pop(0) if len(script) > 1 else script[0])(request, writer))
        gone = asyncio.ensure_future(reader.read())
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                return
            await answer
        finally:
            answer.cancel()
            gone.cancel()
            await asyncio.gather(answer, gone, return_exceptions=True)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


def head(status: int, headers: dict[str, str | int]) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", "Connection: close"] + [f"{key}: {value}" for key, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def says(status: int, body: bytes = b"", **headers: str | int) -> Answer:
    """A plain response; header names are written with _ for -."""

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        fields = {"Content-Length": len(body)} | {key.replace("_", "-"): value for key, value in headers.items()}
        writer.write(head(status, fields) + body)

    return answer


def has(content: bytes, *, etag: str = '"one"', cut: int | None = None, ranges: bool = True, **more: str) -> Answer:
    """A file from a correct server; `cut` closes the connection after that many bytes."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        start, status, headers = 0, 200, {"ETag": etag} if etag else {}
        headers |= {key.replace("_", "-"): value for key, value in more.items()}
        asked = re.fullmatch(r"bytes=(\d+)-", request.headers.get("range", ""))
        if ranges and asked and request.headers.get("if-range") in {etag, more.get("Last_Modified")}:
            start, status = int(asked[1]), 206
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        writer.write(head(status, headers | {"Content-Length": len(content) - start}))
        writer.write(content[start:] if cut is None else content[start : start + cut])
        await writer.drain()
        if cut is not None:
            writer.write_eof()

    return answer


def without_end(sent: list[int]) -> Answer:
    """An endless body without Content-Length; `sent` counts its bytes."""

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, {}))
        while True:
            writer.write(b"x" * 65536)
            sent.append(65536)
            await writer.drain()

    return answer


def stalls(content: bytes, after: int, *, etag: str = '"one"') -> Answer:
    """Send the first bytes, then stall with the connection open."""

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, {"ETag": etag, "Content-Length": len(content)}) + content[:after])
        await writer.drain()
        await asyncio.Event().wait()

    return answer


def hangs_up() -> Answer:
    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    return answer


def redirects(location: str, status: int = 302) -> Answer:
    return says(status, Location=location)
