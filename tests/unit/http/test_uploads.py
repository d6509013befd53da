"""Uploads over real sockets: what arrives, each limit and one beyond it, and that hostile clients leave no files."""

import asyncio
import hashlib
import io
import json
import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.raw_http import Answer, RawCaller, raw_caller
from tests.support.waiting import eventually
from vmafx.http.address import ListenAddress
from vmafx.http.errors import StatusError
from vmafx.http.limits import ServerLimits, UploadLimits
from vmafx.http.request import HttpRequest
from vmafx.http.responses import JsonStream, Response, json_response
from vmafx.http.server import HttpRoute, Site, serve_http
from vmafx.http.uploads import BLOCK_SIZE, UploadedFile, UploadRate, receive_file, receive_form

HERE = ListenAddress("127.0.0.1", 0)
SERVER = ServerLimits(linger_seconds=0.1)
BIG = bytes(range(256)) * 4096 + b"end"  # a megabyte, in several blocks
FORM = {"Content-Type": "multipart/form-data; boundary=b"}
OnReceived = Callable[[], Awaitable[None]]


def describe(upload: UploadedFile) -> dict[str, Any]:
    """Check what must hold for every file, and describe it for the reply."""
    content = os.pread(upload.fd, upload.size + 1, 0)
    assert len(content) == upload.size
    assert upload.sha256 == hashlib.sha256(content).hexdigest()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(upload.fd, b"x")
    return {"size": upload.size, "sha256": upload.sha256, "name": upload.filename, "type": upload.content_type}


