"""Object stores: an S3 gateway and an emulator of Google Cloud Storage, both real servers."""

import asyncio
import hashlib
import os
import random
import sys
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.closed_port import closed_port
from tests.support.object_stores import SECRET, built, running, s3_gateway, s3_variables
from tests.support.tcp_server import LOCAL, TcpServer
from vmafx.backoff import Backoff
from vmafx.devcluster.cluster import free_port
from vmafx.scoring.errors import BadInput, NodeFault, ScoringError
from vmafx.scoring.media.access import deliver_report, open_media, stored_size, upload_file
from vmafx.scoring.media.object_store import ObjectStore, fetch_object
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.retry import RetryPolicy
from vmafx.scoring.media.staging import StagedFile
from vmafx.scoring.media.uri import SCHEMES, locate

pytestmark = pytest.mark.timeout(600)  # a server may have to be built first
CLIP = random.Random(1).randbytes(20 << 20)
OTHER = random.Random(2).randbytes(18 << 20)
HERE = MediaPolicy(retry=RetryPolicy(backoff=Backoff(0.0, 0.0), max_asked=0.0), reserve=0, connect_seconds=5.0)


class Relay(TcpServer):
    """A proxy to a server. Connection n is closed after `cuts[n]` response bytes, if that is set."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.cuts: deque[int | None] = deque()
        self.relayed = 0
        self._upstream_port = port

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cut = self.cuts.popleft() if self.cuts else None
        upstream, to_upstream = await asyncio.open_connection(LOCAL, self._upstream_port)
        copies = [
            asyncio.ensure_future(self._copy_request(reader, to_upstream)),
            asyncio.ensure_future(self._copy_response(upstream, writer, cut)),
        ]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            to_upstream.transport.abort()
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)
        writer.close()
        await writer.wait_closed()

    async def _copy_request(self, reader: asyncio.StreamReader, to_upstream: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            to_upstream.write(chunk)
            await to_upstream.drain()

    async def _copy_response(
        self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: int | None
    ) -> None:
        left = sys.maxsize if cut is None else cut
        while left and (chunk := await upstream.read(min(left, 65536))):
            writer.write(chunk)
            await writer.drain()
            self.relayed += len(chunk)
            left -= len(chunk)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """Its folder `clips`, which is a bucket, and its port."""
    folder = tmp_path_factory.mktemp("s3")
    (folder / "data" / "clips" / "folder").mkdir(parents=True)
    (folder / "data" / "clips" / "folder" / "a.mp4").write_bytes(CLIP)
    (folder / "data" / "clips" / "empty.mp4").write_bytes(b"")
    for port in s3_gateway(folder):
        yield folder / "data" / "clips", port


@pytest.fixture
async def relay(gateway: tuple[Path, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Relay]:
    """A relay to the gateway, with valid credentials in the environment."""
    async with Relay(gateway[1]) as relay:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        for name, value in s3_variables(relay.port, tmp_path).items():
            monkeypatch.setenv(name, value)
        yield relay


def ignore_progress(_done: int, _total: int | None) -> None:
    pass


async def content(
    uri: str, policy: MediaPolicy = HERE, progress: Callable[[int, int | None], None] = ignore_progress
) -> bytes:
    async with open_media(uri, "reference", policy, progress) as opened:
        found = os.pread(opened.fd, opened.size + 1, 0)
        assert (opened.size, opened.display_name) == (len(found), uri)
        assert opened.digest == hashlib.sha256(found).hexdigest()
    return found


async def failure(uri: str, kind: type[ScoringError], policy: MediaPolicy = HERE) -> str:
    with pytest.raises(kind) as failed:
        await content(uri, policy)
    assert SECRET not in "".join(traceback.format_exception(failed.value))
    return str(failed.value)


async def test_an_object_is_downloaded(relay: Relay, temp_folder: Path) -> None:
    updates: list[tuple[int, int | None, int]] = []
    found = await content(
        "s3://clips/folder/a.mp4",
        progress=lambda done, total: updates.append((done, total, len(list(temp_folder.iterdir())))),
    )
    assert found == CLIP
    assert updates == [(8 << 20, 20 << 20, 0), (16 << 20, 20 << 20, 0), (20 << 20, 20 << 20, 0)]


async def test_a_lost_connection_is_resumed_at_the_same_block(relay: Relay) -> None:
    relay.cuts.extend([None, None, 3_000_000, 0, None, 100])
    assert await content("s3://clips/folder/a.mp4") == CLIP
    assert relay.relayed < len(CLIP) + 4_000_000
    assert not relay.cuts


async def test_a_store_that_always_disconnects_is_a_node_fault(relay: Relay) -> None:
    relay.cuts.extend([0] * 50)
    assert "5 times in a row" in await failure("s3://clips/folder/a.mp4", NodeFault)
    assert 5 <= relay.connections <= 10  # aiohttp itself retries a connection that was lost at once


async def test_an_object_that_changes_is_downloaded_again(relay: Relay, gateway: tuple[Path, int]) -> None:
    file = gateway[0] / "changing.mp4"
    file.write_bytes(CLIP)

    def change(done: int, _total: int | None) -> None:
        if done == 8 << 20 and file.stat().st_size == len(CLIP):  # only once
            file.write_bytes(OTHER)

    assert await content("s3://clips/changing.mp4", progress=change) == OTHER


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("s3://clips/none.mp4", "there is no such object"),
        ("s3://no-such-bucket/a.mp4", "there is no such object"),
        ("s3://clips/folder", "it is a folder"),
        ("s3://clips/empty.mp4", "is empty"),
        ("s3://No_Bucket..at-all/a.mp4", "check bucket and key"),
    ],
)
async def test_missing_empty_and_invalid_objects_are_refused(relay: Relay, uri: str, why: str) -> None:
    assert why in await failure(uri, BadInput)


async def test_a_too_large_object_is_refused_before_the_download(relay: Relay) -> None:
    policy = msgspec.structs.replace(HERE, max_bytes=len(CLIP) - 1)
    assert "larger than the 20 MiB allowed" in await failure("s3://clips/folder/a.mp4", BadInput, policy)
    assert relay.relayed < 10_000


async def test_a_full_disk_is_a_node_fault(relay: Relay) -> None:
    policy = msgspec.structs.replace(HERE, reserve=1 << 62)
    assert "not enough free space" in await failure("s3://clips/folder/a.mp4", NodeFault, policy)
    assert relay.relayed < 10_000


@pytest.mark.parametrize(
    "variables",
    [{"AWS_SECRET_ACCESS_KEY": "wrong"}, {"AWS_PROFILE": "none"}, {}],
)
async def test_the_error_without_permission_names_the_variables_to_set(
    relay: Relay, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    if not variables:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    message = await failure("s3://clips/folder/a.mp4", BadInput)
    assert "permission denied" in message
    assert "set AWS_ACCESS_KEY_ID" in message


async def test_an_unreachable_store_is_a_node_fault(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_port() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        assert "5 times in a row" in await failure("s3://clips/folder/a.mp4", NodeFault)


async def test_a_cancelled_download_closes_its_file(relay: Relay, temp_folder: Path) -> None:
    received = asyncio.Event()
    relay.cuts.extend([None, None])
    task = asyncio.create_task(content("s3://clips/folder/a.mp4", progress=lambda *_: received.set()))
    await asyncio.wait_for(received.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert [link for link in links if str(temp_folder) in str(link.readlink())] == []


@pytest.mark.parametrize(("scheme", "package", "extra"), [("s3", "s3fs", "s3"), ("gs", "gcsfs.core", "gcs")])
async def test_a_missing_extra_is_a_node_fault(
    monkeypatch: pytest.MonkeyPatch, scheme: str, package: str, extra: str
) -> None:
    monkeypatch.delitem(sys.modules, SCHEMES[scheme].module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(NodeFault, match=rf"{scheme}:// needs `pip install 'vmafx\[{extra}\]'`"):
        await content(f"{scheme}://clips/a.mp4")


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """An emulator of Google Cloud Storage with public objects."""
    folder = tmp_path_factory.mktemp("gs")
    (folder / "data" / "clips" / "folder").mkdir(parents=True)
    (folder / "data" / "clips" / "folder" / "a.mp4").write_bytes(CLIP)
    program = built("github.com/fsouza/fake-gcs-server", "v1.56.1")
    port = free_port()
    where = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    yield from running([str(program), *where, "-backend", "memory", "-data", str(folder / "data")], folder, port)


@pytest.fixture
async def gs(google: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Relay]:
    async with Relay(google) as relay:
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{relay.port}")
        yield relay


async def test_a_google_object_is_downloaded(gs: Relay) -> None:
    assert await content("gs://clips/folder/a.mp4") == CLIP


@pytest.mark.parametrize("uri", ["gs://clips/none.mp4", "gs://no-such-bucket/a.mp4"])
async def test_a_missing_google_object_is_refused(gs: Relay, uri: str) -> None:
    assert "there is no such object" in await failure(uri, BadInput)


async def test_a_google_folder_is_refused(gs: Relay) -> None:
    assert "it is a folder" in await failure("gs://clips/folder", BadInput)


class ScriptedStore:
    """An fsspec file system for faults that no server can produce: each read returns or raises the next of `script`."""

    def __init__(self, *script: Exception | bytes) -> None:
        self.script, self.reads = deque(script), 0

    async def _info(self, _path: str) -> dict[str, Any]:
        return {"type": "file", "size": 4, "mtime": self.reads if not self.script else 0}

    async def _cat_file(self, _path: str, *, start: int, end: int) -> bytes:
        self.reads += 1
        found = self.script.popleft() if self.script else b"clip"
        if isinstance(found, Exception):
            raise found
        return found if len(found) > 4 else found[start:end]

    async def close(self) -> None:
        pass

    async def download(self) -> tuple[int, str]:
        """The number of reads, and the SHA-256 of the result."""

        async def connect() -> tuple[Any, Any]:
            return self, self

        location = locate("s3://bucket/key", "reference")
        with StagedFile(location.display_name, "reference", HERE) as staging:
            await fetch_object(ObjectStore(connect), location, staging)
            return self.reads, staging.digest


async def test_an_object_that_keeps_changing_is_a_node_fault() -> None:
    with pytest.raises(NodeFault, match="the object changed during the download, 5 times in a row"):
        await ScriptedStore().download()


@pytest.mark.parametrize(
    ("error", "kind", "why"),
    [
        (PermissionError("S3CRETkey"), BadInput, "permission denied"),
        (FileNotFoundError("S3CRETkey"), BadInput, "no such object"),
        (ValueError("S3CRETkey"), BadInput, "the store rejected the request"),
    ],
)
async def test_errors_during_the_download_are_bad_input_without_credentials(
    error: Exception, kind: type[ScoringError], why: str
) -> None:
    with pytest.raises(kind, match=why) as failed:
        await ScriptedStore(error, b"clip").download()
    assert SECRET not in "".join(traceback.format_exception(failed.value))


async def test_a_block_of_the_wrong_size_is_requested_again() -> None:
    store = ScriptedStore(b"too long", b"cl", OSError(5, "S3CRETkey"), b"clip")
    store._info = ScriptedStore(b"")._info  # type: ignore[method-assign] # the object does not change
    reads, digest = await store.download()
    assert (reads, digest) == (4, hashlib.sha256(b"clip").hexdigest())


async def test_a_report_is_uploaded_to_s3(relay: Relay, gateway: tuple[Path, int]) -> None:
    relay.cuts.extend([0])
    assert await deliver_report("s3://clips/reports/r.json", b"{}", HERE) == "s3://clips/reports/r.json"
    assert (gateway[0] / "reports" / "r.json").read_bytes() == b"{}"
    with pytest.raises(BadInput, match="there is no such bucket"):
        await deliver_report("s3://none/r.json", b"{}", HERE)


async def test_a_report_is_uploaded_to_google(gs: Relay) -> None:
    assert await deliver_report("gs://clips/reports/r.json", b"{}", HERE) == "gs://clips/reports/r.json"
    assert await content("gs://clips/reports/r.json") == b"{}"


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(CLIP)
    with path.open("rb") as opened:
        yield opened.fileno()


async def test_a_file_is_uploaded_to_s3_in_parts(relay: Relay, gateway: tuple[Path, int], file: int) -> None:
    uri, updates = "s3://clips/uploads/a.mp4", list[tuple[int, int | None]]()
    assert await stored_size(uri, HERE) is None
    relay.cuts.extend([None, 0])  # the second connection
    await upload_file(uri, file, HERE, lambda done, total: updates.append((done, total)))
    assert updates[-1] == (len(CLIP), len(CLIP))
    assert len(updates) > 3
    assert (gateway[0] / "uploads" / "a.mp4").read_bytes() == CLIP
    assert await stored_size(uri, HERE) == len(CLIP)
    assert await stored_size("s3://clips/uploads", HERE) is None, "it is a folder"


async def test_a_file_is_not_uploaded_without_a_bucket_or_permission(
    relay: Relay, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match="there is no such bucket"):
        await upload_file("s3://none/a.mp4", file, HERE)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    for call in (upload_file("s3://clips/b.mp4", file, HERE), stored_size("s3://clips/b.mp4", HERE)):
        with pytest.raises(BadInput, match="permission denied; set AWS_ACCESS_KEY_ID"):
            await call


@pytest.mark.filterwarnings("ignore:Sending a large body directly")  # gcsfs does
async def test_a_file_is_uploaded_to_google(gs: Relay, file: int) -> None:
    uri = "gs://clips/uploads/a.mp4"
    assert await stored_size(uri, HERE) is None
    await upload_file(uri, file, HERE)
    assert await stored_size(uri, HERE) == len(CLIP)
    assert await content(uri) == CLIP
