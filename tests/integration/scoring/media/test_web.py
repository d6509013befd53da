"""Downloads by HTTP from a misbehaving server on a real socket: resuming, limits, errors."""

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
NO_DELAY = RetryPolicy(backoff=Backoff(0.0, 0.0), max_asked=0.0)
HERE = MediaPolicy(private=True, retry=NO_DELAY, reserve=0)


def open_downloads() -> list[Path]:
    """The descriptors of this process that are files in the temporary folder."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [link for link in links if str(link.readlink()).startswith(tempfile.gettempdir())]


async def content(uri: str, policy: MediaPolicy = HERE) -> bytes:
    """Downloads a clip and checks its size, its digest and its descriptor."""
    async with open_media(uri, "reference", policy) as opened:
        found = os.pread(opened.fd, opened.size + 1, 0)
        assert opened.size == len(found)
        assert opened.digest == hashlib.sha256(found).hexdigest()
        assert open_downloads() == [Path(f"/proc/self/fd/{opened.fd}")]
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(opened.fd, b"x")
    assert open_downloads() == []
    return found


async def refusal(uri: str, policy: MediaPolicy = HERE) -> str:
    with pytest.raises(BadInput) as refused:
        await asyncio.wait_for(content(uri, policy), 30)
    assert refused.value.part == "reference"
    return refused.value.why


def requested_offsets(server: WebServer) -> list[int | None]:
    """The first byte that each request asked for; None if it asked for the whole file."""
    return [int(value[6:-1]) if value else None for value in server.asked("range")]


async def fault(uri: str, policy: MediaPolicy = HERE) -> str:
    with pytest.raises(NodeFault) as failed:
        await asyncio.wait_for(content(uri, policy), 30)
    return str(failed.value)


async def test_a_clip_is_downloaded(server: WebServer) -> None:
    assert await content(server.serve("/a.mp4", has(CLIP))) == CLIP
    assert server.asked("accept-encoding") == ["identity"]
    assert server.asked("range") == [None]


async def test_a_chunked_body_is_downloaded(server: WebServer) -> None:
    async def chunked(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, {"Transfer-Encoding": "chunked"}))
        for start in range(0, len(CLIP), 1 << 18):
            writer.write(b"%x\r\n" % (1 << 18) + CLIP[start : start + (1 << 18)] + b"\r\n")
        writer.write(b"0\r\n\r\n")

    assert await content(server.serve("/a.mp4", chunked)) == CLIP


async def test_progress_is_reported(server: WebServer) -> None:
    updates: list[tuple[int, int | None]] = []
    uri = server.serve("/a.mp4", has(CLIP))
    async with open_media(uri, "reference", HERE, lambda done, total: updates.append((done, total))):
        pass
    assert updates[-1] == (len(CLIP), len(CLIP))
    assert [done for done, _ in updates] == sorted(done for done, _ in updates)
    assert len(updates) >= 4


async def test_the_temporary_file_has_no_name(server: WebServer, temp_folder: Path) -> None:
    seen: list[list[Path]] = []
    uri = server.serve("/a.mp4", has(CLIP))
    async with open_media(uri, "reference", HERE, lambda *_: seen.append(list(temp_folder.iterdir()))) as opened:
        seen.append(list(temp_folder.iterdir()))
        assert os.readlink(f"/proc/self/fd/{opened.fd}").startswith(str(temp_folder))  # noqa: PTH115
    assert seen == [[]] * len(seen)


async def test_without_o_tmpfile_the_temporary_file_is_unlinked_at_once(
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


async def test_a_lost_connection_is_resumed(server: WebServer) -> None:
    uri = server.serve("/a.mp4", has(CLIP, cut=2_000_000), has(CLIP, cut=1_500_000), has(CLIP))
    assert await content(uri) == CLIP
    first, second, third = requested_offsets(server)
    assert first is None
    assert second is not None
    assert third is not None
    assert 1 << 20 <= second <= 2_000_000
    assert second + (1 << 20) <= third <= second + 1_500_000
    assert server.asked("if-range") == [None, '"one"', '"one"']


async def test_a_download_that_makes_progress_is_resumed_any_number_of_times(server: WebServer) -> None:
    assert await content(server.serve("/a.mp4", has(CLIP, cut=600_000))) == CLIP
    assert len(server.requests) > 10


async def test_without_a_strong_etag_last_modified_identifies_the_version(server: WebServer) -> None:
    date = "Fri, 02 Jan 2026 03:04:05 GMT"
    uri = server.serve(
        "/a.mp4", has(CLIP, etag='W/"1"', Last_Modified=date, cut=2_000_000), has(CLIP, Last_Modified=date)
    )
    assert await content(uri) == CLIP
    assert server.asked("if-range") == [None, date]


async def test_without_etag_and_last_modified_the_download_starts_over(server: WebServer) -> None:
    assert await content(server.serve("/a.mp4", has(CLIP, etag="", cut=2_000_000), has(CLIP, etag=""))) == CLIP
    assert server.asked("range") == [None, None]


async def test_a_download_from_a_server_without_ranges_starts_over(server: WebServer) -> None:
    assert await content(server.serve("/a.mp4", has(CLIP, cut=2_000_000), has(CLIP, ranges=False))) == CLIP
    assert all(requested_offsets(server)[1:])


async def test_a_server_without_ranges_that_always_disconnects_is_a_node_fault(server: WebServer) -> None:
    message = await fault(server.serve("/a.mp4", has(CLIP, cut=2_000_000, ranges=False)))
    assert "the connection was lost, 5 times in a row" in message
    assert len(server.requests) == 5


async def test_a_clip_that_changed_is_downloaded_again(server: WebServer) -> None:
    assert await content(server.serve("/a.mp4", has(CLIP, cut=2_000_000), has(OTHER, etag='"two"'))) == OTHER
    assert server.asked("if-range") == [None, '"one"']


async def test_a_clip_that_became_shorter_has_no_old_bytes(server: WebServer) -> None:
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
async def test_a_wrong_partial_response_is_discarded(
    server: WebServer, shift: int | None, total: int | str, more: dict[str, str | int]
) -> None:
    async def wrong_part(request: Request, writer: asyncio.StreamWriter) -> None:
        start = int(request.headers["range"][6:-1]) + (shift or 0)
        headers: dict[str, str | int] = {"Content-Length": len(CLIP) - start, **more}
        if shift is not None:
            headers["Content-Range"] = f"bytes {start}-{len(CLIP) - 1}/{total}"
        writer.write(head(206, headers) + CLIP[start:])

    assert await content(server.serve("/a.mp4", has(CLIP, cut=2_000_000), wrong_part, has(CLIP))) == CLIP
    assert len(server.requests) == 3
    assert requested_offsets(server)[2] is None


async def test_a_shorter_partial_response_than_requested_is_used(server: WebServer) -> None:
    async def short_part(request: Request, writer: asyncio.StreamWriter) -> None:
        start = int(request.headers["range"][6:-1])
        span = f"bytes {start}-{start + 999}/{len(CLIP)}"
        writer.write(
            head(206, {"Content-Length": 1000, "ETag": '"one"', "Content-Range": span}) + CLIP[start : start + 1000]
        )

    assert await content(server.serve("/a.mp4", has(CLIP, cut=2_000_000), short_part, has(CLIP))) == CLIP
    _, second, third = requested_offsets(server)
    assert second is not None
    assert third == second + 1000


async def test_a_partial_response_supplies_the_missing_total(server: WebServer) -> None:
    """Without the total, a closed connection would look like the end of the clip."""

    async def first_part(_request: Request, writer: asyncio.StreamWriter) -> None:
        chunk = CLIP[: 2 << 20]
        writer.write(head(200, {"Transfer-Encoding": "chunked", "ETag": '"one"'}) + b"%x\r\n" % len(chunk) + chunk)

    async def second_part(request: Request, writer: asyncio.StreamWriter) -> None:
        start = int(request.headers["range"][6:-1])
        span = f"bytes {start}-{len(CLIP) - 1}/{len(CLIP)}"
        writer.write(head(206, {"ETag": '"one"', "Content-Range": span}) + CLIP[start : 4 << 20])

    assert await content(server.serve("/a.mp4", first_part, second_part, has(CLIP))) == CLIP
    assert len(server.requests) == 3


async def test_after_416_the_download_starts_over(server: WebServer) -> None:
    assert await content(server.serve("/a.mp4", has(CLIP, cut=2_000_000), says(416), has(OTHER))) == OTHER


async def test_an_unrequested_partial_response_is_an_error(server: WebServer) -> None:
    part = says(206, CLIP[:1000], Content_Range=f"bytes 0-999/{len(CLIP)}")
    assert "did not resume" in await fault(server.serve("/a.mp4", part))


async def test_a_stalled_download_is_resumed(server: WebServer) -> None:
    policy = msgspec.structs.replace(HERE, stall_seconds=3.0)  # longer than a busy machine pauses
    assert await content(server.serve("/a.mp4", stalls(CLIP, 2_000_000), has(CLIP)), policy) == CLIP
    assert requested_offsets(server) == [None, 2_000_000]


@pytest.mark.parametrize("begin", [0, 3 << 20])
async def test_a_trickling_body_is_too_slow(server: WebServer, begin: int) -> None:
    async def trickles(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, {"Content-Length": len(CLIP)}) + CLIP[:begin])
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    policy = msgspec.structs.replace(HERE, block_seconds=0.1)
    assert "the transfer is too slow" in await fault(server.serve("/a.mp4", trickles), policy)


async def test_a_server_that_never_answers_is_a_node_fault(server: WebServer) -> None:
    async def silent(_request: Request, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    policy = msgspec.structs.replace(HERE, stall_seconds=0.05)
    assert "the server sent no data for too long" in await fault(server.serve("/a.mp4", silent), policy)


async def test_temporary_errors_are_retried(server: WebServer) -> None:
    uri = server.serve("/a.mp4", says(500), hangs_up(), says(429, Retry_After=1), says(503), has(CLIP))
    assert await content(uri) == CLIP
    assert len(server.requests) == 5


async def test_retry_after_is_passed_to_the_retry_policy(server: WebServer) -> None:
    waits: list[float | None] = []

    class Recording(RetryPolicy, frozen=True):
        def wait(self, failures: int, asked: float | None) -> float:
            waits.append(asked)
            return 0.0

    uri = server.serve("/a.mp4", says(503, Retry_After=3600), has(CLIP))
    assert await content(uri, msgspec.structs.replace(HERE, retry=Recording())) == CLIP
    assert waits == [3600]


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
async def test_permanent_server_errors_are_a_node_fault(server: WebServer, status: int) -> None:
    assert f"the server answered {status}, 5 times in a row" in await fault(server.serve("/a.mp4", says(status)))


@pytest.mark.parametrize(
    ("status", "why"),
    [
        *((status, "permission denied") for status in (401, 403)),
        *((status, "file not found") for status in (404, 410)),
        *((status, "sent no file") for status in (204, 300, 304, 400)),
    ],
)
async def test_client_errors_are_not_retried(server: WebServer, status: int, why: str) -> None:
    assert why in await refusal(server.serve("/a.mp4", says(status)))
    assert len(server.requests) == 1


async def test_a_refused_connection_is_a_node_fault() -> None:
    with closed_port() as port:
        assert "could not connect" in await fault(f"http://127.0.0.1:{port}/a.mp4")


async def test_an_unknown_host_is_a_node_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lookup is replaced, since a real one may take a minute without a resolver."""

    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown, raising=False)
    assert "could not be resolved, 5 times" in await fault("http://host.invalid/a.mp4")