class Store:
    """Handlers that receive uploads into a folder."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.folder = folder
        self.limits = UploadLimits(**{"folder": str(folder), "reserve_bytes": 0, **limits})
        self.started = asyncio.Event()  # a handler has begun to read a body
        self.on_received: OnReceived | None = None  # called while the handler has the files
        self.port = 0

    def open_files(self) -> list[str]:
        """The files in the folder that this process has open, and those that the folder lists."""
        links = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]  # noqa: PTH115
        return [link for link in links if link.startswith(str(self.folder))] + os.listdir(self.folder)  # noqa: PTH208

    async def file(self, request: HttpRequest) -> Response:
        self.started.set()
        async with receive_file(request, self.limits) as upload:
            if self.on_received is not None:
                await self.on_received()
            return json_response(json.dumps(describe(upload)).encode())

    async def form(self, request: HttpRequest) -> Response:
        self.started.set()
        async with receive_form(request, self.limits) as form:
            if self.on_received is not None:
                await self.on_received()
            files = {name: describe(upload) for name, upload in form.files.items()}
            return json_response(json.dumps({"fields": form.fields, "files": files}).encode())

    async def progress(self, request: HttpRequest) -> JsonStream:
        async def objects() -> AsyncGenerator[bytes]:
            yield b'{"state":"receiving"}'
            async with receive_file(request, self.limits) as upload:
                yield json.dumps({"size": upload.size}).encode()

        return JsonStream(objects())

    async def ask(self, path: str, data: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{self.port}") as http,
            http.post(path, data=io.BytesIO(data) if isinstance(data, bytes) else data, headers=headers) as answer,
        ):
            return answer.status, json.loads(await answer.read())

    async def parts(self, *parts: bytes) -> tuple[int, Any]:
        return await self.ask("/form", form(*parts), FORM)

    async def raw(self, *data: bytes) -> Answer:
        async with raw_caller(self.port) as caller:
            for one in data:
                await caller.send(one)
            return await caller.answer()

    async def is_clean(self) -> bool:
        await eventually(lambda: self.open_files() == [], "no file of an upload is left", every=0.01)
        return True


@asynccontextmanager
async def serving(folder: Path, server: ServerLimits = SERVER, **limits: Any) -> AsyncIterator[Store]:
    store = Store(folder, **limits)
    paths = {"/file": store.file, "/form": store.form, "/progress": store.progress}
    site = Site([HttpRoute("POST", path, handler) for path, handler in paths.items()])  # type: ignore[arg-type]
    async with asyncio.timeout(120), serve_http(HERE, site, limits=server) as store.port:
        yield store
        assert await store.is_clean()


def part(name: str, content: bytes, more: str = "", headers: str = "") -> bytes:
    return f'Content-Disposition: form-data; name="{name}"{more}\r\n{headers}\r\n'.encode() + content


def form(*parts: bytes) -> bytes:
    return b"".join(b"--b\r\n" + one + b"\r\n" for one in parts) + b"--b--\r\n"


def file_part(name: str, content: bytes) -> bytes:
    return part(name, content, '; filename="f"')


def head(path: str, *more: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", *more, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


MULTIPART = "Content-Type: multipart/form-data; boundary=b"
CHUNKED = "Transfer-Encoding: chunked"


@pytest.mark.parametrize("content", [b"", b"x", BIG[:BLOCK_SIZE], BIG], ids=len)
async def test_a_body_is_received_as_a_file(tmp_path: Path, content: bytes) -> None:
    async with serving(tmp_path) as store:
        status, reply = await store.ask("/file", content, {"Content-Type": "video/mp4"})
    assert (status, reply["size"], reply["type"]) == (200, len(content), "video/mp4")
    assert reply["sha256"] == hashlib.sha256(content).hexdigest()


async def test_a_form_is_received_as_fields_and_files(tmp_path: Path) -> None:
    data = aiohttp.FormData()
    data.add_field("model", "vmaf_4k ü")
    data.add_field("reference", io.BytesIO(BIG), filename="clip.mp4", content_type="video/mp4")
    data.add_field("distorted", b"", filename="")
    async with serving(tmp_path) as store:
        status, reply = await store.ask("/form", data)
    assert (status, reply["fields"]) == (200, {"model": "vmaf_4k ü"})
    assert reply["files"]["reference"] == {
        "size": len(BIG), "sha256": hashlib.sha256(BIG).hexdigest(), "name": "clip.mp4", "type": "video/mp4",
    }  # fmt: skip
    assert reply["files"]["distorted"]["size"] == 0


async def test_a_file_name_is_safe_to_print_and_limited_in_length(tmp_path: Path) -> None:
    async with serving(tmp_path) as store:
        _, reply = await store.parts(part("f", b"", '; filename="../../etc/pässwd\x1b[1m\t%22"'))
        _, long = await store.parts(part("f", b"", f'; filename="{"x" * 300}"'))
    assert reply["files"]["f"]["name"] == '../../etc/pässwd [1m "'
    assert len(long["files"]["f"]["name"]) == 255


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(
    content=st.lists(st.sampled_from([b"\r", b"\n", b"--", b"b", b"--b", b"\r\n", b"\r\n--", b"x" * 70])).map(b"".join),
    size=st.integers(1, 40),
)
async def test_a_file_is_complete_however_the_body_is_split(tmp_path: Path, content: bytes, size: int) -> None:
    if b"\r\n--b" in b"\r\n" + content:
        return  # that would be the boundary
    whole = form(file_part("f", content), part("g", b"1"))
    pieces = [chunk(whole[at : at + size]) for at in range(0, len(whole), size)]
    async with serving(tmp_path) as store:
        answer = await store.raw(head("/form", MULTIPART, CHUNKED), *pieces, b"0\r\n\r\n")
    assert (answer.status, answer.json()["fields"]) == (200, {"g": "1"})
    assert answer.json()["files"]["f"]["sha256"] == hashlib.sha256(content).hexdigest()


async def test_the_files_have_no_name_and_are_closed_with_the_context(tmp_path: Path) -> None:
    async with serving(tmp_path) as store:
        held: list[str] = []

        async def look() -> None:
            assert os.listdir(tmp_path) == []  # noqa: PTH208
            held.extend(store.open_files())

        store.on_received = look
        await store.parts(file_part("a", b"1"), file_part("b", BIG))
        assert len(held) == 2


async def test_a_stream_can_receive_a_file_and_report_progress(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as store,
        aiohttp.ClientSession(f"http://127.0.0.1:{store.port}") as http,
        http.post("/progress", data=io.BytesIO(BIG)) as answer,
    ):
        assert [json.loads(line) async for line in answer.content] == [{"state": "receiving"}, {"size": len(BIG)}]


LIMITS: list[tuple[dict[str, Any], bytes, bytes]] = [
    ({"file_bytes": 1000}, form(file_part("a", b"x" * 1000)), form(file_part("a", b"x" * 1001))),
    ({"file_bytes": 1000}, form(*[file_part(n, b"x" * 1000) for n in "ab"]), form(file_part("a", b"x" * 300_000))),
    ({"field_bytes": 10}, form(part("a", b"x" * 10)), form(part("a", b"x" * 11))),
    ({"files": 2}, form(*[file_part(n, b"") for n in "ab"]), form(*[file_part(n, b"") for n in "abc"])),
    ({"files": 0}, form(part("a", b"")), form(file_part("a", b""))),
    ({"parts": 3}, form(*[part(n, b"") for n in "abc"]), form(*[part(n, b"") for n in "abcd"])),
    ({"part_headers": 2}, form(part("a", b"", headers="A: b\r\n")), form(part("a", b"", headers="A: b\r\nC: d\r\n"))),
    (
        {"part_header_bytes": 100},
        form(part("a", b"", headers=f"A: {'x' * 97}\r\n")),
        form(part("a", b"", headers=f"A: {'x' * 98}\r\n")),
    ),
    (
        {"total_bytes": len(form(part("a", b"x")))},
        form(part("a", b"x")),
        form(part("a", b"xx")),
    ),
]


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize(("limits", "at", "beyond"), LIMITS, ids=[next(iter(limits)) for limits, _, _ in LIMITS])
async def test_a_form_at_each_limit_is_accepted_and_one_beyond_is_rejected(
    tmp_path: Path, limits: dict[str, Any], at: bytes, beyond: bytes, chunked: bool
) -> None:
    async with serving(tmp_path, **limits) as store:
        for body, wanted in ((at, 200), (beyond, 413)):
            how = CHUNKED if chunked else f"Content-Length: {len(body)}"
            answer = await store.raw(head("/form", MULTIPART, how), chunk(body) + b"0\r\n\r\n" if chunked else body)
            assert answer.status == wanted
        assert (answer.json()["code"], answer.headers["connection"]) == ("INVALID_ARGUMENT", "close")


@pytest.mark.parametrize("limits", [{"file_bytes": 1000}, {"total_bytes": 1000}])
@pytest.mark.parametrize("size", [1000, 1001])
async def test_the_size_of_a_body_is_limited(tmp_path: Path, limits: dict[str, Any], size: int) -> None:
    async with serving(tmp_path, **limits) as store:
        by_length = await store.raw(head("/file", f"Content-Length: {size}"), b"x" * size)
        in_chunks = await store.raw(head("/file", CHUNKED), chunk(b"x" * 999), chunk(b"x" * (size - 999)), b"0\r\n\r\n")
    assert by_length.status == in_chunks.status == (200 if size == 1000 else 413)


async def test_names_of_parts_are_limited_in_length_and_unique(tmp_path: Path) -> None:
    async with serving(tmp_path, name_characters=5) as store:
        assert (await store.parts(part("a" * 5, b"")))[0] == 200
        for name in ("a" * 6, "", "a\tb", "\x1b[1m"):
            assert (await store.parts(part(name, b"")))[0] == 400
        for duplicates in ((part("a", b""), part("a", b"")), (part("a", b""), file_part("a", b""))):
            status, reply = await store.parts(*duplicates)
            assert (status, reply["message"]) == (400, "the form has more than one part 'a'")


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("multipart/form-data; boundary=b", 200),
        ('Multipart/Form-Data; boundary="b"', 200),
        (f"multipart/form-data; boundary={'b' * 71}", 415),
        ("multipart/form-data", 415),
        ("multipart/form-data; boundary=", 415),
        ("multipart/mixed; boundary=b", 415),
        ("application/json", 415),
        ("multipart/form-data" + '; x="' * 1000, 415),
    ],
)
async def test_the_content_type_of_a_form_is_checked(tmp_path: Path, content_type: str, status: int) -> None:
    async with serving(tmp_path) as store:
        got, _ = await store.ask("/form", form(part("a", b"")), {"Content-Type": content_type})
    assert got == status


async def test_a_boundary_must_be_ascii(tmp_path: Path) -> None:
    async with serving(tmp_path) as store:
        request = head("/form", "Content-Length: 0", 'Content-Type: multipart/form-data; boundary="?"')
        assert (await store.raw(request.replace(b"?", b"\xff"))).status == 415


async def test_a_compressed_body_is_rejected(tmp_path: Path) -> None:
    async with serving(tmp_path) as store:
        for path in ("/file", "/form"):
            headers = ["Content-Length: 2", "Content-Encoding: gzip", MULTIPART]
            assert (await store.raw(head(path, *headers), b"xx")).status == 415


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not a form",
        b"--b",
        b"--b\r\n",
        form(part("a", b""))[:-4],  # without its end
        b"--b\r\n\r\nx\r\n--b--\r\n",  # without headers
        form(b"Content-Disposition: attachment; name=a\r\n\r\nx"),
        form(b"Content-Disposition: form-data\r\n\r\nx"),  # without a name
        form(part("a", b"x", headers="Content-Length: 2\r\n")),
        form(part("a", b"x", headers="Content-Length: -1\r\n")),
        form(part("a", b"x", headers="Broken\r\n")),
        form(part("a", b"x", headers="\xff: x\r\n")),
        form(part("a", b"\xff")),  # a field that is not UTF-8
        form(file_part("f", BIG)).replace(b"--b--", b"--c--"),
    ],
)
async def test_a_malformed_form_is_rejected(tmp_path: Path, body: bytes) -> None:
    async with serving(tmp_path) as store:
        status, reply = await store.ask("/form", body, FORM)
        assert (status, reply["code"]) == (400, "INVALID_ARGUMENT")
        assert len(reply["message"]) < 200


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [b"--b", b"--", b"\r\n", b"Content-Disposition: form-data; name=", b'"a"', b'; filename="f"', b":"]
        )
        | st.binary(max_size=8)
    ).map(b"".join)
)
async def test_no_random_form_causes_an_internal_error(tmp_path: Path, body: bytes) -> None:
    async with serving(tmp_path, parts=3, part_header_bytes=50) as store:
        assert (await store.ask("/form", body, FORM))[0] in {200, 400, 413}


async def send_until_response(caller: RawCaller, data: bytes) -> Answer:
    """Keep sending until the server responds."""

    async def send() -> None:
        while True:
            await caller.send(data)

    sending = asyncio.create_task(send())
    try:
        return await caller.answer()
    finally:
        sending.cancel()
        await asyncio.wait({sending})


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("/file", b""),
        ("/form", b"--b\r\n" + file_part("f", b"")),
        ("/form", b"--b\r\n" + part("a", b"")),
        ("/form", b"--b\r\nX: "),  # an endless header
        ("/form", b"--b--\r\n"),  # data after the end of the form
        ("/form", b""),  # data before its start
    ],
)
async def test_an_endless_body_is_rejected_and_the_connection_closed(tmp_path: Path, path: str, first: bytes) -> None:
    async with serving(tmp_path, total_bytes=5 << 20) as store, raw_caller(store.port) as caller:
        await caller.send(head(path, MULTIPART, CHUNKED) + (chunk(first) if first else b""))
        answer = await send_until_response(caller, chunk(b"x" * 65536))
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert await caller.is_closed()


async def test_ten_thousand_parts_are_rejected(tmp_path: Path) -> None:
    async with serving(tmp_path) as store, raw_caller(store.port) as caller:
        await caller.send(head("/form", MULTIPART, CHUNKED))
        parts = b"".join(b"--b\r\n" + file_part(f"f{n}", b"") + b"\r\n" for n in range(10_000))
        await caller.send(chunk(parts))
        assert (await caller.answer()).status == 413


async def test_a_stalled_upload_times_out(tmp_path: Path) -> None:
    async with serving(tmp_path, stall_seconds=0.1) as store:
        for path, first in (("/file", b""), ("/file", b"x"), ("/form", b"--b\r\n" + file_part("f", b"x"))):
            answer = await store.raw(head(path, MULTIPART, "Content-Length: 1000") + first)
            assert (answer.status, answer.json()["message"]) == (408, "the body arrives too slowly")


async def test_a_very_slow_upload_times_out(tmp_path: Path) -> None:
    async with serving(tmp_path, stall_seconds=3600, block_seconds=0.3) as store, raw_caller(store.port) as caller:
        await caller.send(head("/file", CHUNKED))

        async def drip() -> None:
            while True:
                await caller.send(chunk(b"x"))
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        assert (await caller.answer()).status == 408
        dripping.cancel()
        await asyncio.wait({dripping})


def test_each_block_has_its_own_timeout() -> None:
    rate = UploadRate(UploadLimits(stall_seconds=30, block_seconds=60))
    assert rate.timeout() == 30  # for the first byte
    rate.received(BLOCK_SIZE - 1, 40)
    assert rate.timeout() == 20  # for the rest of the block
    rate.received(1, 15)
    assert rate.timeout() == 30  # for a new block
    rate.received(10 * BLOCK_SIZE, 29)
    assert rate.timeout() == 30


@pytest.mark.parametrize(
    ("path", "body"),
    [("/file", BIG), ("/form", b"--b\r\n" + file_part("a", BIG) + b"\r\n--b\r\n" + file_part("b", BIG))],
)
@pytest.mark.parametrize("graceful", [False, True])
async def test_an_upload_cut_short_leaves_no_files(tmp_path: Path, path: str, body: bytes, graceful: bool) -> None:
    async with serving(tmp_path) as store, raw_caller(store.port) as caller:
        await caller.send(head(path, MULTIPART, "Content-Length: 99999999") + body)
        await eventually(store.open_files, "the upload has started", every=0.01)
        if graceful:
            caller.writer.close()
        else:
            await caller.hang_up()
        assert await store.is_clean()


async def test_data_after_a_body_is_not_taken_for_a_request(tmp_path: Path) -> None:
    async with serving(tmp_path) as store, raw_caller(store.port) as caller:
        await caller.send(head("/file", "Content-Length: 3") + b"abc")
        assert (await caller.answer()).json()["size"] == 3
        await caller.send(b"def\r\n\r\n")
        assert (await caller.answer(body=False)).status == 400  # not an HTTP request
        assert await caller.is_closed()


async def test_malformed_chunks_end_the_upload(tmp_path: Path) -> None:
    """400, or 408 if the handler is already reading: aiohttp does not report the error to it then."""
    async with serving(tmp_path, stall_seconds=0.1) as store, raw_caller(store.port) as caller:
        await caller.send(head("/file", CHUNKED) + chunk(b"abc"))
        await store.started.wait()
        await caller.send(b"no chunk\r\n")
        assert (await caller.answer()).status in {400, 408}
        assert await caller.is_closed()


@pytest.mark.parametrize("error", [RuntimeError(), StatusError("ABORTED", ""), OSError()])
async def test_a_failed_handler_leaves_no_files(tmp_path: Path, error: Exception) -> None:
    async def fail() -> None:
        raise error

    async with serving(tmp_path) as store:
        store.on_received = fail
        status, _ = await store.parts(file_part("a", BIG))
        assert status in {500, 409}
        assert store.open_files() == []


async def test_a_client_that_disconnects_during_the_handler_leaves_no_files(tmp_path: Path) -> None:
    in_use = asyncio.Event()

    async def forever() -> None:
        in_use.set()
        await asyncio.Event().wait()

    async with serving(tmp_path) as store, raw_caller(store.port) as caller:
        store.on_received = forever
        await caller.send(head("/file", "Content-Length: 3") + b"abc")
        await in_use.wait()
        assert store.open_files()
        await caller.hang_up()
        assert await store.is_clean()


async def test_stopping_the_server_ends_uploads_of_connected_clients(tmp_path: Path) -> None:
    store = Store(tmp_path)
    site = Site([HttpRoute("POST", "/file", store.file)])
    async with AsyncExitStack() as stays_connected:
        async with asyncio.timeout(120), serve_http(HERE, site, limits=ServerLimits(stop_seconds=0.1)) as store.port:
            caller = await stays_connected.enter_async_context(raw_caller(store.port))
            await caller.send(head("/file", CHUNKED) + chunk(BIG))
            await eventually(store.open_files, "the upload has started", every=0.01)
        assert store.open_files() == []


async def test_uploads_leave_the_disk_reserve_free(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    async with serving(tmp_path, reserve_bytes=free + (1 << 40)) as store:
        for path, data in (("/file", b"x"), ("/form", form(file_part("f", b"x")))):
            status, reply = await store.ask(path, data, FORM)
            assert (status, reply["code"]) == (507, "RESOURCE_EXHAUSTED")
        assert (await store.parts(part("a", b"x")))[0] == 200  # a field takes no disk space


async def test_an_upload_larger_than_the_disk_is_rejected_before_its_body(tmp_path: Path) -> None:
    length = shutil.disk_usage(tmp_path).total + 1
    async with serving(tmp_path, file_bytes=2 * length, total_bytes=2 * length) as store:
        assert (await store.raw(head("/file", f"Content-Length: {length}"))).status == 507


async def test_a_missing_folder_is_an_internal_error(tmp_path: Path) -> None:
    async with serving(tmp_path) as store:
        store.limits = msgspec.structs.replace(store.limits, folder=str(tmp_path / "gone"))
        assert (await store.ask("/file", b"x"))[0] == 500


async def test_continue_is_sent_only_for_an_acceptable_length(tmp_path: Path) -> None:
    async with serving(tmp_path, file_bytes=1000) as store:
        for size, statuses in ((1000, [100, 200]), (1001, [413])):
            async with raw_caller(store.port) as caller:
                await caller.send(head("/file", f"Content-Length: {size}", "Expect: 100-continue"))
                for status in statuses:
                    assert (await caller.answer()).status == status
                    await caller.send(b"x" * size if status == 100 else b"")
