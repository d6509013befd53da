"""HTTP servers that stand in for the containers of serving Pods."""

from typing import Self

from aiohttp import web

TRACK_LABEL = "vmafx.dev/track"
STOP_TIMEOUT = 10.0  # seconds for requests in progress


class Backend:
    """Responds 200 to every request, with the track and the name of its Pod. Use as an async context manager.

    On exit it accepts no more connections, completes the requests in progress and closes.
    """

    def __init__(self, address: str, port: int, *, pod: str, track: str) -> None:
        self._address, self._port = address, port
        self._headers = {"X-Pod": pod, "X-Track": track}

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._respond), shutdown_timeout=STOP_TIMEOUT)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._address, self._port).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _respond(self, _request: web.BaseRequest) -> web.Response:
        return web.Response(text=self._headers["X-Track"], headers=self._headers)
