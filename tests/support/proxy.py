"""A proxy in front of the real API server that fails on demand: rejects requests, loses replies, cuts streams."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Self

import aiohttp
from aiohttp import web

from vmafx.kube import Config


class Refuse:
    """Reply with an error instead of forwarding the request."""

    def __init__(self, status: int, *, retry_after: str | None = None, body: str = "") -> None:
        self.status, self.body = status, body
        self.headers = {"Retry-After": retry_after} if retry_after is not None else {}


class LoseRequest:
    """Close the connection before forwarding the request."""


class LoseAnswer:
    """Forward the request, and close the connection before the reply."""


class CutStream:
    """Forward `after` bytes of the reply, then close the connection."""

    def __init__(self, after: int) -> None:
        self.after = after


class Delay:
    """Forward the request after a delay."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Stall:
    """Neither forward nor reply until the client gives up."""


Fault = Refuse | LoseRequest | LoseAnswer | CutStream | Delay | Stall


class FaultyProxy:
    """Applies `faults` in order, one per request (None: no fault); then those that `choose` returns.

    While `streaming` is cleared, watches deliver no events: they arrive late.
    """

    def __init__(self, behind: Config) -> None:
        self._behind = behind
        self.faults: deque[Fault | None] = deque()
        self.choose: Callable[[web.Request], Fault | None] = lambda _: None
        self.streaming = asyncio.Event()
        self.streaming.set()
        self.seen: list[str] = []
        self.open = 0  # requests in progress
        self._arrived = asyncio.Condition()
        self._transports: set[asyncio.BaseTransport] = set()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._behind.tls or False))
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.config = Config(server=f"http://127.0.0.1:{port}", tls=None, origin="the proxy")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self._runner.cleanup()

    async def saw(self, count: int) -> None:
        """Wait until `count` requests have arrived."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.seen) >= count)

    def cut(self) -> None:
        """Close the connections of all requests in progress."""
        for transport in self._transports:
            transport.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        self._transports.add(transport)
        self.open += 1
        try:
            return await self._answer(request)
        except ConnectionResetError:  # closed by the client or by `cut`
            return self._hang_up(request)
        finally:
            self.open -= 1
            self._transports.discard(transport)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        async with self._arrived:
            self.seen.append(request.method)
            self._arrived.notify_all()
        fault = self.faults.popleft() if self.faults else self.choose(request)
        match fault:
            case Refuse():
                return web.Response(status=fault.status, headers=fault.headers, text=fault.body)
            case LoseRequest():
                return self._hang_up(request)
            case Stall():
                await asyncio.sleep(3600)
            case Delay():
                await asyncio.sleep(fault.seconds)
        headers = {name: request.headers[name] for name in ("Content-Type", "Accept") if name in request.headers}
        url = f"{self._behind.server}{request.raw_path}"
        body = await request.read()
        async with self._session.request(request.method, url, data=body or None, headers=headers) as answer:
            if isinstance(fault, LoseAnswer):
                await answer.read()
                return self._hang_up(request)
            return await self._pass_on(request, answer, fault.after if isinstance(fault, CutStream) else None)

    async def _pass_on(
        self, request: web.Request, answer: aiohttp.ClientResponse, cut_after: int | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
        await response.prepare(request)
        passed = 0
        async for chunk in answer.content.iter_any():
            if "watch" in request.query:
                await self.streaming.wait()
            if cut_after is not None and passed + len(chunk) > cut_after:
                await response.write(chunk[: cut_after - passed])
                return self._hang_up(request)
            await response.write(chunk)
            passed += len(chunk)
        return response

    def _hang_up(self, request: web.Request) -> web.Response:
        if request.transport is not None:
            request.transport.close()
        return web.Response()
