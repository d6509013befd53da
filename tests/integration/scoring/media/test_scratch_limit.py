"""The limit on all downloads together: the kubelet does not count files without a name, so the worker does."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.support.webserver import WebServer, has, stalls, without_end
from tests.support.worker_command import Worker
from vmafx.backoff import Backoff
from vmafx.jobs.attempt import AttemptSpec
from vmafx.scoring.errors import NodeFault
from vmafx.scoring.media.access import open_media
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.retry import RetryPolicy

CLIP = bytes(range(256)) * (4 << 10)  # 1 MiB
VARIABLE = "VMAFX_SCRATCH_LIMIT"


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with WebServer() as server:
        yield server


def policy(limit: str) -> MediaPolicy:
    read = MediaPolicy.from_environ({VARIABLE: limit, "VMAFX_MEDIA_ALLOW_PRIVATE": "true"})
    return msgspec.structs.replace(read, retry=RetryPolicy(backoff=Backoff(0.0, 0.0), max_asked=0.0), reserve=0)


async def test_both_clips_together_stay_within_the_limit(server: WebServer) -> None:
    uri, limited = server.serve("/a.mp4", has(CLIP)), policy("1536Ki")
    async with open_media(uri, "reference", limited):
        with pytest.raises(NodeFault, match=f"1.5 MiB.*1 MiB are in use.*{VARIABLE}"):
            async with open_media(uri, "distorted", limited):
                pass


async def test_a_clip_that_states_its_size_is_refused_before_its_body(server: WebServer) -> None:
    uri = server.serve("/a.mp4", stalls(CLIP, 0))
    with pytest.raises(NodeFault, match="512 KiB"):
        async with asyncio.timeout(30), open_media(uri, "reference", policy("512Ki")):
            pass


async def test_an_endless_body_is_cut_off(server: WebServer) -> None:
    written: list[int] = []
    uri, limited = server.serve("/a.mp4", without_end([])), policy("3Mi")
    with pytest.raises(NodeFault, match="3 MiB"):
        async with asyncio.timeout(30), open_media(uri, "reference", limited, lambda done, _: written.append(done)):
            pass
    assert max(written) <= 3 << 20


async def test_room_is_free_again_after_a_clip_and_when_a_download_starts_over(server: WebServer) -> None:
    limited = policy("1Mi")
    for _ in range(2):
        uri = server.serve("/a.mp4", has(CLIP, etag="", cut=700 << 10), has(CLIP))
        async with open_media(uri, "reference", limited) as opened:
            assert opened.size == len(CLIP)


@pytest.mark.parametrize("limit", ["", "0", "2Mi"])
async def test_clips_that_fit_are_accepted(server: WebServer, limit: str) -> None:
    uri, limited = server.serve("/a.mp4", has(CLIP)), policy(limit)
    async with open_media(uri, "reference", limited), open_media(uri, "distorted", limited) as opened:
        assert opened.size == len(CLIP)


async def test_an_attempt_over_the_limit_is_the_fault_of_the_node(server: WebServer, tmp_path: Path) -> None:
    uri = server.serve("/a.mp4", has(CLIP))
    attempt, variables = AttemptSpec(uri, uri, id="uid-0"), {VARIABLE: "1000", "VMAFX_MEDIA_ALLOW_PRIVATE": "true"}
    _, result, _ = await asyncio.to_thread(Worker(tmp_path).run, attempt, **variables)
    assert result.fault == "NodeFault"
    assert VARIABLE in (result.message or "")
