"""Restarts: what was accepted is scored, once, after SIGTERM and after SIGKILL."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.integration.serving.conftest import Held
from tests.support.serve_process import Reply, ServeProcess
from tests.support.waiting import eventually

REQUESTS = 50


async def ask(server: ServeProcess, clips: Path, number: int, reference: str = "") -> Reply | None:
    """A request of its own, by upload or by URI, that waits or not; None if its connection broke."""
    options = {"subsample": number + 1}
    prefer = ("respond-async", "wait=1", "wait=60")[number % 3]
    try:
        if number % 2 and not reference:
            clip = clips / "reference.mkv"
            return await server.upload(clip, clips / "distorted.mp4", prefer, options=options)
        return await server.score(
            reference or clips / "reference.mkv", clips / "distorted.mp4", prefer, options=options
        )
    except aiohttp.ClientError:
        return None


async def outcomes(server: ServeProcess, replies: list[Reply | None]) -> list[dict[str, Any]]:
    """The jobs of those that were accepted, once they have ended."""
    paths = [reply.headers["Location"] for reply in replies if reply is not None and reply.status == 202]
    return [await server.until_state(path, "succeeded", "failed", "cancelled") for path in paths]


@pytest.mark.parametrize("kill", [True, False])
async def test_nothing_accepted_is_lost_or_answered_twice(tmp_path: Path, clips: Path, gate: Held, kill: bool) -> None:
    flags = ("--parallel", "2", "--grace", "1", "--wait", "1")
    async with ServeProcess(tmp_path, *flags, roots=clips) as server:
        first = asyncio.create_task(ask(server, clips, 0, gate.uri))  # keeps one of the two busy until the restart
        asked = [asyncio.create_task(ask(server, clips, number)) for number in range(1, REQUESTS)]

        async def some_are_done() -> bool:
            return await server.metric('vmafx_serve_jobs_total{state="succeeded"}') >= 5

        await eventually(some_are_done, "some are done", every=0.02)
        if kill:
            await server.kill()
        else:
            assert await server.stop() == 0
        replies = await asyncio.gather(first, *asked)
        answered = [reply for reply in replies if reply is not None]
        assert {reply.status for reply in answered} <= {200, 202, 503}
        if not kill:
            assert len(answered) == REQUESTS  # every request got a response
            assert [reply for reply in answered if reply.status == 202]
        gate.release.set()
        restarted = datetime.now(UTC)
        await server.start()
        jobs = await outcomes(server, replies)
        assert [job["state"] for job in jobs] == ["succeeded"] * len(jobs)
        results = [(await server.get(job["links"]["result"])).json() for job in jobs]
        assert [result["score"] for result in results] == [job["score"] for job in jobs]
        await eventually(lambda: is_idle(server), "all jobs have ended")
        # Jobs that nobody was told about may have been scored, too, but none that was answered.
        listed = (await server.get("/v1/jobs?limit=500")).json()["jobs"]
        scored = [job for job in listed if datetime.fromisoformat(job["finishedAt"]) > restarted]
        keys = {reply.json()["key"] for reply in answered if reply.status == 200}
        assert not keys & {job["links"]["result"].rpartition("/")[2] for job in scored}
        await server.stop()
        assert list((server.data / "clips").iterdir()) == []


async def test_finished_jobs_survive_a_restart_as_they_were(tmp_path: Path, clips: Path) -> None:
    async with ServeProcess(tmp_path, roots=clips) as server:
        path = (await server.upload(clips / "reference.mkv", clips / "distorted.mp4", "respond-async")).headers[
            "Location"
        ]
        before = await server.until_state(path, "succeeded")
        await server.kill()
        await server.start()
        assert await server.job(path) == before
        assert (await server.get(before["links"]["result"])).json()["score"] == before["score"]
        again = await server.upload(clips / "reference.mkv", clips / "distorted.mp4")
        assert (again.status, again.json()["cached"]) == (200, True)


async def test_a_job_whose_upload_is_lost_fails_and_says_so(tmp_path: Path, clips: Path, gate: Held) -> None:
    async with ServeProcess(tmp_path, "--parallel", "1", roots=clips) as server:
        await server.score(gate.uri, clips / "distorted.mp4", prefer="respond-async")
        reply = await server.upload(clips / "reference.mkv", clips / "distorted.mp4", "respond-async")
        await server.kill()
        for clip in (server.data / "clips").iterdir():
            clip.unlink()
        (server.data / "jobs" / f"{'0' * 32}.json").write_text("{")
        gate.release.set()
        await server.start()
        for _ in range(2):
            job = await server.until_state(reply.headers["Location"], "failed")
            assert "upload it again" in job["error"]["message"]
            await server.kill()
            await server.start()
        assert [line for line in server.log_lines() if line["msg"] == "cannot read the record of a job"]


async def test_a_stopping_server_is_not_ready_and_accepts_nothing_more(tmp_path: Path, clips: Path, gate: Held) -> None:
    async with ServeProcess(tmp_path, "--grace", "120", roots=clips) as server:
        known = await server.upload(clips / "reference.mkv", clips / "distorted.mp4")
        await eventually(lambda: is_idle(server), "its pictures are taken")
        waiting = asyncio.create_task(server.score(gate.uri, clips / "distorted.mp4"))
        await eventually(lambda: runs(server), "it runs")
        server.terminate()
        await eventually(lambda: is_draining(server), "it is not ready")
        assert (await server.get("/readyz")).body == b"the server is stopping\n"
        assert (await server.get("/healthz")).status == 200
        refused = await server.score(clips / "reference.mkv", clips / "distorted.mp4", options={"subsample": 2})
        assert (refused.status, refused.json()["code"]) == (503, "UNAVAILABLE")
        assert "Retry-After" in refused.headers
        assert (await server.upload(clips / "reference.mkv", clips / "distorted.mp4")).status == 503
        assert (await server.get(known.json()["links"]["self"])).status == 200
        gate.release.set()
        assert (await waiting).status == 200
        assert server.process is not None
        assert await server.process.wait() == 0
        assert server.log_lines()[-1]["msg"] == "stopped"


async def runs(server: ServeProcess) -> bool:
    return await server.metric('vmafx_serve_unfinished_jobs{state="running"}') == 1


async def is_idle(server: ServeProcess) -> bool:
    names = [f'vmafx_serve_unfinished_jobs{{state="{state}"}}' for state in ("queued", "running")]
    return [await server.metric(name) for name in names] == [0, 0]


async def is_draining(server: ServeProcess) -> bool:
    return (await server.get("/readyz")).status == 503


async def test_without_a_folder_a_stopping_server_promises_nothing(tmp_path: Path, clips: Path, gate: Held) -> None:
    async with ServeProcess(tmp_path, "--grace", "0", roots=clips, VMAFX_SERVE_DATA="") as server:
        waiting = asyncio.create_task(server.score(gate.uri, clips / "distorted.mp4"))
        await eventually(lambda: runs(server), "it runs")
        assert await server.stop() == 0
        reply = await waiting
        assert (reply.status, reply.json()["code"]) == (503, "UNAVAILABLE")
        assert list((tmp_path / "tmp").iterdir()) == []


async def test_a_folder_has_one_server(tmp_path: Path, clips: Path) -> None:
    async with ServeProcess(tmp_path, roots=clips) as server:
        other = ServeProcess(tmp_path, roots=clips)
        other.log = tmp_path / "other.log"
        with pytest.raises(AssertionError, match="another server uses the folder"):
            async with other:
                pass
        assert await server.is_ready()


async def test_a_record_on_disk_tells_the_state(tmp_path: Path, clips: Path, gate: Held) -> None:
    """An end is on disk before anybody sees it."""
    async with ServeProcess(tmp_path, roots=clips) as server:
        reply = await server.score(gate.uri, clips / "distorted.mp4", prefer="respond-async")
        path = reply.headers["Location"]
        record = server.data / "jobs" / f"{path.rpartition('/')[2]}.json"
        assert json.loads(record.read_text()).get("state", "queued") in {"queued", "running"}
        gate.release.set()
        async with server.events(f"{path}/events") as events:
            async for kind, _ in events:
                if kind == "done":
                    assert json.loads(record.read_text())["state"] == "succeeded"
