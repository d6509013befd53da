"""Hostile input: each request is refused or bounded, and the server answers the next one."""

import io
import json
import os
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.network_namespace import isolation
from tests.support.project import ROOT
from tests.support.raw_http import RawCaller, raw_caller
from tests.support.redirect_trial import PRIVATE, PUBLIC, TrialResult
from tests.support.serve_process import ServeProcess
from tests.support.video import ffmpeg
from tests.support.waiting import eventually
from tests.support.webserver import WebServer, has, redirects, says

SECRET = "a secret of the machine"
IDLE = 3000  # connections
HOST = "Host: localhost\r\n"


@pytest.fixture(scope="module")
async def public(tmp_path_factory: pytest.TempPathFactory, clips: Path) -> AsyncIterator[ServeProcess]:
    """A server with the usual limits: it reaches no private address, and only one folder."""
    folder = tmp_path_factory.mktemp("public")
    (folder / "secret.txt").write_text(SECRET)
    root = folder / "media"
    root.mkdir()
    for name in ("reference.mkv", "distorted.mp4"):
        (root / name).write_bytes((clips / name).read_bytes())
    (root / "link.mkv").symlink_to(folder / "secret.txt")
    (root / "folder").symlink_to(folder)
    (root / "loop").symlink_to(root / "loop")
    os.mkfifo(root / "pipe.mkv")
    flags = ("--max-upload", "8Mi", "--wait", "60")
    async with ServeProcess(folder, *flags, roots=root, VMAFX_MEDIA_ALLOW_PRIVATE="false") as server:
        yield server


@pytest.fixture(autouse=True)
async def unharmed(public: ServeProcess, clips: Path) -> AsyncIterator[None]:
    """After each test, the server scores, and nothing is left of the test."""
    before = public.pid
    yield
    media = public.folder / "media"
    reply = await public.score(media / "reference.mkv", media / "distorted.mp4")
    assert (reply.status, public.pid) == (200, before), reply.body
    await eventually(lambda: descriptors(public) == [], "no descriptor of an upload is left")
    assert list((public.data / "clips").iterdir()) == []
    assert "Traceback" not in public.log.read_text()


def descriptors(server: ServeProcess) -> list[str]:
    """The files of uploads that the server has open."""
    targets = []
    for link in Path(f"/proc/{server.pid}/fd").iterdir():
        try:
            targets.append(str(link.readlink()))
        except FileNotFoundError:
            continue
    return [target for target in targets if str(server.data / "clips") in target]


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/passwd",
        "/etc/passwd",
        "file:///{media}/../secret.txt",
        "{media}/../secret.txt",
        "file:///{media}/%2e%2e/secret.txt",
        "{media}/link.mkv",
        "{media}/folder/secret.txt",
        "{media}/loop",
        "{media}/pipe.mkv",
        "{media}",
        "/proc/self/environ",
        "/proc/self/fd/0",
        "/dev/zero",
        "file://elsewhere/etc/passwd",
        "relative/secret.txt",
        "secret.txt",
        "concat:/etc/passwd",
        "subfile,,start,0,end,0,,:/etc/passwd",
        "data:text/plain,hello",
    ],
)
async def test_no_file_outside_the_root_is_read(public: ServeProcess, uri: str) -> None:
    media = public.folder / "media"
    reply = await public.score(media / "reference.mkv", uri.replace("{media}", str(media)))
    problem = reply.json()
    assert (reply.status, problem["part"]) == (422, "distorted"), problem
    assert SECRET not in reply.body.decode()


