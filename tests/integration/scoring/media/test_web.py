"""Clips over HTTP, from a server that misbehaves on a real socket."""

import asyncio
import gzip
import hashlib
import os
import random
import resource
import socket
import tempfile
from pathlib import Path

import msgspec
import pytest

from tests.support.closed_port import closed_port
from tests.support.waiting import eventually
from tests.support.webserver import (
    Request,
    WebServer,
    hangs_up,
    has,
    head,
    says,
    stalls,
    without_end,
)
from vmafx.backoff import Backoff
from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.media.access import open_media
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.retry import RetryPolicy

CLIP = random.Random(1).randbytes(6 << 20)
OTHER = random.Random(2).randbytes(5 << 20)
AT_ONCE = RetryPolicy(backoff=Backoff(0.0, 0.0), max_asked=0.0)
HERE = MediaPolicy(private=True, retry=AT_ONCE, reserve=0)


def staged() -> list[Path]:
    """What this process holds open of the temporary folder."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [link for link in links if str(link.readlink()).startswith(tempfile.gettempdir())]


async def content(uri: str, policy: MediaPolicy = HERE) -> bytes:
    """The clip, after checking all that must hold of any."""
    async with open_media(uri, "reference", policy) as opened:
        found = os.pread(opened.fd, opened.size + 1, 0)
        assert opened.size == len(found)
        assert opened.digest == hashlib.sha256(found).hexdigest()
        assert staged() == [Path(f"/proc/self/fd/{opened.fd}")]
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(opened.fd, b"x")
    assert staged() == []
    return found


async def refusal(uri: str, policy: MediaPolicy = HERE) -> str:
    with pytest.raises(BadInput) as refused:
        await asyncio.wait_for(content(uri, policy), 30)
    assert refused.value.part == "reference"
    return refused.value.why


def resumed(server: WebServer) -> list[int | None]:
    """Where each request went on; None for one that asked for all."""
    return [int(asked[6:-1]) if asked else None for asked in server.asked("range")]


async def fault(uri: str, policy: MediaPolicy = HERE) -> str:
    with pytest.raises(NodeFault) as failed:
        await asyncio.wait_for(content(uri, policy), 30)
    return str(failed.value)


async def test_a_clip_comes_whole(server: WebServer) -> None:
    assert await content(server.serve("/a.mp4", has(CLIP))) == CLIP
    assert server.asked("accept-encoding") == ["identity"]
    assert server.asked("range") == [None]


async def test_a_body_without_a_length_comes_whole(server: WebServer) -> None:
    async def chunked(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, {"Transfer-Encoding": "chunked"}))
        for start in range(0, len(CLIP), 1 << 18):
            writer.write(b"%x\r\n" % (1 << 18) + CLIP[start : start + (1 << 18)] + b"\r\n")
        writer.write(b"0\r\n\r\n")

    assert await content(server.serve("/a.mp4", chunked)) == CLIP


async def test_progress_is_told(server: WebServer) -> None:
    told: list[tuple[int, int | None]] = []
    uri = server.serve("/a.mp4", has(CLIP))
    async with open_media(uri, "reference", HERE, lambda done, total: told.append((done, total))):
        pass
    assert told[-1] == (len(CLIP), len(CLIP))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len(told) >= 4


async def test_nothing_has_a_name_while_it_is_staged(server: WebServer, temp_folder: Path) -> None:
    seen: list[list[Path]] = []
    uri = server.serve("/a.mp4", has(CLIP))
    async with open_media(uri, "reference", HERE, lambda *_: seen.append(list(temp_folder.iterdir()))) as opened:
        seen.append(list(temp_folder.iterdir()))
        assert os.readlink(f"/proc/self/fd/{opened.fd}").startswith(str(temp_folder))  # noqa: PTH115
    assert seen == [[]] * len(seen)


async def test_where_unnamed_files_are_unknown_the_name_goes_at_once(
    server: WebServer, temp_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def without_tmpfile(path: str, flags: int, mode: int = 0o777, **more: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", without_tmpfile)
    seen: list[list[Path]] = []
    uri = server.serve("/a.mp4", has(CLIP))
    async with open_media(uri, "reference", HERE, lambda *_: seen.append(list(temp_folder.iterdir()))) as opened:
        assert opened.size == len(CLIP)
    assert seen == [[]] * len(seen)


async def test_a_broken_connection_goes_on_where_it_broke(server: WebServer) -> None:
    uri = server.serve("/a.mp4", has(CLIP, cut=2_000_000), has(CLIP, cut=1_500_000), has(CLIP))
    assert await content(uri) == CLIP
    first, second, third = resumed(server)
    assert first is None
    assert second is not None
    assert third is not None
    assert 1 << 20 <= second <= 2_000_000
    assert second + (1 << 20) <= third <= second + 1_500_000
    assert server.asked("if-range") == [None, '"one"', '"one"']


async def test_any_number_of_breaks_is_borne_while_it_gets_on(server: WebServer) -> None:
    assert await content(server.serve("/a.mp4", has(CLIP, cut=600_000))) == CLIP
    assert len(server.requests) > 10


async def test_without_a_strong_etag_the_date_tells_versions_apart(server: WebServer) -> None:
    date = "Fri, 02 Jan 2026 03:04:05 GMT"
    uri = server.serve(
        "/a.mp4", has(CLIP, etag='W/"1"', Last_Modified=date, cut=2_000_000), has(CLIP, Last_Modified=date)
    )
    assert await content(uri) == CLIP
    assert server.asked("if-range") == [None, date]


async def test_without_either_it_starts_over(server: WebServer) -> None:
    assert await content(server.serve("/a.mp4", has(CLIP, etag="", cut=2_000_000), has(CLIP, etag=""))) == CLIP
    assert server.asked("range") == [None, None]


async def test_a_server_that_ignores_ranges_starts_over(server: WebServer) -> None:
    assert await content(server.serve("/a.mp4", has(CLIP, cut=2_000_000), has(CLIP, ranges=False))) == CLIP
    assert all(resumed(server)[1:])


async def test_a_server_that_ignores_ranges_and_always_breaks_is_given_up(server: WebServer) -> None:
    said = await fault(server.serve("/a.mp4", has(CLIP, cut=2_000_000, ranges=False)))
    assert "the connection broke, 5 times in a row" in said
    assert len(server.requests) == 5


async def test_a_changed_clip_is_fetched_anew(server: WebServer) -> None:
    assert await content(server.serve("/a.mp4", has(CLIP, cut=2_000_000), has(OTHER, etag='"two"'))) == OTHER
    assert server.asked("if-range") == [None, '"one"']


async def test_of_a_clip_that_became_shorter_nothing_old_stays(server: WebServer) -> None:
    assert await content(server.serve("/a.mp4", has(CLIP, cut=2_000_000), has(b"short", etag='"two"'))) == b"short"


@pytest.mark.parametrize(
    ("shift", "total", "more"),
    [
        (1, len(CLIP), {}),
        (-1, len(CLIP), {}),
        (0, len(CLIP) + 1, {}),
        (0, len(CLIP), {"ETag": '"two"'}),
        (None, len(CLIP), {}),
        (0, "nonsense", {}),
    ],
)
async def test_a_part_that_does_not_fit_is_not_taken(
    server: WebServer, shift: int | None, total: int | str, more: dict[str, str | int]
) -> None:
    async def misfit(request: Request, writer: asyncio.StreamWriter) -> None:
        start = int(request.headers["range"][6:-1]) + (shift or 0)
        headers: dict[str, str | int] = {"Content-Length": len(CLIP) - start, **more}
        if shift is not None:
            headers["Content-Range"] = f"bytes {start}-{len(CLIP) - 1}/{total}"
        writer.write(head(206, headers) + CLIP[start:])

    assert await content(server.serve("/a.mp4", has(CLIP, cut=2_000_000), misfit, has(CLIP))) == CLIP
    assert len(server.requests) == 3
    assert resumed(server)[2] is None


async def test_a_part_of_the_part_is_taken(server: WebServer) -> None:
    """A server may give less than was asked for."""

    async def little(request: Request, writer: asyncio.StreamWriter) -> None:
        start = int(request.headers["range"][6:-1])
        span = f"bytes {start}-{start + 999}/{len(CLIP)}"
        writer.write(
            head(206, {"Content-Length": 1000, "ETag": '"one"', "Content-Range": span}) + CLIP[start : start + 1000]
        )

    assert await content(server.serve("/a.mp4", has(CLIP, cut=2_000_000), little, has(CLIP))) == CLIP
    _, second, third = resumed(server)
    assert second is not None
    assert third == second + 1000


async def test_a_part_tells_the_length_that_the_beginning_did_not(server: WebServer) -> None:
    """Without it, a connection that is merely closed would pass for the end."""

    async def begins(_request: Request, writer: asyncio.StreamWriter) -> None:
        chunk = CLIP[: 2 << 20]
        writer.write(head(200, {"Transfer-Encoding": "chunked", "ETag": '"one"'}) + b"%x\r\n" % len(chunk) + chunk)

    async def goes_on(request: Request, writer: asyncio.StreamWriter) -> None:
        start = int(request.headers["range"][6:-1])
        span = f"bytes {start}-{len(CLIP) - 1}/{len(CLIP)}"
        writer.write(head(206, {"ETag": '"one"', "Content-Range": span}) + CLIP[start : 4 << 20])

    assert await content(server.serve("/a.mp4", begins, goes_on, has(CLIP))) == CLIP
    assert len(server.requests) == 3


async def test_a_range_that_cannot_be_starts_over(server: WebServer) -> None:
    assert await content(server.serve("/a.mp4", has(CLIP, cut=2_000_000), says(416), has(OTHER))) == OTHER


async def test_a_part_that_nobody_asked_for_is_not_taken(server: WebServer) -> None:
    part = says(206, CLIP[:1000], Content_Range=f"bytes 0-999/{len(CLIP)}")
    assert "does not go on" in await fault(server.serve("/a.mp4", part))


async def test_a_stalled_body_goes_on_in_another_request(server: WebServer) -> None:
    policy = msgspec.structs.replace(HERE, stall_seconds=3.0)  # longer than a busy machine stands still
    assert await content(server.serve("/a.mp4", stalls(CLIP, 2_000_000), has(CLIP)), policy) == CLIP
    assert resumed(server) == [None, 2_000_000]


@pytest.mark.parametrize("begin", [0, 3 << 20])
async def test_a_body_that_trickles_is_too_slow(server: WebServer, begin: int) -> None:
    async def trickles(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, {"Content-Length": len(CLIP)}) + CLIP[:begin])
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    policy = msgspec.structs.replace(HERE, block_seconds=0.1)
    assert "it comes too slowly" in await fault(server.serve("/a.mp4", trickles), policy)


async def test_a_server_that_never_answers_is_given_up(server: WebServer) -> None:
    async def silent(_request: Request, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    policy = msgspec.structs.replace(HERE, stall_seconds=0.05)
    assert "nothing came for too long" in await fault(server.serve("/a.mp4", silent), policy)


async def test_trouble_that_passes_is_waited_out(server: WebServer) -> None:
    uri = server.serve("/a.mp4", says(500), hangs_up(), says(429, Retry_After=1), says(503), has(CLIP))
    assert await content(uri) == CLIP
    assert len(server.requests) == 5


async def test_a_server_is_given_the_time_that_it_asks_for(server: WebServer) -> None:
    waits: list[float | None] = []

    class Told(RetryPolicy, frozen=True):
        def wait(self, failures: int, asked: float | None) -> float:
            waits.append(asked)
            return 0.0

    uri = server.serve("/a.mp4", says(503, Retry_After=3600), has(CLIP))
    assert await content(uri, msgspec.structs.replace(HERE, retry=Told())) == CLIP
    assert waits == [3600]


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
async def test_trouble_that_stays_is_the_nodes(server: WebServer, status: int) -> None:
    assert f"the server says {status}, 5 times in a row" in await fault(server.serve("/a.mp4", says(status)))


@pytest.mark.parametrize(
    ("status", "why"),
    [
        *((status, "no permission") for status in (401, 403)),
        *((status, "there is no such file") for status in (404, 410)),
        *((status, "sends no file") for status in (204, 300, 304, 400)),
    ],
)
async def test_a_no_is_taken_at_once(server: WebServer, status: int, why: str) -> None:
    assert why in await refusal(server.serve("/a.mp4", says(status)))
    assert len(server.requests) == 1


async def test_nobody_there() -> None:
    with closed_port() as port:
        assert "no connection" in await fault(f"http://127.0.0.1:{port}/a.mp4")


async def test_a_host_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """As any resolver says it; where none can be reached, one may take a minute for that."""

    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown, raising=False)
    assert "cannot be resolved, 5 times" in await fault("http://host.invalid/a.mp4")


@pytest.mark.parametrize(
    "uri", ["http://" + "a" * 70 + ".example/a", "http://a..b/a", "http://xn--/a", "http://é..é/a"]
)
async def test_a_host_that_cannot_exist(uri: str) -> None:
    with pytest.raises((BadInput, NodeFault)):
        await content(uri)


async def test_what_is_no_http(server: WebServer) -> None:
    async def other(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")

    assert "the answer is no HTTP" in await fault(server.serve("/a.mp4", other))


async def test_an_empty_clip(server: WebServer) -> None:
    assert "is empty" in await refusal(server.serve("/a.mp4", says(200)))


async def test_a_clip_that_says_it_is_too_large_is_refused_before_its_body(server: WebServer) -> None:
    policy = msgspec.structs.replace(HERE, max_bytes=1 << 20)
    uri = server.serve("/a.mp4", stalls(CLIP, 0))
    assert "larger than the 1 MiB allowed" in await refusal(uri, policy)


async def test_a_body_without_end_is_cut(server: WebServer, temp_folder: Path) -> None:
    written: list[int] = []
    policy = msgspec.structs.replace(HERE, max_bytes=3 << 20)
    sent: list[int] = []
    uri = server.serve("/a.mp4", without_end(sent))
    with pytest.raises(BadInput, match="larger than the 3 MiB allowed"):
        async with (
            asyncio.timeout(30),
            open_media(uri, "reference", policy, lambda done, _: written.append(done)),
        ):
            pass
    assert max(written) <= 3 << 20
    assert list(temp_folder.iterdir()) == []


async def test_a_compressed_body_is_refused(server: WebServer) -> None:
    bomb = gzip.compress(bytes(50 << 20))
    uri = server.serve("/a.mp4", says(200, bomb, Content_Encoding="gzip"))
    assert "compressed (gzip)" in await refusal(uri)
    assert await content(server.serve("/b.mp4", says(200, CLIP, Content_Encoding="identity"))) == CLIP


async def test_a_full_disk_is_the_nodes_fault(server: WebServer, temp_folder: Path) -> None:
    policy = msgspec.structs.replace(HERE, reserve=1 << 62)
    said = await fault(server.serve("/a.mp4", stalls(CLIP, 0)), policy)
    assert f"{temp_folder} has no room" in said
    assert "of 6 MiB" in said
    assert "has no room" in await fault(server.serve("/b.mp4", without_end([])), policy)
    assert len(server.requests) == 2


async def test_a_disk_that_fails_while_it_is_written_is_the_nodes_fault(server: WebServer) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, limits[1]))
    try:
        assert "has no room" in await fault(server.serve("/a.mp4", has(CLIP)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(server.requests) == 1


async def test_without_a_temporary_folder(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert "no file can be made in /nowhere" in await fault(server.serve("/a.mp4", has(CLIP)))


async def test_cancelled_in_the_middle_everything_is_closed(server: WebServer, temp_folder: Path) -> None:
    came = asyncio.Event()

    async def use() -> None:
        uri = server.serve("/a.mp4", stalls(CLIP, 3 << 20))
        async with open_media(uri, "reference", HERE, lambda *_: came.set()):
            pass

    task = asyncio.create_task(use())
    await asyncio.wait_for(came.wait(), 20)
    assert len(staged()) == 1
    assert list(temp_folder.iterdir()) == []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert staged() == []
    await eventually(lambda: server.open == 0, "the connection is gone")
