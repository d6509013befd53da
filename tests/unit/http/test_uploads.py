"""Uploads by real sockets: what arrives, each limit at and one beyond it, and that hostile callers leave nothing."""

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
from vmafx.http.errors import CallRefused
from vmafx.http.limits import ServerLimits, UploadLimits
from vmafx.http.request import HttpRequest
from vmafx.http.responses import JsonStream, Response, json_response
from vmafx.http.server import HttpRoute, Site, serve_http
from vmafx.http.uploads import BLOCK_SIZE, UploadedFile, UploadRate, receive_file, receive_form

HERE = ListenAddress("127.0.0.1", 0)
SERVER = ServerLimits(linger_seconds=0.1)
BIG = bytes(range(256)) * 4096 + b"end"  # a megabyte, in several blocks
FORM = {"Content-Type": "multipart/form-data; boundary=b"}
Inside = Callable[[], Awaitable[None]]


def seen(upload: UploadedFile) -> dict[str, Any]:
    """What a handler finds, after checking what must hold of any file."""
    content = os.pread(upload.fd, upload.size + 1, 0)
    assert len(content) == upload.size
    assert upload.sha256 == hashlib.sha256(content).hexdigest()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(upload.fd, b"x")
    return {"size": upload.size, "sha256": upload.sha256, "name": upload.filename, "type": upload.content_type}