async def test_what_exists_outside_the_root_is_not_revealed(public: ServeProcess) -> None:
    media, outside = public.folder / "media", public.folder
    replies = [
        await public.score(media / "reference.mkv", str(path))
        for path in (outside / "secret.txt", outside / "missing.txt", media / "folder" / "missing.txt")
    ]
    assert {reply.json()["detail"].partition(" is ")[2] for reply in replies} == {
        "outside the folders that VMAFX_MEDIA_ROOTS allows"
    }


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "169.254.169.254", "2130706433"],  # noqa: S104 - not bound
)
async def test_private_addresses_are_not_reached(public: ServeProcess, web: WebServer, host: str) -> None:
    media = public.folder / "media"
    uri = web.serve("/clip.mp4", has((media / "distorted.mp4").read_bytes()), host=host)
    reply = await public.score(media / "reference.mkv", uri)
    assert reply.status in {422, 503}, reply.body
    assert web.requests == []


def test_a_redirect_from_a_public_server_does_not_lead_to_a_private_address(clips: Path, tmp_path: Path) -> None:
    prefix = isolation()
    if prefix is None:
        pytest.fail("this machine does not allow network namespaces, which the test needs (see unshare(1))")
    command = [*prefix, sys.executable, "-m", "tests.support.redirect_trial", str(tmp_path), str(clips)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    result = msgspec.json.decode(ended.stdout, type=TrialResult)
    assert result.replies.pop(PUBLIC)[0] == 200  # a redirect as such is followed
    assert len(result.replies) == len(PRIVATE)
    for host, (status, detail) in result.replies.items():
        assert status == 422, (host, detail)
        assert "a private, loopback or link-local address" in detail
        assert f"/to-{host}.mp4" in detail
    assert result.private_connections == 0


async def test_a_redirect_does_not_lead_to_a_file_or_another_scheme(
    server: ServeProcess, web: WebServer, clips: Path
) -> None:
    """This server may reach private addresses, so that the redirect itself is what is refused."""
    for number, target in enumerate(("file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1:70/")):
        uri = web.serve(f"/{number}.mp4", redirects(target))
        reply = await server.score(clips / "reference.mkv", uri)
        assert reply.status in {422, 503}, reply.body
        assert "root:" not in reply.body.decode()


FORM = "multipart/form-data; boundary=xyz"
FILE = '--xyz\r\nContent-Disposition: form-data; name="{0}"; filename="{0}.mkv"\r\n\r\n'


def upload_head(length: int) -> bytes:
    fields = f"{HOST}Content-Type: {FORM}\r\nContent-Length: {length}\r\n"
    return f"POST /v1/score HTTP/1.1\r\n{fields}\r\n".encode()


async def test_uploads_that_are_cut_short_leave_nothing(public: ServeProcess) -> None:
    start = upload_head(1_000_000)
    part = FILE.format("reference").encode() + b"x" * 400_000
    async with raw_caller(public.port) as caller:
        await caller.send(start + part)
        await eventually(lambda: len(descriptors(public)) == 1, "the upload has begun")
        await caller.hang_up()
    await eventually(lambda: descriptors(public) == [], "the file is closed")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"nothing", 400),
        (b"--xyz--\r\n", 400),
        (FILE.format("reference").encode() + b"abc", 400),
        (FILE.format("other").encode() + b"abc\r\n--xyz--\r\n", 400),
        (
            FILE.format("reference").encode() + b"abc\r\n" + FILE.format("reference").encode() + b"abc\r\n--xyz--\r\n",
            400,
        ),
        (FILE.format("spec").encode() + b"{}\r\n--xyz--\r\n", 400),
        (FILE.format("reference").encode() + b"\r\n--xyz--\r\n", 400),
        (b"".join(FILE.format(f"a{n}").encode() + b"\r\n" for n in range(50)) + b"--xyz--\r\n", 413),
        (b'--xyz\r\nContent-Disposition: form-data; name="spec"\r\n\r\n{"model"\r\n--xyz--\r\n', 400),
        (b'--xyz\r\nContent-Disposition: form-data; name="spec"\r\n\r\n[]\r\n--xyz--\r\n', 400),
        (b'--xyz\r\nContent-Disposition: form-data; name="spec"\r\n\r\n' + b" " * 20_000 + b"\r\n--xyz--\r\n", 413),
        (b'--xyz\r\nContent-Disposition: form-data; name="reference"\r\n\r\n\xff\xfe\r\n--xyz--\r\n', 400),
    ],
)
async def test_a_malformed_form_is_refused(public: ServeProcess, body: bytes, status: int) -> None:
    reply = await public.call("POST", "/v1/score", data=body, headers={"Content-Type": FORM})
    assert reply.status == status, reply.body


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'"text"', 400),
        (b'{"reference": 1, "distorted": 2}', 400),
        (b'{"reference": "a", "reference": "b", "distorted": "c"}', 400),
        (b'{"reference": NaN}', 400),
        (b"[" * 100_000, 400),
        (b'{"a":' * 100_000, 400),
        (b'{"reference": "\\ud800", "distorted": "x"}', 400),
        (b'{"reference": "' + b"x" * 10_000 + b'", "distorted": "x"}', 400),
        (b" " * (2 << 20), 413),
        (b'{"reference": "a\\u0000b", "distorted": "x"}', 422),
        (b"\xff\xfe", 400),
    ],
)
async def test_malformed_json_is_refused(public: ServeProcess, body: bytes, status: int) -> None:
    content = io.BytesIO(body)
    reply = await public.call("POST", "/v1/score", data=content, headers={"Content-Type": "application/json"})
    assert reply.status == status, reply.body


