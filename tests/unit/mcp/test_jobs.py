"""Jobs: what is on disk agrees with what clients were told, and callers do not displace the results of others."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tests.support.waiting import eventually
from vmafx.auth.callers import ServedCaller
from vmafx.clock import utc_now
from vmafx.mcp import state as module
from vmafx.mcp.arguments import ScoreArguments
from vmafx.mcp.job import McpJobRecord, WorkOutcome
from vmafx.mcp.jobs import Jobs
from vmafx.mcp.metrics import McpMetrics
from vmafx.mcp.state import StateFolder
from vmafx.mcp.work import JobWork
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.score import Scorer
from vmafx.tune.work_folder import WorkFolder

ANN, BOB = ServedCaller("ann", "user ann"), ServedCaller("bob", "user bob")
MISSING = ScoreArguments(reference="/nothing/a.mkv", distorted="/nothing/b.mkv")


class SlowDisk(StateFolder):
    """Writes the first record of a job only when allowed to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, exclusive=True)
        self.allowed = asyncio.Event()

    async def write(self, record: McpJobRecord) -> None:
        if record.phase == "Pending":
            await self.allowed.wait()
        await super().write(record)


def jobs_of(state: StateFolder, deadline: float = 3600) -> Jobs:
    work = JobWork(Scorer(policy=MediaPolicy(roots=(state.folder,))), WorkFolder(state.encodes), 1)
    return Jobs(state, work, 8, deadline, McpMetrics())


@asynccontextmanager
async def running(jobs: Jobs) -> AsyncIterator[None]:
    task = asyncio.create_task(jobs.run(1))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_the_end_of_a_job_is_written_after_its_beginning(tmp_path: Path) -> None:
    state = SlowDisk(tmp_path)
    jobs = jobs_of(state)
    async with running(jobs):
        submitting = asyncio.create_task(jobs.submit("score", MISSING, ANN))
        await eventually(lambda: jobs.of(ANN), "the job has its place")
        (job,) = jobs.of(ANN)
        await eventually(lambda: job.record.phase != "Pending" and not jobs._running, "it was tried, and has failed")
        assert not job.record.is_finished
        state.allowed.set()
        assert (await submitting).record.kind == "score"
        await job.ended()
    assert [record.phase for record in state.load()] == ["Failed"]
    state.close()


async def test_a_job_that_runs_too_long_fails_and_the_next_one_has_its_turn(tmp_path: Path) -> None:
    state = StateFolder(tmp_path, exclusive=True)
    jobs = jobs_of(state, deadline=0)
    async with running(jobs):
        for _ in range(2):
            job = await jobs.submit("score", MISSING, ANN)
            await job.ended()
            assert job.record.failure is not None
            assert "did not finish within 0 s" in job.record.failure.message
    state.close()


async def test_a_cancelled_job_stays_cancelled_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateFolder(tmp_path, exclusive=True)
    jobs = jobs_of(state)
    job = await jobs.submit("score", MISSING, ANN)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_atomic", fail)
    await jobs.cancel(job)
    assert job.record.phase == "Cancelled"
    assert state.load() == []
    state.close()


async def test_the_jobs_of_one_caller_do_not_displace_those_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FINISHED", 3)
    state = StateFolder(tmp_path, exclusive=True)
    jobs = jobs_of(state)
    kept = await jobs.submit("score", MISSING, ANN)
    for _ in range(5):
        await jobs.cancel(await jobs.submit("score", MISSING, BOB))
    await jobs.cancel(kept)
    assert [job.id for job in jobs.of(ANN)] == [kept.id]
    assert len(jobs.of(BOB)) == 2
    state.close()


async def test_a_job_that_has_just_ended_is_kept_though_it_is_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FINISHED", 2)
    state = StateFolder(tmp_path, exclusive=True)
    now = utc_now()
    for number, finished in enumerate((now + timedelta(hours=1), now, now + timedelta(minutes=1))):
        await state.write(
            McpJobRecord(
                id=f"score-{number}", kind="score", owner="ann", share="user ann", arguments=msgspec.Raw(b"{}"),
                created=now + timedelta(seconds=number), phase="Succeeded", finished=finished, outcome=WorkOutcome(),
            )
        )  # fmt: skip
    jobs = jobs_of(state)
    await jobs.recover()
    await jobs._prune()
    assert [job.id for job in jobs.of(ANN)] == ["score-2", "score-0"]
    state.close()
