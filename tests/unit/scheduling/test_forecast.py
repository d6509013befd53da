"""The forecast, compared with a simple model and with what the scheduler then does."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scheduling.test_scheduler import NODES, OFFERS, SimpleScheduler, requests
from vmafx.api.job import JobProgress, JobSpecView, JobStatusView, JobView
from vmafx.api.meta import Condition, MetaView
from vmafx.jobs.state import age_at, queue_gate
from vmafx.operator.job.decide import decide
from vmafx.operator.job.steps import Enqueue, KeepPending
from vmafx.scheduling.durations import MAX_SAMPLES, Durations, JobClass, JobDuration
from vmafx.scheduling.forecast import (
    DurationEstimate,
    JobForecast,
    PredictedStart,
    RunningJob,
    WaitingJob,
    forecast,
    job_duration,
    running_job,
    waiting_job,
)
from vmafx.scheduling.requirements import JobRequest, NamespacedName, NodeOffer, PendingCause, Requirements
from vmafx.scheduling.scheduler import Scheduler

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
SECONDS = {"cpu": 30.0, "nvidia": 10.0, "amd": None}


def by_vendor(_requirements: Requirements, offer: NodeOffer) -> float | None:
    return SECONDS[offer.vendor]


def always(seconds: float | None) -> DurationEstimate:
    return lambda _requirements, _offer: seconds


WAITING = st.lists(
    st.builds(WaitingJob, requests(), st.sampled_from([0.0, 0.0, 0.0, 15.0, None])),
    max_size=12,
    unique_by=lambda one: one.request.job,
)
FLEETS = st.lists(OFFERS, max_size=5, unique_by=lambda one: one.node)
RUNNING = st.lists(
    st.tuples(NODES, st.sampled_from([None, 0.0, 5.0, 5.0, 20.0])),
    max_size=4,
).map(
    lambda drawn: [
        RunningJob(NamespacedName(node.namespace, f"old-{n}"), node, left) for n, (node, left) in enumerate(drawn)
    ]
)


def simple_forecast(
    waiting: list[WaitingJob], running_jobs: list[RunningJob], offers: list[NodeOffer], estimate: DurationEstimate
) -> dict[NamespacedName, PredictedStart]:
    """From event to event, with the simple scheduler."""
    model = SimpleScheduler(
        nodes={offer.node: offer for offer in offers}, node_of={one.job: one.node for one in running_jobs}
    )
    requests_by_job = {one.request.job: one.request for one in waiting}
    coming = {one.request.job: one.after for one in waiting if one.after is not None}
    ending = {one.job: one.left for one in running_jobs if one.left is not None}
    starts: dict[NamespacedName, PredictedStart] = {}
    now, ended = 0.0, -1.0  # jobs that end at 0 still hold their slots at 0
    while True:
        for job in [job for job, at in ending.items() if at <= ended]:
            del ending[job], model.node_of[job]
        for job in [job for job, at in coming.items() if at <= now]:
            del coming[job]
            model.waiting[job] = requests_by_job[job]
        for job, node in model.place():
            seconds = estimate(requests_by_job[job].requirements, model.nodes[node])
            starts[job] = PredictedStart(job, node, now, None if seconds is None else now + seconds)
            if seconds is not None:
                ending[job] = now + seconds
        moments = [*ending.values(), *coming.values()]
        if not moments:
            return starts
        now = ended = min(moments)


@given(WAITING, RUNNING, FLEETS)
def test_the_forecast_equals_that_of_the_model(
    waiting: list[WaitingJob], running_jobs: list[RunningJob], offers: list[NodeOffer]
) -> None:
    forecasts = forecast(waiting, running_jobs, offers, by_vendor)
    assert forecasts.keys() == {one.request.job for one in waiting}
    assert {job: one.start for job, one in forecasts.items() if one.start} == simple_forecast(
        waiting, running_jobs, offers, by_vendor
    )
    for waiter in waiting:
        job_forecast = forecasts[waiter.request.job]
        if job_forecast.start is not None:
            assert job_forecast.start.starts >= (waiter.after or 0.0)
            assert job_forecast.start.ends is None or job_forecast.start.ends >= job_forecast.start.starts
        if waiter.after is None:
            assert job_forecast.start is None
        if job_forecast.cause is None:
            assert waiter.after != 0 or (job_forecast.start is not None and job_forecast.start.starts == 0)
        else:
            assert waiter.after == 0


@given(WAITING, RUNNING, FLEETS, st.randoms(use_true_random=False))
def test_the_forecast_does_not_depend_on_the_order_of_its_inputs(
    waiting: list[WaitingJob], running_jobs: list[RunningJob], offers: list[NodeOffer], rng: random.Random
) -> None:
    first = forecast(waiting, running_jobs, offers, by_vendor)
    for values in (waiting, running_jobs, offers):
        rng.shuffle(values)
    assert list(forecast(waiting, running_jobs, offers, by_vendor).items()) == list(first.items())


@given(WAITING, RUNNING, FLEETS)
def test_fewer_jobs_than_its_position_start_before_a_job_on_its_nodes(
    waiting: list[WaitingJob], running_jobs: list[RunningJob], offers: list[NodeOffer]
) -> None:
    waiting = [one for one in waiting if one.after in {0.0, None}]  # a job that enters the queue later is overtaken
    forecasts = forecast(waiting, running_jobs, offers, always(10.0))
    order = list(forecasts)
    starts = sorted((one.start.starts, order.index(job)) for job, one in forecasts.items() if one.start)
    for waiter in waiting:
        job, requirements = waiter.request.job, waiter.request.requirements
        own = forecasts[job].start
        usable = [offer for offer in offers if offer.usable() and offer.fits(requirements)]
        mine = {one.node for one in usable if one.node.name not in requirements.excluded} or {
            one.node for one in usable
        }
        before = [
            order[place]
            for when, place in starts
            if (own is None or when < own.starts) and forecasts[order[place]].start.node in mine  # type: ignore[union-attr]
        ]
        if (position := forecasts[job].position) is not None:
            assert len(before) < position
            assert all(order.index(one) < order.index(job) for one in before)


@given(WAITING, RUNNING, FLEETS)
def test_positions_count_the_jobs_of_a_namespace_that_can_get_a_node(
    waiting: list[WaitingJob], running_jobs: list[RunningJob], offers: list[NodeOffer]
) -> None:
    forecasts = forecast(waiting, running_jobs, offers, always(None))
    for namespace in ("x", "y"):
        listed = [one.position for job, one in forecasts.items() if job.namespace == namespace]
        numbered = [
            one.request
            for one in sorted(waiting, key=lambda one: one.request.order())
            if one.request.job.namespace == namespace
            and one.after is not None
            and any(offer.usable() and offer.fits(one.request.requirements) for offer in offers)
        ]
        assert listed == [*range(1, len(numbered) + 1), *[None] * (len(listed) - len(numbered))]
        assert [forecasts[one.job].position for one in numbered] == listed[: len(numbered)]


@given(WAITING, FLEETS)
def test_the_scheduler_places_jobs_as_forecast(waiting: list[WaitingJob], offers: list[NodeOffer]) -> None:
    """Jobs of equal duration that end as forecast are placed when and where it was forecast."""
    waiting = [WaitingJob(one.request) for one in waiting]
    predicted = [one.start for one in forecast(waiting, [], offers, always(10.0)).values() if one.start]
    scheduler = Scheduler()
    for offer in offers:
        scheduler.set_node(offer)
    for waiter in waiting:
        scheduler.enqueue(waiter.request)
    for moment in sorted({start.starts for start in predicted}):
        for finished in predicted:
            if finished.ends == moment:
                scheduler.remove_job(finished.job)
        assert set(scheduler.place()) == {(one.job, one.node) for one in predicted if one.starts == moment}


def request(name: str, created: float = 0, priority: int = 0, **requirements: Any) -> JobRequest:
    return JobRequest(NamespacedName("x", name), Requirements("x", **requirements), created, priority)


def test_the_forecast_of_five_jobs_on_two_slots() -> None:
    offers = [NodeOffer(NamespacedName("x", "pool"), "cpu", capacity=2)]
    running_jobs = [RunningJob(NamespacedName("x", "old"), NamespacedName("x", "pool"), 12.0)]
    waiting = [WaitingJob(request(f"job-{number}", number)) for number in range(5)]
    forecasts = forecast(waiting, running_jobs, offers, always(30.0))
    assert [(one.position, one.start.starts, one.start.ends) for one in forecasts.values() if one.start] == [
        (1, 0.0, 30.0), (2, 12.0, 42.0), (3, 30.0, 60.0), (4, 42.0, 72.0), (5, 60.0, 90.0),
    ]  # fmt: skip
    full = PendingCause("InsufficientCapacity", "all 2 slots of the one node that fits are taken")
    assert [one.cause for one in forecasts.values()] == [None, full, full, full, full]


def test_of_slots_that_become_free_at_the_same_time_the_best_is_taken() -> None:
    offers = [
        NodeOffer(NamespacedName("x", "slow"), "cpu", fps=1.0),
        NodeOffer(NamespacedName("x", "fast"), "cpu", fps=9.0),
    ]
    for names in ("ab", "ba"):
        running_jobs = [
            RunningJob(NamespacedName("x", name), offer.node, 5.0) for name, offer in zip(names, offers, strict=True)
        ]
        (job_forecast,) = forecast([WaitingJob(request("job"))], running_jobs, offers, always(1.0)).values()
        assert job_forecast.start == PredictedStart(NamespacedName("x", "job"), NamespacedName("x", "fast"), 5.0, 6.0)


def test_without_an_estimate_there_is_no_predicted_end_nor_later_start() -> None:
    offers = [NodeOffer(NamespacedName("x", "pool"), "cpu")]
    waiting = [WaitingJob(request("a", 0)), WaitingJob(request("b", 1))]
    pool = NamespacedName("x", "pool")
    forecasts = forecast(waiting, [], offers, always(None))
    assert [one.start for one in forecasts.values()] == [
        PredictedStart(NamespacedName("x", "a"), pool, 0.0, None),
        None,
    ]
    forecasts = forecast(waiting, [RunningJob(NamespacedName("x", "old"), pool, None)], offers, always(9.0))
    assert [(one.position, one.start) for one in forecasts.values()] == [(1, None), (2, None)]


def test_no_two_jobs_have_the_same_position_and_those_that_cannot_start_have_none() -> None:
    offers = [
        NodeOffer(NamespacedName("x", "gpu"), "nvidia"),
        NodeOffer(NamespacedName("x", "cpu"), "cpu"),
        NodeOffer(NamespacedName("y", "cpu"), "cpu"),
    ]
    running_jobs = [RunningJob(NamespacedName("x", f"on-{one.node.name}"), one.node) for one in offers]
    waiting = [
        WaitingJob(request("cuda-1", 0, backend="cuda")),
        WaitingJob(request("hip-1", 1, backend="hip")),
        WaitingJob(request("any-1", 2)),
        WaitingJob(request("suspended", 3), None),
        WaitingJob(request("cuda-2", 4, backend="cuda")),
        WaitingJob(request("hip-2", 5, backend="hip")),
        WaitingJob(request("urgent", 6, priority=5, backend="cuda")),
        WaitingJob(JobRequest(NamespacedName("y", "elsewhere"), Requirements("y"), 0)),
        WaitingJob(request("retrying", 7), 15.0),
    ]
    forecasts = forecast(waiting, running_jobs, offers, always(1.0))
    assert [(job.name, one.position) for job, one in forecasts.items()] == [
        ("urgent", 1), ("cuda-1", 2), ("any-1", 3), ("cuda-2", 4), ("retrying", 5),
        ("hip-1", None), ("suspended", None), ("hip-2", None),
        ("elsewhere", 1),
    ]  # fmt: skip


def test_jobs_without_a_usable_node_have_no_position_but_a_cause() -> None:
    offers = [
        NodeOffer(NamespacedName("x", "a"), "cpu", cordoned=True),
        NodeOffer(NamespacedName("x", "b"), "nvidia", healthy=False),
    ]
    waiting = [WaitingJob(request("a", 0)), WaitingJob(request("b", 1, backend="cuda")), WaitingJob(request("c", 2))]
    forecasts = forecast(waiting, [], offers, always(1.0))
    assert [(one.position, one.start, one.cause.reason) for one in forecasts.values() if one.cause] == [
        (None, None, "NoHealthyNode")
    ] * 3
    offers[0] = NodeOffer(NamespacedName("x", "a"), "cpu")
    found = forecast(waiting, [], offers, always(1.0))
    assert [(job.name, one.position) for job, one in found.items()] == [("a", 1), ("c", 2), ("b", None)]


def test_the_expected_duration_is_the_median_of_the_latest_of_the_class() -> None:
    requirements, cpu, gpu = (
        Requirements("x"),
        NodeOffer(NamespacedName("x", "c"), "cpu"),
        NodeOffer(NamespacedName("x", "g"), "nvidia"),
    )
    samples = [JobDuration(JobClass("x", "cpu"), float(number), 10.0) for number in range(MAX_SAMPLES)]
    samples += [JobDuration(JobClass("x", "cpu"), 1e6 + number, 20.0) for number in range(MAX_SAMPLES)]
    samples += [JobDuration(JobClass("x", "nvidia"), 1.0, seconds) for seconds in (1.0, 2.0, 6.0, 9.0, -5.0)]
    known = Durations(samples)
    assert (known.expected(requirements, cpu), known.expected(requirements, gpu)) == (20.0, 4.0)
    assert known.expected(Requirements("x", "cpu"), gpu) == 20.0  # scored by the CPU on any node
    assert known.expected(Requirements("y"), cpu) is None
    assert Durations().expected(requirements, cpu) is None


@pytest.mark.parametrize(
    ("elapsed", "remaining"), [(0.0, 4.0), (1.5, 4.5), (6.0, 3.0), (9.0, 0.0), (18.0, 0.0), (18.1, None)]
)
def test_the_remaining_time_comes_from_jobs_that_took_longer(elapsed: float, remaining: float | None) -> None:
    known = Durations([JobDuration(JobClass("x", "cpu"), 1.0, seconds) for seconds in (1.0, 2.0, 6.0, 9.0)])
    assert known.remaining(Requirements("x"), NodeOffer(NamespacedName("x", "c"), "cpu"), elapsed) == remaining


def job(spec: Mapping[str, Any] = {}, **status: Any) -> JobView:
    meta = MetaView("clip", "x", "u1", creationTimestamp=NOW)
    return JobView(meta, JobSpecView("s3://b/r", "s3://b/d", **spec), JobStatusView(**status))


def scheduled(status: Any, reason: str, seconds_ago: float) -> tuple[Condition, ...]:
    return (Condition("Scheduled", status, NOW - timedelta(seconds=seconds_ago), reason, "failed"),)


RETRYING = scheduled("False", "Retrying", 4)


@pytest.mark.parametrize(
    ("one", "reason", "after"),
    [
        (job(), None, 0.0),
        (job({"suspend": True}), "Suspended", None),
        (job({"schedulerName": "other"}), "AwaitingScheduler", None),
        (job(failures=1, conditions=RETRYING), "Retrying", 6.0),
        (job(failures=1, conditions=scheduled("False", "Retrying", 11)), None, 0.0),
        (job(conditions=scheduled("False", "NoNodes", 11)), None, 0.0),
    ],
)
def test_the_forecast_and_the_operator_agree_on_which_jobs_are_in_the_queue(
    one: JobView, reason: str | None, after: float | None
) -> None:
    step = decide(one, age_at(NOW))
    gate = queue_gate(one, age_at(NOW))
    if reason is None:
        assert (step, gate) == (Enqueue(), None)
    else:
        assert isinstance(step, KeepPending)
        assert gate is not None
        assert (gate.reason, gate.message) == (step.reason, step.message)
        assert gate.reason == reason
    assert waiting_job(one, NOW).after == after


def test_a_job_that_another_controller_runs_is_not_in_the_queue() -> None:
    one = job(controllerJobID="external")
    assert queue_gate(one, age_at(NOW)) == ("AwaitingScheduler", "an external controller runs it, as external", None)


def test_cancelled_and_placed_jobs_wait_for_the_operator() -> None:
    for one, reason in ((job({"cancel": True}), "Cancelled"), (job(assignedNode="n"), "Placed")):
        gate = queue_gate(one, age_at(NOW))
        assert gate is not None
        assert (gate.reason, gate.after) == (reason, None)


def test_the_end_of_a_running_job_is_estimated_from_its_progress_or_from_other_jobs() -> None:
    offer = NodeOffer(NamespacedName("x", "n"), "cpu")
    running = job(
        phase="Running", assignedNode="n", startedAt=NOW - timedelta(hours=1), conditions=scheduled("True", "P", 4)
    )
    known = Durations([JobDuration(JobClass("x", "cpu"), 1.0, 10.0)])
    name, node = NamespacedName("x", "clip"), NamespacedName("x", "n")
    assert running_job(running, offer, known, NOW) == RunningJob(name, node, 6.0)
    assert running_job(running, offer, known, NOW, JobProgress(100, 400, 50.0)) == RunningJob(name, node, 6.0)
    assert running_job(running, offer, known, NOW, JobProgress(500, 400, 50.0)) == RunningJob(name, node, 0.0)
    assert running_job(running, offer, known, NOW, JobProgress(100, 0, 50.0)) == RunningJob(name, node, 6.0)
    assert running_job(running, offer, Durations(), NOW) == RunningJob(name, node, None)
    assert running_job(running, None, known, NOW) == RunningJob(name, node, None)


def test_the_duration_of_a_job_is_that_of_its_last_attempt() -> None:
    offer = NodeOffer(NamespacedName("x", "n"), "nvidia")
    status: dict[str, Any] = {
        "phase": "Succeeded",
        "assignedNode": "n",
        "startedAt": NOW - timedelta(hours=1),
        "finishedAt": NOW,
    }
    assert job_duration(job(**status, conditions=scheduled("True", "Placed", 8)), offer) == JobDuration(
        JobClass("x", "nvidia"), NOW.timestamp(), 8.0
    )
    assert job_duration(job(**status), offer) == JobDuration(JobClass("x", "nvidia"), NOW.timestamp(), 3600.0)
    assert job_duration(job(phase="Succeeded", assignedNode="n"), offer) is None


def test_the_forecast_without_jobs_or_without_nodes() -> None:
    assert forecast([], [], [], always(1.0)) == {}
    assert forecast([WaitingJob(request("a"))], [], [], always(1.0)) == {
        NamespacedName("x", "a"): JobForecast(None, PendingCause("NoNodes", "there is no VmafxNode in namespace x"))
    }