async def test_an_upload_that_is_too_large_is_refused(public: ServeProcess, tmp_path: Path) -> None:
    with (tmp_path / "large.mkv").open("wb") as file:
        file.truncate(9 << 20)
    reply = await public.upload(tmp_path / "large.mkv", "/x")
    assert reply.status == 413
    async with raw_caller(public.port) as caller:
        await caller.send(upload_head(1 << 40).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert (await caller.answer()).status == 413  # without `100 Continue`


async def test_a_million_declared_frames_take_neither_memory_nor_time(public: ServeProcess, tmp_path: Path) -> None:
    """Raw video of a million tiny frames: refused, and if it is enlarged, ended by its deadline."""
    with (tmp_path / "many.yuv").open("wb") as file:
        file.truncate(6 << 20)
    tiny, many = {"width": 2, "height": 2, "pixelFormat": "yuv420p"}, tmp_path / "many.yuv"
    reply = await public.upload(many, many, referenceFormat=tiny, distortedFormat=tiny)
    assert (reply.status, "too small" in reply.json()["detail"]) == (422, True)
    reply = await public.upload(
        many, many, referenceFormat=tiny, distortedFormat=tiny, options={"size": "32x32"}, deadlineSeconds=2,
    )  # fmt: skip
    assert (reply.status, reply.json()["code"]) == (504, "DEADLINE_EXCEEDED")
    assert resident_bytes(public) < 400 << 20


def resident_bytes(server: ServeProcess) -> int:
    return int(Path(f"/proc/{server.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


async def test_more_than_two_million_frames_are_refused(public: ServeProcess, tmp_path: Path) -> None:
    many, pixel = tmp_path / "many.yuv", {"width": 1, "height": 1, "pixelFormat": "gray"}
    with many.open("wb") as file:
        file.truncate(2_000_001)
    reply = await public.upload(
        many, many, referenceFormat=pixel, distortedFormat=pixel, options={"size": "64x64"}
    )  # fmt: skip
    assert (reply.status, "more than 2,000,000 frames" in reply.json()["detail"]) == (422, True), reply.body
    assert resident_bytes(public) < 400 << 20


@pytest.fixture(scope="module")
def mp4(tmp_path_factory: pytest.TempPathFactory, clips: Path) -> bytes:
    path = tmp_path_factory.mktemp("mp4") / "clip.mp4"
    ffmpeg("-i", clips / "reference.mkv", "-c:v", "libx264", "-bf", "0", "-pix_fmt", "yuv420p", path)
    return path.read_bytes()


@pytest.mark.parametrize("frames", [1_000_000, 2**31 - 1])
async def test_a_header_that_claims_a_million_frames_is_refused(
    public: ServeProcess, mp4: bytes, tmp_path: Path, frames: int
) -> None:
    """An MP4 whose tables say that its one chunk has so many frames, of a byte each."""
    content = bytearray(mp4)
    for table, offset, value in (
        (b"stts", 12, struct.pack(">I", frames)),
        (b"stsz", 8, struct.pack(">II", 1, frames)),
        (b"stsc", 16, struct.pack(">I", frames)),
    ):
        at = content.index(table) + offset
        content[at : at + len(value)] = value
    (tmp_path / "claim.mp4").write_bytes(content)
    reply = await public.upload(public.folder / "media" / "reference.mkv", tmp_path / "claim.mp4")
    assert (reply.status, reply.json()["part"]) == (422, "distorted"), reply.body
    assert resident_bytes(public) < 400 << 20


NAMES = [
    "<script>alert(1)</script>.mkv",
    '"><img src=x onerror=alert(1)>.mkv',
    "../../../../etc/passwd",
    "a\tb\x1b[31mred\x07.mkv",
    "x" * 5000 + ".mkv",
    "\u202egpj.mkv",
    "ünïcödé 𝄞.mkv",
    "-rf.mkv",
    "%0d%0aSet-Cookie: a=b",
    "",
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
async def test_a_hostile_name_is_only_shown(public: ServeProcess, name: str) -> None:
    media = public.folder / "media"
    quoted = name.replace("\\", "\\\\").replace('"', "%22").encode()
    part = b'--xyz\r\nContent-Disposition: form-data; name="%s"; filename="%s"\r\n\r\n%s\r\n'
    body = b"".join(
        part % (field, quoted[:900], (media / clip).read_bytes())
        for field, clip in ((b"reference", "reference.mkv"), (b"distorted", "distorted.mp4"))
    )
    reply = await public.call("POST", "/v1/score", data=body + b"--xyz--\r\n", headers={"Content-Type": FORM})
    assert reply.status == 200, reply.body
    result = reply.json()
    shown = result["reference"]["uri"]
    assert shown
    assert shown.isprintable()
    assert len(shown) <= 200
    assert "Set-Cookie" not in reply.headers
    page = (await public.get(result["links"]["page"])).body.decode()
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "\x1b" not in page
    jobs = (await public.get("/v1/jobs?limit=1")).json()["jobs"]
    assert jobs[0]["reference"].isprintable()
    assert "\x1b" not in public.log.read_text()


@pytest.mark.parametrize("path", ["/v1/jobs/<script>", "/%00", "/v1/results/..%2f..%2fetc%2fpasswd/report.html", "//x"])
async def test_a_hostile_path_is_not_found_and_not_quoted(public: ServeProcess, path: str) -> None:
    async with raw_caller(public.port) as caller:
        await caller.send(f"GET {path} HTTP/1.1\r\n{HOST}\r\n".encode())
        answer = await caller.answer()
    assert answer.status in {400, 404}
    assert b"<script>" not in answer.body
    assert answer.headers["content-type"].startswith("application/problem+json") or answer.status == 400


async def test_a_slow_client_does_not_delay_others(public: ServeProcess) -> None:
    async with AsyncExitStack() as stack:
        callers: list[RawCaller] = [await stack.enter_async_context(raw_caller(public.port)) for _ in range(20)]
        head = upload_head(5_000_000)
        for caller in callers:
            await caller.send(head + FILE.format("reference").encode() + b"x")
        await eventually(lambda: len(descriptors(public)) == 20, "all uploads have begun")
        media = public.folder / "media"
        assert (await public.score(media / "reference.mkv", media / "distorted.mp4")).status == 200


async def test_one_address_does_not_take_all_uploads(public: ServeProcess) -> None:
    async with AsyncExitStack() as stack:
        head = upload_head(5_000_000)
        callers = [await stack.enter_async_context(raw_caller(public.port)) for _ in range(128)]
        for caller in callers:
            await caller.send(head + FILE.format("reference").encode() + b"x")
        await eventually(lambda: len(descriptors(public)) == 128, "half of the uploads have begun")
        reply = await public.upload(public.folder / "media" / "reference.mkv", "/x")
        assert (reply.status, "too many requests with a body" in reply.json()["detail"]) == (429, True)


async def test_thousands_of_idle_connections_do_not_keep_others_out(public: ServeProcess) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with AsyncExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * IDLE), hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(IDLE):
            stack.enter_context(socket.create_connection(("127.0.0.1", public.port)))
        assert (await public.get("/healthz")).status == 200
        media = public.folder / "media"
        assert (await public.score(media / "reference.mkv", media / "distorted.mp4")).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_pages_of_other_sites_cannot_post_or_read(public: ServeProcess, headers: dict[str, str]) -> None:
    media = public.folder / "media"
    body = {"reference": str(media / "reference.mkv"), "distorted": str(media / "distorted.mp4")}
    reply = await public.call("POST", "/v1/score", json=body, headers=headers)
    assert (reply.status, reply.json()["code"]) == (403, "PERMISSION_DENIED")
    assert (await public.get("/v1/jobs", headers=headers)).status == 403
    # What a form of another site can send without asking first.
    plain = await public.call("POST", "/v1/score", data=json.dumps(body), headers={"Content-Type": "text/plain"})
    assert plain.status == 415


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", ""]
)
async def test_a_name_that_was_rebound_is_refused(public: ServeProcess, host: str) -> None:
    async with raw_caller(public.port) as caller:
        await caller.send(f"GET /v1/jobs HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        answer = await caller.answer()
    assert answer.status == (421 if host else 400)


async def test_a_name_that_is_allowed_is_accepted(tmp_path: Path, clips: Path) -> None:
    async with ServeProcess(tmp_path, "--hosts", "vmaf.example.com", roots=clips) as server:
        for host, status in (("vmaf.example.com", 200), ("VMAF.example.com:443", 200), ("x.example.com", 421)):
            async with raw_caller(server.port) as caller:
                await caller.send(f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                assert (await caller.answer()).status == status


@pytest.mark.parametrize(
    "content",
    [
        b"\x00" * 100_000,
        b"<html>" * 10_000,
        b"#EXTM3U\nfile:///etc/passwd\n",
        b"RIFF" + os.urandom(5000),
        b"YUV4MPEG2 W100000 H100000 F25:1 C420jpeg\nFRAME\n" + bytes(5000),
    ],
)
async def test_what_is_no_clip_is_refused(public: ServeProcess, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "clip.mp4").write_bytes(content)
    reply = await public.upload(public.folder / "media" / "reference.mkv", tmp_path / "clip.mp4")
    assert (reply.status, reply.json()["part"]) == (422, "distorted"), reply.body


async def test_a_damaged_clip_is_refused_with_a_remedy(public: ServeProcess, tmp_path: Path) -> None:
    whole = tmp_path / "whole.mp4"
    ffmpeg("-i", public.folder / "media" / "reference.mkv", "-c:v", "libx264", "-movflags", "+faststart", whole)
    content = whole.read_bytes()
    (tmp_path / "cut.mp4").write_bytes(content[: len(content) * 2 // 3])
    reply = await public.upload(public.folder / "media" / "reference.mkv", tmp_path / "cut.mp4")
    problem: dict[str, Any] = reply.json()
    assert (reply.status, problem["part"]) == (422, "distorted"), problem


async def test_a_web_server_that_fails_is_named(server: ServeProcess, web: WebServer, clips: Path) -> None:
    reply = await server.score(clips / "reference.mkv", web.serve("/gone.mp4", says(404)))
    assert reply.status in {422, 503}
    assert "/gone.mp4" in reply.json()["detail"]
