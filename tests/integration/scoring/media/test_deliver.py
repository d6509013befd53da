"""A report on its way out: whole, within what is allowed, and without a word too much."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from vmafx.backoff import Backoff
from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.media.access import deliver_report
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.retry import RetryPolicy

HERE = MediaPolicy(private=True, retry=RetryPolicy(backoff=Backoff(0.0, 0.0), max_asked=0.0))
CONTENT = b'{"score": 93.2}'


class Shelf:
    """A server that takes what is PUT, in the way its script says."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.statuses: list[int] = []
        self.authorizations: list[str | None] = []
        self.port = 0

    async def take(self, request: web.Request) -> web.Response:
        self.authorizations.append(request.headers.get("Authorization"))
        status = self.statuses.pop(0) if self.statuses else 200
        content = await request.read()
        if status == 200:
            self.kept[request.path] = content
        return web.Response(status=status, headers={"Location": "http://127.0.0.1:1/"})


@pytest.fixture
async def shelf() -> AsyncIterator[Shelf]:
    made = Shelf()
    app = web.Application()
    app.router.add_put("/{name}", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


async def test_by_put(shelf: Shelf) -> None:
    shelf.statuses += [500, 429]
    told = await deliver_report(f"http://user:pa55@127.0.0.1:{shelf.port}/r.json?signature=t0ken", CONTENT, HERE)
    assert told == f"http://127.0.0.1:{shelf.port}/r.json"
    assert shelf.kept == {"/r.json": CONTENT}
    assert shelf.authorizations == ["Basic dXNlcjpwYTU1"] * 3


@pytest.mark.parametrize("status", [301, 307, 400, 403, 404])
async def test_a_no_is_taken_at_once(shelf: Shelf, status: int) -> None:
    shelf.statuses += [status]
    with pytest.raises(BadInput, match=f"the server says {status}") as refused:
        await deliver_report(f"http://127.0.0.1:{shelf.port}/r.json?signature=t0ken", CONTENT, HERE)
    assert "t0ken" not in str(refused.value)
    assert len(shelf.authorizations) == 1


async def test_what_stays_broken_is_given_up(shelf: Shelf) -> None:
    shelf.statuses += [503] * 9
    with pytest.raises(NodeFault, match=r"cannot write .* the server says 503, 5 times in a row"):
        await deliver_report(f"http://127.0.0.1:{shelf.port}/r.json", CONTENT, HERE)


async def test_not_into_our_own_network(shelf: Shelf) -> None:
    with pytest.raises(BadInput, match="not public"):
        await deliver_report(f"http://127.0.0.1:{shelf.port}/r.json", CONTENT, MediaPolicy())
    assert shelf.kept == {}


async def test_into_a_file_below_the_allowed_folders(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "way-out").symlink_to(outside)
    policy = MediaPolicy(roots=(inside,))
    assert await deliver_report((inside / "r.json").as_uri(), CONTENT, policy) == (inside / "r.json").as_uri()
    assert (inside / "r.json").read_bytes() == CONTENT
    for target in (outside / "r.json", inside / "way-out" / "r.json", inside / ".." / "outside" / "r.json"):
        with pytest.raises(BadInput, match="outside the folders"):
            await deliver_report(str(target), CONTENT, policy)
    assert list(outside.iterdir()) == []
    with pytest.raises(BadInput, match="cannot be written: No such file"):
        await deliver_report(str(inside / "none" / "r.json"), CONTENT, policy)