class Store:
    """A server that takes uploads, and the folder that it stages them in."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.folder = folder
        self.limits = UploadLimits(**{"folder": str(folder), "reserve_bytes": 0, **limits})
        self.begun = asyncio.Event()  # a handler reads a body
        self.inside: Inside | None = None  # what a handler does while it has the files
        self.port = 0

    def open_files(self) -> list[str]:
        """What this process holds open of the folder, and what the folder lists."""
        links = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]  # noqa: PTH115
        return [link for link in links if link.startswith(str(self.folder))] + os.listdir(self.folder)  # noqa: PTH208

    async def file(self, request: HttpRequest) -> Response:
        self.begun.set()
        async with receive_file(request, self.limits) as upload:
            if self.inside is not None:
                await self.inside()
            return json_response(json.dumps(seen(upload)).encode())

    async def form(self, request: HttpRequest) -> Response:
        self.begun.set()
        async with receive_form(request, self.limits) as form:
            if self.inside is not None:
                await self.inside()
            files = {name: seen(upload) for name, upload in form.files.items()}
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
        await eventually(lambda: self.open_files() == [], "nothing is left of an upload", every=0.01)
        return True


@asynccontextmanager
async def store(folder: Path, server: ServerLimits = SERVER, **limits: Any) -> AsyncIterator[Store]:
    made = Store(folder, **limits)
    paths = {"/file": made.file, "/form": made.form, "/progress": made.progress}
    site = Site([HttpRoute("POST", path, handler) for path, handler in paths.items()])  # type: ignore[arg-type]
    async with asyncio.timeout(120), serve_http(HERE, site, limits=server) as made.port:
        yield made
        assert await made.is_clean()


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
async def test_a_body_is_a_file(tmp_path: Path, content: bytes) -> None:
    async with store(tmp_path) as there:
        status, said = await there.ask("/file", content, {"Content-Type": "video/mp4"})
    assert (status, said["size"], said["type"]) == (200, len(content), "video/mp4")
    assert said["sha256"] == hashlib.sha256(content).hexdigest()


async def test_a_form_has_fields_and_files(tmp_path: Path) -> None:
    data = aiohttp.FormData()
    data.add_field("model", "vmaf_4k ü")
    data.add_field("reference", io.BytesIO(BIG), filename="clip.mp4", content_type="video/mp4")
    data.add_field("distorted", b"", filename="")
    async with store(tmp_path) as there:
        status, said = await there.ask("/form", data)
    assert (status, said["fields"]) == (200, {"model": "vmaf_4k ü"})
    assert said["files"]["reference"] == {
        "size": len(BIG), "sha256": hashlib.sha256(BIG).hexdigest(), "name": "clip.mp4", "type": "video/mp4",
    }  # fmt: skip
    assert said["files"]["distorted"]["size"] == 0


async def test_a_file_name_is_only_to_be_shown(tmp_path: Path) -> None:
    async with store(tmp_path) as there:
        _, said = await there.parts(part("f", b"", '; filename="../../etc/pässwd\x1b[1m\t%22"'))
        _, long = await there.parts(part("f", b"", f'; filename="{"x" * 300}"'))
    assert said["files"]["f"]["name"] == '../../etc/pässwd [1m "'
    assert len(long["files"]["f"]["name"]) == 255


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(
    content=st.lists(st.sampled_from([b"\r", b"\n", b"--", b"b", b"--b", b"\r\n", b"\r\n--", b"x" * 70])).map(b"".join),
    size=st.integers(1, 40),
)
async def test_a_file_is_whole_wherever_the_pieces_break(tmp_path: Path, content: bytes, size: int) -> None:
    if b"\r\n--b" in b"\r\n" + content:
        return  # that would be the boundary
    whole = form(file_part("f", content), part("g", b"1"))
    pieces = [chunk(whole[at : at + size]) for at in range(0, len(whole), size)]
    async with store(tmp_path) as there:
        answer = await there.raw(head("/form", MULTIPART, CHUNKED), *pieces, b"0\r\n\r\n")
    assert (answer.status, answer.json()["fields"]) == (200, {"g": "1"})
    assert answer.json()["files"]["f"]["sha256"] == hashlib.sha256(content).hexdigest()


async def test_the_files_have_no_name_and_go_with_the_context(tmp_path: Path) -> None:
    async with store(tmp_path) as there:
        held: list[str] = []

        async def look() -> None:
            assert os.listdir(tmp_path) == []  # noqa: PTH208
            held.extend(there.open_files())

        there.inside = look
        await there.parts(file_part("a", b"1"), file_part("b", BIG))
        assert len(held) == 2


async def test_a_stream_may_receive_and_tell_how_it_goes(tmp_path: Path) -> None:
    async with (
        store(tmp_path) as there,
        aiohttp.ClientSession(f"http://127.0.0.1:{there.port}") as http,
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
async def test_each_limit_at_and_one_beyond(
    tmp_path: Path, limits: dict[str, Any], at: bytes, beyond: bytes, chunked: bool
) -> None:
    async with store(tmp_path, **limits) as there:
        for body, wanted in ((at, 200), (beyond, 413)):
            how = CHUNKED if chunked else f"Content-Length: {len(body)}"
            answer = await there.raw(head("/form", MULTIPART, how), chunk(body) + b"0\r\n\r\n" if chunked else body)
            assert answer.status == wanted
        assert (answer.json()["code"], answer.headers["connection"]) == ("INVALID_ARGUMENT", "close")


@pytest.mark.parametrize("limits", [{"file_bytes": 1000}, {"total_bytes": 1000}])
@pytest.mark.parametrize("size", [1000, 1001])
async def test_a_body_is_a_file_of_limited_size(tmp_path: Path, limits: dict[str, Any], size: int) -> None:
    async with store(tmp_path, **limits) as there:
        by_length = await there.raw(head("/file", f"Content-Length: {size}"), b"x" * size)
        in_chunks = await there.raw(head("/file", CHUNKED), chunk(b"x" * 999), chunk(b"x" * (size - 999)), b"0\r\n\r\n")
    assert by_length.status == in_chunks.status == (200 if size == 1000 else 413)


async def test_names_have_a_length_and_stand_once(tmp_path: Path) -> None:
    async with store(tmp_path, name_characters=5) as there:
        assert (await there.parts(part("a" * 5, b"")))[0] == 200
        for name in ("a" * 6, "", "a\tb", "\x1b[1m"):
            assert (await there.parts(part(name, b"")))[0] == 400
        for twice in ((part("a", b""), part("a", b"")), (part("a", b""), file_part("a", b""))):
            status, said = await there.parts(*twice)
            assert (status, said["message"]) == (400, "the part 'a' stands twice in the form")


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
async def test_a_form_says_that_it_is_one(tmp_path: Path, content_type: str, status: int) -> None:
    async with store(tmp_path) as there:
        got, _ = await there.ask("/form", form(part("a", b"")), {"Content-Type": content_type})
    assert got == status


async def test_a_boundary_is_ascii(tmp_path: Path) -> None:
    async with store(tmp_path) as there:
        asked = head("/form", "Content-Length: 0", 'Content-Type: multipart/form-data; boundary="?"')
        assert (await there.raw(asked.replace(b"?", b"\xff"))).status == 415


async def test_no_body_is_decompressed(tmp_path: Path) -> None:
    async with store(tmp_path) as there:
        for path in ("/file", "/form"):
            headers = ["Content-Length: 2", "Content-Encoding: gzip", MULTIPART]
            assert (await there.raw(head(path, *headers), b"xx")).status == 415


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nothing of the kind",
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
        form(part("a", b"\xff")),  # a field that is no text
        form(file_part("f", BIG)).replace(b"--b--", b"--c--"),
    ],
)
async def test_what_is_no_form_is_refused(tmp_path: Path, body: bytes) -> None:
    async with store(tmp_path) as there:
        status, said = await there.ask("/form", body, FORM)
        assert (status, said["code"]) == (400, "INVALID_ARGUMENT")
        assert len(said["message"]) < 200


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [b"--b", b"--", b"\r\n", b"Content-Disposition: form-data; name=", b'"a"', b'; filename="f"', b":"]
        )
        | st.binary(max_size=8)
    ).map(b"".join)
)
async def test_no_form_breaks_it(tmp_path: Path, body: bytes) -> None:
    async with store(tmp_path, parts=3, part_header_bytes=50) as there:
        assert (await there.ask("/form", body, FORM))[0] in {200, 400, 413}


async def sends_until_answered(caller: RawCaller, data: bytes) -> Answer:
    """Goes on sending, whatever the server says or does, until it says something."""

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
        ("/form", b"--b\r\nX: "),  # a header without an end
        ("/form", b"--b--\r\n"),  # and what comes after the form
        ("/form", b""),  # or before it
    ],
)
async def test_a_body_without_an_end_is_cut_off(tmp_path: Path, path: str, first: bytes) -> None:
    async with store(tmp_path, total_bytes=5 << 20) as there, raw_caller(there.port) as caller:
        await caller.send(head(path, MULTIPART, CHUNKED) + (chunk(first) if first else b""))
        answer = await sends_until_answered(caller, chunk(b"x" * 65536))
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert await caller.is_closed()


async def test_ten_thousand_parts_are_cut_off(tmp_path: Path) -> None:
    async with store(tmp_path) as there, raw_caller(there.port) as caller:
        await caller.send(head("/form", MULTIPART, CHUNKED))
        parts = b"".join(b"--b\r\n" + file_part(f"f{n}", b"") + b"\r\n" for n in range(10_000))
        await caller.send(chunk(parts))
        assert (await caller.answer()).status == 413


async def test_who_stalls_is_not_waited_for(tmp_path: Path) -> None:
    async with store(tmp_path, stall_seconds=0.1) as there:
        for path, first in (("/file", b""), ("/file", b"x"), ("/form", b"--b\r\n" + file_part("f", b"x"))):
            answer = await there.raw(head(path, MULTIPART, "Content-Length: 1000") + first)
            assert (answer.status, answer.json()["message"]) == (408, "the body comes too slowly")


async def test_who_drips_is_not_waited_for(tmp_path: Path) -> None:
    async with store(tmp_path, stall_seconds=3600, block_seconds=0.3) as there, raw_caller(there.port) as caller:
        await caller.send(head("/file", CHUNKED))

        async def drip() -> None:
            while True:
                await caller.send(chunk(b"x"))
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        assert (await caller.answer()).status == 408
        dripping.cancel()
        await asyncio.wait({dripping})


def test_each_block_has_its_own_time() -> None:
    pace = UploadRate(UploadLimits(stall_seconds=30, block_seconds=60))
    assert pace.patience() == 30  # for the first byte
    pace.came(BLOCK_SIZE - 1, 40)
    assert pace.patience() == 20  # for the rest of the block
    pace.came(1, 15)
    assert pace.patience() == 30  # of a new one
    pace.came(10 * BLOCK_SIZE, 29)
    assert pace.patience() == 30


@pytest.mark.parametrize(
    ("path", "body"),
    [("/file", BIG), ("/form", b"--b\r\n" + file_part("a", BIG) + b"\r\n--b\r\n" + file_part("b", BIG))],
)
@pytest.mark.parametrize("polite", [False, True])
async def test_who_leaves_in_the_middle_leaves_nothing(tmp_path: Path, path: str, body: bytes, polite: bool) -> None:
    async with store(tmp_path) as there, raw_caller(there.port) as caller:
        await caller.send(head(path, MULTIPART, "Content-Length: 99999999") + body)
        await eventually(there.open_files, "the upload is on its way", every=0.01)
        if polite:
            caller.writer.close()
        else:
            await caller.hang_up()
        assert await there.is_clean()


async def test_a_length_that_is_too_short_makes_no_second_request(tmp_path: Path) -> None:
    async with store(tmp_path) as there, raw_caller(there.port) as caller:
        await caller.send(head("/file", "Content-Length: 3") + b"abc")
        assert (await caller.answer()).json()["size"] == 3
        await caller.send(b"def\r\n\r\n")
        assert (await caller.answer(body=False)).status == 400  # it is no request
        assert await caller.is_closed()


async def test_what_is_not_in_chunks_is_no_file(tmp_path: Path) -> None:
    """aiohttp does not say so to who reads the body already; then it ends as any other stall."""
    async with store(tmp_path, stall_seconds=0.1) as there, raw_caller(there.port) as caller:
        await caller.send(head("/file", CHUNKED) + chunk(b"abc"))
        await there.begun.wait()
        await caller.send(b"no chunk\r\n")
        assert (await caller.answer()).status in {400, 408}
        assert await caller.is_closed()


@pytest.mark.parametrize("error", [RuntimeError(), CallRefused("ABORTED", ""), OSError()])
async def test_a_handler_that_fails_leaves_nothing(tmp_path: Path, error: Exception) -> None:
    async def fail() -> None:
        raise error

    async with store(tmp_path) as there:
        there.inside = fail
        status, _ = await there.parts(file_part("a", BIG))
        assert status in {500, 409}
        assert there.open_files() == []


async def test_a_caller_who_leaves_while_the_files_are_used_leaves_nothing(tmp_path: Path) -> None:
    in_use = asyncio.Event()

    async def forever() -> None:
        in_use.set()
        await asyncio.Event().wait()

    async with store(tmp_path) as there, raw_caller(there.port) as caller:
        there.inside = forever
        await caller.send(head("/file", "Content-Length: 3") + b"abc")
        await in_use.wait()
        assert there.open_files()
        await caller.hang_up()
        assert await there.is_clean()


async def test_the_end_of_the_server_is_the_end_of_uploads(tmp_path: Path) -> None:
    """Its caller stays, and would send more."""
    there = Store(tmp_path)
    site = Site([HttpRoute("POST", "/file", there.file)])
    async with AsyncExitStack() as caller_stays:
        async with asyncio.timeout(120), serve_http(HERE, site, limits=ServerLimits(stop_seconds=0.1)) as there.port:
            caller = await caller_stays.enter_async_context(raw_caller(there.port))
            await caller.send(head("/file", CHUNKED) + chunk(BIG))
            await eventually(there.open_files, "the upload is on its way", every=0.01)
        assert there.open_files() == []


async def test_the_reserve_of_the_disk_is_left(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    async with store(tmp_path, reserve_bytes=free + (1 << 40)) as there:
        for path, data in (("/file", b"x"), ("/form", form(file_part("f", b"x")))):
            status, said = await there.ask(path, data, FORM)
            assert (status, said["code"]) == (507, "RESOURCE_EXHAUSTED")
        assert (await there.parts(part("a", b"x")))[0] == 200  # which takes no room


async def test_what_will_not_fit_is_refused_before_it_comes(tmp_path: Path) -> None:
    length = shutil.disk_usage(tmp_path).total + 1
    async with store(tmp_path, file_bytes=2 * length, total_bytes=2 * length) as there:
        assert (await there.raw(head("/file", f"Content-Length: {length}"))).status == 507


async def test_a_folder_that_is_gone_is_the_servers_fault(tmp_path: Path) -> None:
    async with store(tmp_path) as there:
        there.limits = msgspec.structs.replace(there.limits, folder=str(tmp_path / "gone"))
        assert (await there.ask("/file", b"x"))[0] == 500


async def test_the_caller_is_asked_for_the_body_only_when_it_may_come(tmp_path: Path) -> None:
    async with store(tmp_path, file_bytes=1000) as there:
        for size, statuses in ((1000, [100, 200]), (1001, [413])):
            async with raw_caller(there.port) as caller:
                await caller.send(head("/file", f"Content-Length: {size}", "Expect: 100-continue"))
                for status in statuses:
                    assert (await caller.answer()).status == status
                    await caller.send(b"x" * size if status == 100 else b"")
