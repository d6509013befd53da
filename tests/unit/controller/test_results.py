"""Reports of old agents, which do not name the job: how often they make the controller list the jobs of their node."""

import asyncio
from itertools import pairwise
from typing import Any, cast
from uuid import uuid4

import msgspec
import pytest

from tests.support.virtual import run
from vmafx.api.job import JobProgress, JobView
from vmafx.clock import loop_time
from vmafx.controller.caches import make_caches
from vmafx.controller.results import LIST_INTERVAL, ResultRecorder
from vmafx.controller.sessions import Session
from vmafx.kube import Client, ObjectKey
from vmafx.kube.decoding import ListPage
from vmafx.kube.errors import Unreachable
from vmafx.runtime.events import EventRecorder
from vmafx.runtime.metrics import Metrics

NODE, OTHER = ObjectKey("video", "old-box"), ObjectKey("video", "other")
PROGRESS = JobProgress(3, 6, 2.5)


class Jobs:
    """Stands for the client of the Kubernetes API: a list takes a while, and returns the jobs of when it started."""

    def __init__(self) -> None:
        self.jobs: list[JobView] = []
        self.lists: list[float] = []  # when each was started
        self.error: Exception | None = None

    async def list(self, *_: Any, **__: Any) -> ListPage[JobView]:
        found, error = self.jobs.copy(), self.error
        self.lists.append(loop_time())
        await asyncio.sleep(0.1)
        if error is not None:
            raise error
        return ListPage(found)

    async def json_patch(self, *_: Any) -> None: ...

    def place(self) -> str:
        """Place a job on NODE; returns its attempt."""
        uid = str(uuid4())
        job = {
            "metadata": {"name": "job", "namespace": NODE.namespace, "uid": uid},
            "spec": {"reference": "file:///a", "distorted": "file:///b"},
            "status": {"phase": "Running", "assignedNode": NODE.name, "controllerJobID": f"{uid}-0"},
        }
        self.jobs.append(msgspec.convert(job, JobView))
        return f"{uid}-0"


class Reports:
    """A recorder whose cache is empty."""

    def __init__(self) -> None:
        self.api = Jobs()
        client = cast("Client", self.api)
        caches, events = make_caches(client, NODE.namespace), EventRecorder(client, "vmafx-controller", "test")
        self._recorder = ResultRecorder(client, caches, events, Metrics())

    async def report(self, attempt: str, node: ObjectKey = NODE) -> bool:
        return await self._recorder.record_progress(Session(node, "session", 0.0), attempt, "", PROGRESS)


def test_a_node_causes_one_list_a_second_at_most() -> None:
    async def scene() -> None:
        reports = Reports()

        async def flood() -> None:
            while loop_time() < end:
                assert not await reports.report(f"{uuid4()}-0")

        end = loop_time() + 30
        await asyncio.gather(*(flood() for _ in range(16)))
        lists = reports.api.lists
        assert len(lists) == pytest.approx(30 / LIST_INTERVAL, abs=2)
        assert min(later - earlier for earlier, later in pairwise(lists)) >= 0.99 * LIST_INTERVAL

    run(scene())


def test_nodes_do_not_wait_for_each_other() -> None:
    async def scene() -> None:
        reports, before = Reports(), loop_time()
        assert not await reports.report(f"{uuid4()}-0")
        assert not await reports.report(f"{uuid4()}-0", OTHER)
        assert loop_time() - before < LIST_INTERVAL

    run(scene())


def test_a_job_that_was_placed_after_a_list_had_started_is_found_by_the_next() -> None:
    async def scene() -> None:
        reports = Reports()
        first = asyncio.create_task(reports.report(f"{uuid4()}-0"))
        await asyncio.sleep(0.05)
        assert len(reports.api.lists) == 1
        assert await reports.report(reports.api.place())
        assert not await first

    run(scene())


def test_a_list_that_failed_answers_no_report() -> None:
    async def scene() -> None:
        reports = Reports()
        attempt, reports.api.error = reports.api.place(), Unreachable("no", sent=False)
        failing = [asyncio.create_task(reports.report(attempt)) for _ in range(2)]
        await asyncio.sleep(0.05)
        reports.api.error = None
        assert [type(one) for one in await asyncio.gather(*failing, return_exceptions=True)] == [Unreachable, bool]
        assert failing[1].result()
        assert len(reports.api.lists) == 2

    run(scene())
