"""ScoringService in this process: what the moments of a job's life do to each other."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.support import virtual
from tests.support.waiting import turns
from vmafx.auth.access import InsecureAccess
from vmafx.auth.callers import Callers, ServedCaller
from vmafx.clock import loop_time
from vmafx.http.address import ListenAddress
from vmafx.http.errors import StatusError
from vmafx.http.limits import UploadLimits
from vmafx.http.server import Site, serve_http
from vmafx.reports.section import BEING_TAKEN
from vmafx.scoring.engines.find import Engines
from vmafx.scoring.errors import EngineFailure
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.result import FramePair
from vmafx.scoring.score import Scorer
from vmafx.serving.job import ServedJob
from vmafx.serving.jobs import JobRegistry
from vmafx.serving.metrics import ServingMetrics
from vmafx.serving.models import ServedModels
from vmafx.serving.request import ScoreRequest
from vmafx.serving.results import ResultStore
from vmafx.serving.service import ScoringService, ServiceLimits, ServiceParts
from vmafx.serving.site import ScoringSite
from vmafx.serving.store import JobStore

GetPage = Callable[[], Coroutine[Any, Any, str]]
ANN, BOB = ServedCaller("ann", "user ann"), ServedCaller("bob", "user bob")


@asynccontextmanager
async def service_in(
    folder: Path, clips: Path, *, run: bool = True, queue: int = 8, make_scorer: Callable[..., Scorer] = Scorer
) -> AsyncIterator[ScoringService]:
    policy = MediaPolicy(roots=(clips,))
    with closing(JobStore(folder)) as store:
        models = ServedModels("vmaf_v0.6.1", policy, policy)
        results = ResultStore(store.results, 1 << 30, models)
        jobs = JobRegistry(store)
        scorer = make_scorer(Engines(), policy, cache=results.cache)
        parts = ServiceParts(scorer, policy, models, jobs, results, ServingMetrics(), durable=True)
        service = ScoringService(parts, ServiceLimits(1, 1, queue, 3600))
        await service.recover()
        running = asyncio.create_task(service.run()) if run else None
        try:
            yield service
        finally:
            await service.close()
            if running is not None:
                running.cancel()
                await asyncio.wait({running})
            await jobs.close()


def request(clips: Path, **more: Any) -> ScoreRequest:
    return ScoreRequest(reference=str(clips / "reference.mkv"), distorted=str(clips / "distorted.mp4"), **more)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def finished(job: ServedJob) -> str:
    async with asyncio.timeout(120):
        await job.wait_until_finished()
    return job.record.state


async def test_a_job_that_is_cancelled_before_its_first_step_ends(tmp_path: Path, clips: Path) -> None:
    async with service_in(tmp_path, clips) as service:
        await asyncio.sleep(0)  # the worker waits
        job = service.submit(request(clips), ANN, {})
        seen: list[str] = []

        def cancel_at_the_start(changed: ServedJob) -> None:
            seen.append(changed.record.state)
            if changed.record.state == "running":
                asyncio.get_running_loop().call_soon(service.cancel, changed)

        job.on_change = cancel_at_the_start
        assert await finished(job) == "cancelled"
        assert seen == ["running", "cancelled"]
        assert await finished(service.submit(request(clips), ANN, {})) == "succeeded"


async def test_a_job_that_is_stopped_continues_after_the_next_start(tmp_path: Path, clips: Path) -> None:
    async with service_in(tmp_path, clips, run=False) as service:
        job = service.submit(request(clips), ANN, {})
    assert names_in(tmp_path / "jobs") == [f"{job.id}.json"]  # at the end of the process
    async with service_in(tmp_path, clips) as service:
        assert await finished(service.jobs.get(job.id, "ann")) == "succeeded"
        with pytest.raises(StatusError, match="no such job"):
            service.jobs.get(job.id, "bob")


async def test_work_that_is_no_job_takes_turns_with_jobs(tmp_path: Path, clips: Path) -> None:
    async with service_in(tmp_path, clips) as service:
        async with service.slot(ANN) as threads:
            assert threads == 1
            job = service.submit(request(clips), BOB, {})
            assert service.position(job) == 0
            waiting = asyncio.create_task(hold(service))
            await asyncio.sleep(0)
            abandoned = asyncio.create_task(hold(service))
            await asyncio.sleep(0)
            abandoned.cancel()
            await asyncio.wait({abandoned})
            assert job.record.state == "queued"
        assert await finished(job) == "succeeded"
        async with asyncio.timeout(60):
            assert await waiting == "succeeded"


async def hold(service: ScoringService) -> str:
    """Holds a slot; returns the state of the newest job of bob, once it has its turn."""
    async with service.slot(ANN):
        return service.jobs.of("bob")[0].record.state


async def test_work_that_is_no_job_counts_to_the_queue(tmp_path: Path, clips: Path) -> None:
    async with service_in(tmp_path, clips, run=False, queue=2) as service:
        service.submit(request(clips), ANN, {})
        with pytest.raises(StatusError, match="your share of the queue"):
            async with service.slot(ANN):
                pass
        waiting = asyncio.create_task(hold_for(service, BOB))
        await asyncio.sleep(0)
        with pytest.raises(StatusError, match="the queue is full"):
            service.check_room(ServedCaller("eve", "user eve"))
        waiting.cancel()
        await asyncio.wait({waiting})
        service.check_room(BOB)


async def hold_for(service: ScoringService, caller: ServedCaller) -> None:
    async with service.slot(caller):
        pass


async def test_a_service_that_does_not_score_does_not_wait_for_jobs(tmp_path: Path, clips: Path) -> None:
    async with service_in(tmp_path, clips, run=False) as service:
        service.submit(request(clips), ANN, {})
        async with asyncio.timeout(60):
            await service.drain(3600)
        with pytest.raises(StatusError, match="the server is stopping"):
            service.submit(request(clips), ANN, {})


class Held:
    """Pictures are taken once `release` is set; then that fails, if there is an `error`."""

    def __init__(self) -> None:
        self.release, self.error = asyncio.Event(), ""


class HeldPictures(Scorer):
    def __init__(self, held: Held, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self._held = held

    async def worst_frames(self, *clips: Any) -> list[FramePair]:
        await self._held.release.wait()
        if self._held.error:
            raise EngineFailure(self._held.error)
        return await super().worst_frames(*clips)


@asynccontextmanager
async def page_of_a_report(folder: Path, clips: Path, held: Held) -> AsyncIterator[GetPage]:
    """Gets the report of a job that has just ended."""
    async with service_in(folder, clips, make_scorer=partial(HeldPictures, held)) as service:
        site = ScoringSite(service, Callers(InsecureAccess()), UploadLimits(), 10)
        job = service.submit(request(clips), ANN, {})
        assert await finished(job) == "succeeded"
        async with serve_http(ListenAddress("127.0.0.1", 0), Site(site.routes())) as port, ClientSession() as session:

            async def page() -> str:
                async with session.get(f"http://127.0.0.1:{port}/results/{job.record.result}") as response:
                    assert response.status == 200
                    return await response.text()

            yield page


async def test_a_report_says_that_its_pictures_are_being_taken(
    tmp_path: Path, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    async with page_of_a_report(tmp_path, clips, held) as page:
        monkeypatch.setattr("vmafx.serving.site.PICTURE_WAIT", 0.0)
        for _ in range(2):
            early = await page()
            assert BEING_TAKEN in early
            assert "data:image/jpeg" not in early
        monkeypatch.undo()
        waiting = asyncio.create_task(page())
        held.release.set()
        assert "data:image/jpeg" in await waiting
        assert BEING_TAKEN not in await page()


async def test_a_report_does_not_wait_for_pictures_that_cannot_be_taken(tmp_path: Path, clips: Path) -> None:
    held = Held()
    held.error = "no pictures"
    async with page_of_a_report(tmp_path, clips, held) as page:
        held.release.set()
        text = await page()
    assert "data:image/jpeg" not in text
    assert BEING_TAKEN not in text


def test_a_report_waits_for_pictures_for_a_limited_time(tmp_path: Path) -> None:
    async def wait() -> None:
        policy = MediaPolicy()
        results = ResultStore(tmp_path, 1, ServedModels("vmaf_v0.6.1", policy, policy))
        start = loop_time()
        assert await results.wait_for_pictures("key", 10)
        assert loop_time() == start
        with results.taking_pictures("key"):
            assert not await results.wait_for_pictures("key", 10)
            assert loop_time() == pytest.approx(start + 10)
            with results.taking_pictures("key"):  # by a second job with the same clips
                waiting = asyncio.create_task(results.wait_for_pictures("key", 10))
                await turns()
            await turns()
            assert not waiting.done()
        assert await waiting
        assert loop_time() == pytest.approx(start + 10)

    virtual.run(wait())


async def test_results_are_kept_with_pictures_of_the_worst_frames(tmp_path: Path, clips: Path) -> None:
    async with service_in(tmp_path, clips) as service:
        job = service.submit(request(clips), ANN, {})
        assert await finished(job) == "succeeded"
        await service.drain(120)
        pictures = await service.results.pictures(job.record.result)
        scores = [pair.score for pair in pictures]
        assert len(pictures) == 6  # frames of the clip
        assert scores == sorted(scores)
        assert b"data:image/jpeg" in await service.results.rendered(job.record.result, "report.html", pictures)