@pytest.mark.parametrize(
    "uri", ["http://" + "a" * 70 + ".example/a", "http://a..b/a", "http://xn--/a", "http://é..é/a"]
)
async def test_an_invalid_host_name_is_an_error(uri: str) -> None:
    with pytest.raises((BadInput, NodeFault)):
        await content(uri)


async def test_a_response_that_is_not_http_is_a_node_fault(server: WebServer) -> None:
    async def other(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")

    assert "the server did not answer with valid HTTP" in await fault(server.serve("/a.mp4", other))


async def test_an_empty_clip_is_refused(server: WebServer) -> None:
    assert "is empty" in await refusal(server.serve("/a.mp4", says(200)))


async def test_a_clip_with_too_large_a_content_length_is_refused_before_its_body(server: WebServer) -> None:
    policy = msgspec.structs.replace(HERE, max_bytes=1 << 20)
    uri = server.serve("/a.mp4", stalls(CLIP, 0))
    assert "larger than the 1 MiB allowed" in await refusal(uri, policy)


async def test_an_endless_body_is_cut_off_at_the_limit(server: WebServer, temp_folder: Path) -> None:
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


async def test_a_full_disk_is_a_node_fault(server: WebServer, temp_folder: Path) -> None:
    policy = msgspec.structs.replace(HERE, reserve=1 << 62)
    message = await fault(server.serve("/a.mp4", stalls(CLIP, 0)), policy)
    assert f"of 6 MiB: not enough free space in {temp_folder}" in message
    assert "not enough free space" in await fault(server.serve("/b.mp4", without_end([])), policy)
    assert len(server.requests) == 2


async def test_a_write_error_is_a_node_fault(server: WebServer) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, limits[1]))
    try:
        assert "not enough free space" in await fault(server.serve("/a.mp4", has(CLIP)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(server.requests) == 1


async def test_a_missing_temporary_folder_is_a_node_fault(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert "cannot create a file in /nowhere" in await fault(server.serve("/a.mp4", has(CLIP)))


async def test_a_cancelled_download_closes_its_file_and_connection(server: WebServer, temp_folder: Path) -> None:
    received = asyncio.Event()

    async def use() -> None:
        uri = server.serve("/a.mp4", stalls(CLIP, 3 << 20))
        async with open_media(uri, "reference", HERE, lambda *_: received.set()):
            pass

    task = asyncio.create_task(use())
    await asyncio.wait_for(received.wait(), 20)
    assert len(open_downloads()) == 1
    assert list(temp_folder.iterdir()) == []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert open_downloads() == []
    await eventually(lambda: server.open == 0, "the connection is closed")
