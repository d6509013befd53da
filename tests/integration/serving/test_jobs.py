"""Jobs: accepted, followed, listed, watched, cancelled, and their turns."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import pytest

from tests.integration.serving.conftest import Held
from tests.support.agent_process import children
from tests.support.raw_http import raw_caller
from tests.support.serve_process import Reply, ServeProcess
from tests.support.waiting import eventually

_numbers = itertools.count(2)
QUEUED, RUNNING = [f'vmafx_serve_unfinished_jobs{{state="{state}"}}' for state in ("queued", "running")]


def ended(state: str) -> str:
    return f'vmafx_serve_jobs_total{{state="{state}"}}'


@asynccontextmanager
async def blocked(server: ServeProcess, gate: Held, clips: Path) -> AsyncIterator[str]:
    """The path of a job that runs, so that all others wait, until the end of the block."""
    reply = await server.score(gate.uri, clips / "distorted.mp4", prefer="respond-async")
    path = reply.headers["Location"]
    await server.until_state(path, "running")
    try:
        yield path
    finally:
        gate.release.set()
        await server.until_state(path, "succeeded", "cancelled", "failed")


async def accept(server: ServeProcess, clips: Path) -> str:
    """The path of a job; its options are new, so that its score is not known."""
    options = {"subsample": next(_numbers)}
    reply = await server.score(clips / "reference.mkv", clips / "distorted.mp4", "respond-async", options=options)
    assert reply.status == 202, reply.body
    return reply.headers["Location"]


async def test_a_job_is_accepted_followed_and_answered(server: ServeProcess, clips: Path, gate: Held) -> None:
    reply = await server.score(gate.uri, clips / "distorted.mp4", prefer="respond-async")
    assert reply.status == 202
    path = reply.headers["Location"]
    assert int(reply.headers["Retry-After"]) >= 1
    assert reply.json()["links"]["self"] == path
    async with server.events(f"{path}/events") as events:
        kind, job = await anext(events)
        assert (kind, job["state"] in {"queued", "running"}) == ("job", True)
        long_poll = asyncio.create_task(server.get(f"{path}?wait=60"))
        await server.until_state(path, "running")
        assert (await server.get(f"{path}?wait=0")).json()["state"] == "running"
        assert not long_poll.done()
        gate.release.set()
        seen = [(kind, job) async for kind, job in events]
    done = (await long_poll).json()
    assert done["state"] == "succeeded"
    assert [kind for kind, _ in seen].count("done") == 1
    kind, last = seen[-1]
    assert (kind, last["state"], last["score"]) == ("done", "succeeded", done["score"])
    times = [datetime.fromisoformat(done[name]) for name in ("createdAt", "startedAt", "finishedAt")]
    assert times == sorted(times)
    result = (await server.get(done["links"]["result"])).json()
    assert result["score"] == done["score"]


async def test_progress_is_reported(server: ServeProcess, clips: Path) -> None:
    reply = await server.score(clips / "long.mkv", clips / "long.mkv", prefer="respond-async")
    async with server.events(f"{reply.headers['Location']}/events") as events:
        seen = [job async for _, job in events]
    stages = [job["progress"]["stage"] for job in seen if "progress" in job]
    assert "scoring" in stages
    assert seen[-1]["state"] == "succeeded"


@pytest.mark.parametrize(
    ("prefer", "status"),
    [
        ("respond-async", 202),
        ("RESPOND-ASYNC; x=1", 202),
        ("wait=0", 202),
        ('handling=lenient, wait="0"', 202),
        ("wait=1000000000", 202),  # not a valid one, so the server's own
        ("respond-async, wait=60", 200),
        ("wait=60, wait=0", 200),
    ],
)
async def test_a_request_says_how_long_it_waits(
    impatient: ServeProcess, clips: Path, gate: Held, prefer: str, status: int
) -> None:
    asked = asyncio.create_task(impatient.score(gate.uri, clips / "distorted.mp4", prefer=prefer))
    await eventually(lambda: has_metric(impatient, RUNNING, 1), "the job runs")
    if status == 200:
        gate.release.set()
    assert (await asked).status == status
    gate.release.set()
    await eventually(lambda: has_metric(impatient, RUNNING, 0), "the job has ended")


@pytest.fixture(scope="module")
async def impatient(tmp_path_factory: pytest.TempPathFactory, clips: Path) -> AsyncIterator[ServeProcess]:
    """A server that does not wait for a score, unless a request asks for it."""
    async with ServeProcess(tmp_path_factory.mktemp("impatient"), "--wait", "0", roots=clips) as server:
        yield server


@pytest.mark.parametrize("wait", ["soon", "-1", "1" * 10, "٣"])
async def test_an_invalid_wait_is_refused(server: ServeProcess, clips: Path, wait: str) -> None:
    path = await accept(server, clips)
    assert (await server.get(path, params={"wait": wait})).status == 400
    await server.until_state(path, "succeeded")


async def test_jobs_are_listed_in_pages_and_watched(tmp_path: Path, clips: Path, gate: Held) -> None:
    async with ServeProcess(tmp_path, "--parallel", "1", roots=clips) as server, blocked(server, gate, clips) as first:
        paths = [first, *[await accept(server, clips) for _ in range(4)]]
        ids = [path.rpartition("/")[2] for path in paths]
        page = (await server.get("/v1/jobs?limit=3")).json()
        rest = (await server.get(f"/v1/jobs?limit=3&continue={page['continue']}")).json()
        assert [job["id"] for job in page["jobs"] + rest["jobs"]] == ids[::-1]
        assert "continue" not in rest
        assert [job["position"] for job in page["jobs"]] == [3, 2, 1]
        assert (await server.get(f"/v1/jobs?continue={'0' * 32}")).status == 410
        assert (await server.get("/v1/jobs?limit=many")).status == 400
        for url, headers in (("/v1/jobs?watch=true", {}), ("/v1/jobs", {"Accept": "application/x-ndjson"})):
            async with server.session.get(url, headers=headers) as stream:
                assert stream.content_type == "application/x-ndjson"
                listed = [json.loads(await stream.content.readline())["id"] for _ in ids]
                assert listed == ids
                if headers:
                    await server.call("POST", f"{paths[4]}/cancel")
                    changed = json.loads(await stream.content.readline())
                    assert (changed["id"], changed["state"]) == (ids[4], "cancelled")
        await server.call("POST", f"{first}/cancel")


async def test_a_queued_job_is_cancelled(server: ServeProcess, clips: Path, gate: Held) -> None:
    before = await server.metric(ended("cancelled"))
    async with blocked(server, gate, clips):
        path = await accept(server, clips)
        assert (await server.job(path))["position"] == 0
        for _ in range(2):  # the second changes nothing
            reply = await server.call("POST", f"{path}/cancel")
            assert (reply.status, reply.json()["state"]) == (200, "cancelled")
        assert await server.metric(QUEUED) == 0
    assert await server.metric(ended("cancelled")) == before + 1


async def test_a_running_job_is_cancelled_and_leaves_no_process(server: ServeProcess, clips: Path) -> None:
    idle = children(server.pid)
    reply = await server.score(clips / "long.mkv", clips / "long.mkv", prefer="respond-async", options={"subsample": 2})
    path = reply.headers["Location"]

    async def scores() -> bool:
        return bool((await server.job(path)).get("progress", {}).get("stage") == "scoring")

    await eventually(scores, "it scores", every=0.01)
    assert (await server.call("POST", f"{path}/cancel")).json()["state"] == "cancelled"
    await eventually(lambda: set(children(server.pid)) <= set(idle), "its processes have ended")
    assert (await server.call("POST", f"{path}/cancel")).json()["state"] == "cancelled"
    assert await server.metric(RUNNING) == 0


async def test_a_request_that_waits_for_a_cancelled_job_is_told(server: ServeProcess, clips: Path, gate: Held) -> None:
    async with blocked(server, gate, clips):
        asked = asyncio.create_task(server.score(gate.uri, clips / "distorted.mp4"))
        paths: list[str] = []

        async def is_queued() -> bool:
            jobs = (await server.get("/v1/jobs")).json()["jobs"]
            paths.extend(job["links"]["self"] for job in jobs if job["state"] == "queued")
            return bool(paths)

        await eventually(is_queued, "it is queued")
        await server.call("POST", f"{paths[0]}/cancel")
        reply = await asked
        assert (reply.status, reply.json()["code"]) == (409, "ABORTED")


@pytest.mark.parametrize("queued", [True, False])
async def test_a_client_that_disconnects_cancels_its_job(
    server: ServeProcess, clips: Path, gate: Held, queued: bool
) -> None:
    before = await server.metric(ended("cancelled"))
    body = json.dumps({"reference": gate.uri, "distorted": (clips / "distorted.mp4").as_uri()}).encode()
    fields = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"

    async def disconnect(state: str) -> None:
        async with raw_caller(server.port) as caller:
            await caller.send(f"POST /v1/score HTTP/1.1\r\n{fields}\r\n".encode() + body)
            await eventually(lambda: has_metric(server, state, 1), "the job is there")
            await caller.hang_up()
        await eventually(lambda: has_metric(server, state, 0), "the job is gone")

    if queued:
        async with blocked(server, gate, clips):
            await disconnect(QUEUED)
    else:
        await disconnect(RUNNING)
    await eventually(lambda: has_metric(server, ended("cancelled"), before + 1), "it was cancelled")


async def has_metric(server: ServeProcess, name: str, value: float) -> bool:
    return await server.metric(name) == value


@pytest.mark.parametrize("queued", [True, False])
async def test_a_deadline_ends_a_job_that_runs_or_waits(
    server: ServeProcess, clips: Path, gate: Held, queued: bool
) -> None:
    async def ask() -> Reply:
        return await server.score(gate.uri, clips / "distorted.mp4", deadlineSeconds=1)

    if queued:
        async with blocked(server, gate, clips):
            reply = await ask()
            assert await server.metric(RUNNING) == 1
    else:
        reply = await ask()
    assert (reply.status, reply.json()["code"]) == (504, "DEADLINE_EXCEEDED")
    assert "within 1 s" in reply.json()["detail"]
    assert await server.metric(QUEUED) == 0


async def test_callers_take_turns_and_the_queue_is_limited(tmp_path: Path, clips: Path, gate: Held) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ann annannannannannann\nbob bobbobbobbobbobbob\n")
    flags = ("--parallel", "1", "--queue", "8", "--auth", "keys", "--keys", str(keys))
    async with ServeProcess(tmp_path, *flags, roots=clips) as server:
        server.key = "annannannannannann"
        async with blocked(server, gate, clips):
            ann = [await accept(server, clips) for _ in range(4)]
            refused = await server.score(clips / "reference.mkv", clips / "distorted.mp4")
            assert (refused.status, refused.json()["code"]) == (429, "RESOURCE_EXHAUSTED")
            assert int(refused.headers["Retry-After"]) > 0
            assert "4 of your jobs" in refused.json()["detail"]
            upload = await server.upload(clips / "reference.mkv", clips / "distorted.mp4")
            assert upload.status == 429
            assert [(await server.job(path))["position"] for path in ann] == [0, 1, 2, 3]
            server.key = "bobbobbobbobbobbob"
            bob = [await accept(server, clips) for _ in range(2)]
            assert (await server.score(clips / "reference.mkv", clips / "distorted.mp4")).status == 429
            assert [(await server.job(path))["position"] for path in bob] == [1, 3]
            server.key = "annannannannannann"
            assert [(await server.job(path))["position"] for path in ann] == [0, 2, 4, 5]
            name = 'vmafx_serve_refused_requests_total{code="RESOURCE_EXHAUSTED"}'
            assert await server.metric(name) == 3
        for path in ann:
            await server.until_state(path, "succeeded")


async def test_metrics_exist_from_the_start(tmp_path: Path, clips: Path) -> None:
    async with ServeProcess(tmp_path, roots=clips) as server:
        names = [
            QUEUED, RUNNING, *map(ended, ("succeeded", "failed", "cancelled")), "vmafx_serve_cached_answers_total",
            'vmafx_serve_refused_requests_total{code="RESOURCE_EXHAUSTED"}',
            'vmafx_serve_refused_requests_total{code="UNAVAILABLE"}',
            "vmafx_serve_job_seconds_count", "vmafx_serve_queue_seconds_count",
        ]  # fmt: skip
        assert [await server.metric(name) for name in names] == [0] * len(names)
        await server.score(clips / "reference.mkv", clips / "distorted.mp4")
        await server.score(clips / "reference.mkv", clips / "reference.mkv", options={"size": "8x8"})
        assert await server.metric(ended("succeeded")) == 1
        assert await server.metric(ended("failed")) == 1
        assert await server.metric("vmafx_serve_job_seconds_count") == 2


async def test_an_unknown_job_is_not_found(server: ServeProcess) -> None:
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel")):
        assert (await server.call(method, f"/v1/jobs/{'0' * 32}{path}")).status == 404
    assert (await server.get("/v1/jobs/../../etc/passwd")).status == 404
