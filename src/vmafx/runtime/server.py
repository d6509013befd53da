"""Probes and metrics over HTTP, up before anything else and down after everything else."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest


class Address(NamedTuple):
    """Where to listen: `:8081` is every interface, `0` nowhere."""

    host: str | None
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address | None":
        """Go's form of an address; None for `0`, which means not to listen. ValueError says what is wrong with it."""
        if text == "0":
            return None
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal() or not 0 <= int(port) <= 65535:
            raise ValueError(f"{text!r} is no address: use :8081, 127.0.0.1:8081, or 0 for none")
        return cls(host.strip("[]") or None, int(port))


@asynccontextmanager
async def serve(address: Address | None, routes: dict[str, Callable[[], web.Response]]) -> AsyncIterator[int]:
    """Answer GET on `routes` for as long as the context lasts; gives the port, 0 for none."""
    if address is None:
        yield 0
        return

    app = web.Application()
    for path, answer in routes.items():
        app.router.add_get(path, _handler(answer))
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, address.host, address.port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _handler(answer: Callable[[], web.Response]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(_request: web.Request) -> web.Response:
        return answer()

    return handle


def probe(ok: Callable[[], str | None]) -> Callable[[], web.Response]:
    """200 `ok`, or 503 with what is missing."""

    def answer() -> web.Response:
        missing = ok()
        return web.Response(status=503, text=f"{missing}\n") if missing else web.Response(text="ok\n")

    return answer


def metrics(registry: CollectorRegistry) -> Callable[[], web.Response]:
    def answer() -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return answer
