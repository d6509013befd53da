"""What the operator remembers about jobs: the ages of times, whatever happens to the wall clock."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.api.job import JobSpecView, JobStatusView, JobView
from vmafx.api.meta import Condition, MetaView
from vmafx.api.node import NodeStatusView, NodeView, VmafxNodeSpec
from vmafx.jobs.outcome import Fail, Retry
from vmafx.kube import ObjectKey
from vmafx.operator.job.decide import CLAIM_TIMEOUT, PLACED, START_TIMEOUT, Observation, decide
from vmafx.operator.job.memory import MAX_TIMES, JobMemories
from vmafx.operator.job.pod_cache import PodLabels, PodMeta, PodOwner, PodStatus, PodView
from vmafx.operator.job.steps import KeepPending, NoAction, Step

START = datetime(2026, 11, 15, 12, tzinfo=UTC)
KEY = ObjectKey("x", "clip")
HOUR = 3600.0


class Clocks:
    """A wall clock that can be set, and a monotonic clock."""

    def __init__(self) -> None:
        self.elapsed, self.set_by = 0.0, 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.elapsed + self.set_by)

    def clock(self) -> float:
        return 1000.0 + self.elapsed


class Operator:
    """Decides about one job again and again, with the memory of one process."""

    def __init__(self, clocks: Clocks) -> None:
        self.memories = JobMemories(clocks.now, clocks.clock)

    def step(self, job: JobView, **known: Any) -> Step:
        return decide(job, self.memories.ages(KEY), Observation(**known))


def job(reason: str, status: Any = "True", at: datetime = START, deadline: int | None = None, **fields: Any) -> JobView:
    spec = JobSpecView("s3://b/r", "s3://b/d", activeDeadlineSeconds=deadline)
    usual = {"phase": "Running", "assignedNode": "n", "controllerJobID": "u1-0", "startedAt": at, "attempts": 1}
    running: dict[str, Any] = {"conditions": (Condition("Scheduled", status, at, reason, "why"),), **usual, **fields}
    return JobView(MetaView("clip", "x", "u1"), spec, JobStatusView(**running))


def agent(ready_since: datetime = START) -> NodeView:
    ready = Condition("Ready", "True", ready_since, "Healthy", "the controller answers")
    return NodeView(
        MetaView("n", "x"),
        VmafxNodeSpec("cpu", runtime="Agent"),
        NodeStatusView(healthy=True, lastHeartbeat=START, conditions=(ready,)),
    )


def pod(created: datetime = START, phase: str = "Pending", **meta: Any) -> PodView:
    labels, owner = PodLabels("clip", "0"), (PodOwner("u1"),)
    metadata = PodMeta("clip-0", "x", "p", creationTimestamp=created, labels=labels, ownerReferences=owner, **meta)
    return PodView(metadata, status=PodStatus(phase))


PLACED_JOB = job(PLACED["Pod"])
UNCLAIMED = job(PLACED["Agent"])


@pytest.mark.parametrize("jump", [-HOUR, -20.0, 20.0, HOUR])
@pytest.mark.parametrize(
    ("one", "known", "within", "end"),
    [
        (UNCLAIMED, {"node": agent()}, CLAIM_TIMEOUT.total_seconds(), Retry),
        (job(PLACED["Agent"], deadline=100, claimedAt=START), {"node": agent()}, 100.0, Fail),
        (job(PLACED["Pod"], deadline=100), {"pod": pod(phase="Running")}, 100.0, Fail),
        (job("NoNodes", "False", deadline=100, phase="Pending", assignedNode=None), {}, 100.0, Fail),
        (PLACED_JOB, {"pod": pod()}, START_TIMEOUT.total_seconds(), Retry),
        (PLACED_JOB, {"pod": pod(phase="Running", deletionTimestamp=START)}, 30.0, Retry),
        (
            PLACED_JOB,
            {
                "pod": pod(
                    phase="Running",
                    deletionTimestamp=START + timedelta(seconds=60),
                    deletionGracePeriodSeconds=60,
                )
            },
            90.0,
            Retry,
        ),
    ],
)
def test_a_clock_that_is_set_neither_extends_nor_ends_a_wait(
    one: JobView, known: dict[str, Any], within: float, end: type, jump: float
) -> None:
    clocks = Clocks()
    operator = Operator(clocks)
    assert not isinstance(operator.step(one, **known), end)
    clocks.set_by = jump
    clocks.elapsed = within - 0.5
    before = operator.step(one, **known)
    assert not isinstance(before, end)
    assert not isinstance(before, NoAction) or before.requeue_after == pytest.approx(0.5)
    clocks.elapsed = within
    assert isinstance(operator.step(one, **known), end)


def test_a_clock_that_is_set_back_does_not_delay_a_retry() -> None:
    clocks = Clocks()
    operator = Operator(clocks)
    retrying = job("Retrying", "False", phase="Pending", assignedNode=None, controllerJobID=None, failures=1)
    assert operator.step(retrying) == KeepPending("Retrying", "why", 10.0)
    clocks.elapsed, clocks.set_by = 4.0, -5.0
    assert operator.step(retrying) == KeepPending("Retrying", "why", 6.0)


def test_the_wait_for_a_claim_starts_with_the_latest_event_also_if_the_clock_was_set_back_before_it() -> None:
    clocks = Clocks()
    operator = Operator(clocks)
    assert operator.step(UNCLAIMED, node=agent()) == NoAction(60.0)
    clocks.elapsed, clocks.set_by = 50.0, -HOUR
    assert operator.step(UNCLAIMED, node=agent(clocks.now())) == NoAction(60.0)  # it was not ready in between
    assert operator.step(UNCLAIMED, node=agent(), watched_for=20.0) == NoAction(40.0)


def test_a_new_operator_waits_no_longer_than_from_its_start() -> None:
    """The clock was set back while no operator ran: the times in the status are in the future."""
    clocks = Clocks()
    operator, later = Operator(clocks), START + timedelta(hours=1)
    assert operator.step(job(PLACED["Agent"], at=later), node=agent(later)) == NoAction(60.0)
    assert operator.step(job(PLACED["Pod"], at=later, deadline=100), pod=pod(phase="Running")) == NoAction(100.0)


def test_a_pod_created_by_this_process_is_not_older_than_that() -> None:
    """The clock of the API server is an hour behind."""
    operator = Operator(Clocks())
    found = pod(START - timedelta(hours=1))
    assert isinstance(operator.step(PLACED_JOB, pod=found), Retry)
    assert operator.step(PLACED_JOB, pod=found, pod_created_ago=5.0) == NoAction(25.0)


@given(st.lists(st.tuples(st.floats(0.0, 40.0), st.floats(-1e6, 1e6))))
def test_the_age_of_a_time_grows_with_the_monotonic_clock(steps: list[tuple[float, float]]) -> None:
    clocks = Clocks()
    age = JobMemories(clocks.now, clocks.clock).ages(KEY)
    assert age(START - timedelta(seconds=5)) == pytest.approx(5.0)
    for seconds, set_by in steps:
        clocks.elapsed += seconds
        clocks.set_by = set_by
        assert age(START - timedelta(seconds=5)) == pytest.approx(5.0 + clocks.elapsed)


def test_a_job_remembers_few_times_and_none_once_it_is_forgotten() -> None:
    clocks = Clocks()
    memories = JobMemories(clocks.now, clocks.clock)
    age = memories.ages(KEY)
    assert memories.get(KEY) is None  # nothing is remembered about a job without times
    for number in range(10 * MAX_TIMES):
        age(START)
        age(START + timedelta(seconds=number + 1))
        memories.entry(KEY, f"u1-{number}")
    times = memories.entry(KEY).times
    assert len(times) == MAX_TIMES
    assert START in times  # the last used are kept, over all attempts
    memories.forget(KEY)
    assert memories.get(KEY) is None
