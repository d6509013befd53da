"""A limit on the time of a whole transfer: a server that sends a byte now and then cannot hold a worker for days."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.webserver import Answer, Request, WebServer, head, says
from vmafx.scoring.errors import InputPart, NodeFault
from vmafx.scoring.media.access import deliver_report, open_media
from vmafx.scoring.media.policy import MediaPolicy

SIZE = 32 << 10
SHORT = MediaPolicy(private=True, reserve=0, fetch_seconds=3, docker_config=Path("/nonexistent"))
DIGEST = f"sha256:{'0' * 64}"
LIMIT = r"the transfer took longer than the 3 s allowed; .* or raise VMAFX_MEDIA_FETCH_SECONDS$"


def trickles(sent: list[Request]) -> Answer:
    """A file that arrives byte by byte, each of them early enough for the other limits."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        sent.append(request)
        writer.write(head(200, {"ETag": '"one"', "Content-Length": SIZE}))
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    return answer


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[WebServer]:
    """A server that is a web server, an S3 store, Google Cloud Storage and a registry."""
    async with WebServer() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "user")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.port}")
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        server.serve("/v2/", says(200))
        yield server


async def fetch(uri: str, part: InputPart = "reference") -> None:
    async with open_media(uri, part, SHORT):
        pytest.fail("it was fetched")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("http://127.0.0.1:{port}/a.mp4", "/a.mp4"),
        ("s3://clips/a.mp4", "/clips/a.mp4"),
        ("gs://clips/a.mp4", "/storage/v1/b/clips/o/a.mp4"),
        (f"oci://127.0.0.1:{{port}}/model@{DIGEST}", f"/v2/model/manifests/{DIGEST}"),
    ],
)
async def test_a_download_that_trickles_is_a_node_fault(server: WebServer, uri: str, path: str) -> None:
    sent: list[Request] = []
    server.serve(path, trickles(sent))
    with pytest.raises(NodeFault, match=rf"^cannot fetch .*: {LIMIT}"):
        await fetch(uri.format(port=server.port), "model" if uri.startswith("oci") else "reference")
    assert sent  # it did begin


async def test_the_limit_includes_the_delays_between_retries(server: WebServer) -> None:
    url = server.serve("/a.mp4", says(503, Retry_After=3600))
    with pytest.raises(NodeFault, match=LIMIT):
        await fetch(url)
    assert len(server.requests) == 1


async def test_the_limit_applies_to_reports(server: WebServer) -> None:
    url = server.serve("/report.json", says(503, Retry_After=3600))
    with pytest.raises(NodeFault, match=rf"^cannot write .*: {LIMIT}"):
        await deliver_report(url, b"{}", SHORT)


async def test_a_download_within_the_limit_is_not_affected(server: WebServer) -> None:
    url = server.serve("/a.mp4", says(200, b"clip"))
    async with open_media(url, "reference", MediaPolicy(private=True, reserve=0, fetch_seconds=60)) as opened:
        assert opened.size == 4
