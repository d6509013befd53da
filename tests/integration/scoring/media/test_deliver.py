"""Delivery of reports to web servers."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from vmafx.backoff import Backoff
from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.media.access import deliver_report
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.retry import RetryPolicy

HERE = MediaPolicy(private=True, retry=RetryPolicy(backoff=Backoff(0.0, 0.0), max_asked=0.0))
CONTENT = b'{"score": 93.2}'


class UploadServer:
    """Accepts PUT requests and answers with `statuses`, then with 200."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.statuses: list[int] = []
        self.authorizations: list[str | None] = []
        self.port = 0

    async def put(self, request: web.Request) -> web.Response:
        self.authorizations.append(request.headers.get("Authorization"))
        status = self.statuses.pop(0) if self.statuses else 200
        content = await request.read()
        if status == 200:
            self.files[request.path] = content
        return web.Response(status=status, headers={"Location": "http://127.0.0.1:1/"})


@pytest.fixture
async def server() -> AsyncIterator[UploadServer]:
    server = UploadServer()
    app = web.Application()
    app.router.add_put("/{name}", server.put)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    yield server
    await runner.cleanup()


async def test_a_report_is_uploaded_with_put_and_retried(server: UploadServer) -> None:
    server.statuses += [500, 429]
    delivered = await deliver_report(f"http://user:pa55@127.0.0.1:{server.port}/r.json?signature=t0ken", CONTENT, HERE)
    assert delivered == f"http://127.0.0.1:{server.port}/r.json"
    assert server.files == {"/r.json": CONTENT}
    assert server.authorizations == ["Basic dXNlcjpwYTU1"] * 3


@pytest.mark.parametrize("status", [301, 307, 400, 403, 404])
async def test_client_errors_and_redirects_are_not_retried(server: UploadServer, status: int) -> None:
    server.statuses += [status]
    with pytest.raises(BadInput, match=f"the server answered {status}") as refused:
        await deliver_report(f"http://127.0.0.1:{server.port}/r.json?signature=t0ken", CONTENT, HERE)
    assert "t0ken" not in str(refused.value)
    assert len(server.authorizations) == 1


async def test_permanent_server_errors_are_a_node_fault(server: UploadServer) -> None:
    server.statuses += [503] * 9
    with pytest.raises(NodeFault, match=r"cannot write .* the server answered 503, 5 times in a row"):
        await deliver_report(f"http://127.0.0.1:{server.port}/r.json", CONTENT, HERE)


async def test_private_addresses_are_refused(server: UploadServer) -> None:
    with pytest.raises(BadInput, match="a private, loopback or link-local address"):
        await deliver_report(f"http://127.0.0.1:{server.port}/r.json", CONTENT, MediaPolicy())
    assert server.files == {}
