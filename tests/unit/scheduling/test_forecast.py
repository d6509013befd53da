"""The forecast against the plainest one, and against what the scheduler then really does."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scheduling.test_scheduler import NODES, OFFERS, Plain, requests
from vmafx.api.job import JobProgress, JobSpecView, JobStatusView, JobView
from vmafx.api.meta import Condition, MetaView
from vmafx.jobs.state import scheduling_gate
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


def by_vendor(_terms: Requirements, offer: NodeOffer) -> float | None:
    return SECONDS[offer.vendor]


def always(seconds: float | None) -> DurationEstimate:
    return lambda _terms, _offer: seconds


WAITERS = st.lists(
    st.builds(WaitingJob, requests(), st.sampled_from([0.0, 0.0, 0.0, 15.0, None])),
    max_size=12,
    unique_by=lambda one: one.request.job,
)
FLEETS = st.lists(OFFERS, max_size=5, unique_by=lambda one: one.node)
RUNNERS = st.lists(
    st.tuples(NODES, st.sampled_from([None, 0.0, 5.0, 5.0, 20.0])),
    max_size=4,
).map(
    lambda drawn: [
        RunningJob(NamespacedName(node.namespace, f"old-{n}"), node, left) for n, (node, left) in enumerate(drawn)
    ]
)


def plainly(
    waiters: list[WaitingJob], runners: list[RunningJob], offers: list[NodeOffer], lasting: DurationEstimate
) -> dict[NamespacedName, PredictedStart]:
    """Moment by moment, with the scheduler that looks at everything every time."""
    plain = Plain(nodes={offer.node: offer for offer in offers}, on={one.job: one.node for one in runners})
    asked = {one.request.job: one.request for one in waiters}
    coming = {one.request.job: one.after for one in waiters if one.after is not None}
    ending = {one.job: one.left for one in runners if one.left is not None}
    starts: dict[NamespacedName, PredictedStart] = {}
    now, ended = 0.0, -1.0  # what ends now has not ended yet
    while True:
        for job in [job for job, at in ending.items() if at <= ended]:
            del ending[job], plain.on[job]
        for job in [job for job, at in coming.items() if at <= now]:
            del coming[job]
            plain.waiting[job] = asked[job]
        for job, node in plain.place():
            lasts = lasting(asked[job].requirements, plain.nodes[node])
            starts[job] = PredictedStart(job, node, now, None if lasts is None else now + lasts)
            if lasts is not None:
                ending[job] = now + lasts
        moments = [*ending.values(), *coming.values()]
        if not moments:
            return starts
        now = ended = min(moments)


@given(WAITERS, RUNNERS, FLEETS)
def test_it_foresees_what_the_plain_one_does(
    waiters: list[WaitingJob], runners: list[RunningJob], offers: list[NodeOffer]
) -> None:
    seen = forecast(waiters, runners, offers, by_vendor)
    assert seen.keys() == {one.request.job for one in waiters}
    assert {job: one.start for job, one in seen.items() if one.start} == plainly(waiters, runners, offers, by_vendor)
    for waiter in waiters:
        outlook = seen[waiter.request.job]
        if outlook.start is not None:
            assert outlook.start.starts >= (waiter.after or 0.0)
            assert outlook.start.ends is None or outlook.start.ends >= outlook.start.starts
        if waiter.after is None:
            assert outlook.start is None
        if outlook.cause is None:
            assert waiter.after != 0 or (outlook.start is not None and outlook.start.starts == 0)
        else:
            assert waiter.after == 0


@given(WAITERS, RUNNERS, FLEETS, st.randoms(use_true_random=False))
def test_the_same_facts_in_another_order_give_the_same(
    waiters: list[WaitingJob], runners: list[RunningJob], offers: list[NodeOffer], chance: random.Random
) -> None:
    first = forecast(waiters, runners, offers, by_vendor)
    for facts in (waiters, runners, offers):
        chance.shuffle(facts)
    assert list(forecast(waiters, runners, offers, by_vendor).items()) == list(first.items())


@given(WAITERS, RUNNERS, FLEETS)
def test_no_more_start_on_a_jobs_nodes_before_it_than_its_position_says(
    waiters: list[WaitingJob], runners: list[RunningJob], offers: list[NodeOffer]
) -> None:
    waiters = [one for one in waiters if one.after in {0.0, None}]  # who comes later is overtaken meanwhile
    seen = forecast(waiters, runners, offers, always(10.0))
    order = list(seen)
    starts = sorted((one.start.starts, order.index(job)) for job, one in seen.items() if one.start)
    for waiter in waiters:
        job, terms = waiter.request.job, waiter.request.requirements
        own = seen[job].start
        usable = [offer for offer in offers if offer.usable() and offer.fits(terms)]
        mine = {one.node for one in usable if one.node.name not in terms.excluded} or {one.node for one in usable}
        before = [
            order[place]
            for when, place in starts
            if (own is None or when < own.starts) and seen[order[place]].start.node in mine  # type: ignore[union-attr]
        ]
        if (position := seen[job].position) is not None:
            assert len(before) < position
            assert all(order.index(one) < order.index(job) for one in before)


@given(WAITERS, RUNNERS, FLEETS)
def test_positions_count_the_jobs_of_a_namespace_that_can_get_a_node(
    waiters: list[WaitingJob], runners: list[RunningJob], offers: list[NodeOffer]
) -> None:
    seen = forecast(waiters, runners, offers, always(None))
    for namespace in ("x", "y"):
        listed = [one.position for job, one in seen.items() if job.namespace == namespace]
        numbered = [
            one.request
            for one in sorted(waiters, key=lambda one: one.request.order())
            if one.request.job.namespace == namespace
            and one.after is not None
            and any(offer.usable() and offer.fits(one.request.requirements) for offer in offers)
        ]
        assert listed == [*range(1, len(numbered) + 1), *[None] * (len(listed) - len(numbered))]
        assert [seen[one.job].position for one in numbered] == listed[: len(numbered)]


@given(WAITERS, FLEETS)
def test_the_scheduler_then_does_so(waiters: list[WaitingJob], offers: list[NodeOffer]) -> None:
    """Jobs of equal length, ended in the order foretold: each placement comes when it was foretold."""
    waiters = [WaitingJob(one.request) for one in waiters]
    foretold = [one.start for one in forecast(waiters, [], offers, always(10.0)).values() if one.start]
    scheduler = Scheduler()
    for offer in offers:
        scheduler.set_node(offer)
    for waiter in waiters:
        scheduler.enqueue(waiter.request)
    for moment in sorted({start.starts for start in foretold}):
        for over in foretold:
            if over.ends == moment:
                scheduler.remove_job(over.job)
        assert set(scheduler.place()) == {(one.job, one.node) for one in foretold if one.starts == moment}


def request(name: str, created: float = 0, priority: int = 0, **terms: Any) -> JobRequest:
    return JobRequest(NamespacedName("x", name), Requirements("x", **terms), created, priority)


def test_two_slots_and_five_jobs() -> None:
    offers = [NodeOffer(NamespacedName("x", "pool"), "cpu", capacity=2)]
    runners = [RunningJob(NamespacedName("x", "old"), NamespacedName("x", "pool"), 12.0)]
    waiters = [WaitingJob(request(f"job-{number}", number)) for number in range(5)]
    seen = forecast(waiters, runners, offers, always(30.0))
    assert [(one.position, one.start.starts, one.start.ends) for one in seen.values() if one.start] == [
        (1, 0.0, 30.0), (2, 12.0, 42.0), (3, 30.0, 60.0), (4, 42.0, 72.0), (5, 60.0, 90.0),
    ]  # fmt: skip
    full = PendingCause("InsufficientCapacity", "all 2 slots of the one node that fits are taken")
    assert [one.cause for one in seen.values()] == [None, full, full, full, full]


def test_of_slots_that_become_free_together_the_best_is_taken() -> None:
    offers = [
        NodeOffer(NamespacedName("x", "slow"), "cpu", fps=1.0),
        NodeOffer(NamespacedName("x", "fast"), "cpu", fps=9.0),
    ]
    for names in ("ab", "ba"):
        runners = [
            RunningJob(NamespacedName("x", name), offer.node, 5.0) for name, offer in zip(names, offers, strict=True)
        ]
        (outlook,) = forecast([WaitingJob(request("job"))], runners, offers, always(1.0)).values()
        assert outlook.start == PredictedStart(NamespacedName("x", "job"), NamespacedName("x", "fast"), 5.0, 6.0)


def test_what_is_not_known_is_not_said() -> None:
    offers = [NodeOffer(NamespacedName("x", "pool"), "cpu")]
    waiters = [WaitingJob(request("a", 0)), WaitingJob(request("b", 1))]
    pool = NamespacedName("x", "pool")
    seen = forecast(waiters, [], offers, always(None))
    assert [one.start for one in seen.values()] == [PredictedStart(NamespacedName("x", "a"), pool, 0.0, None), None]
    seen = forecast(waiters, [RunningJob(NamespacedName("x", "old"), pool, None)], offers, always(9.0))
    assert [(one.position, one.start) for one in seen.values()] == [(1, None), (2, None)]


def test_no_two_jobs_have_the_same_position_and_those_that_cannot_start_have_none() -> None:
    offers = [
        NodeOffer(NamespacedName("x", "gpu"), "nvidia"),
        NodeOffer(NamespacedName("x", "cpu"), "cpu"),
        NodeOffer(NamespacedName("y", "cpu"), "cpu"),
    ]
    runners = [RunningJob(NamespacedName("x", f"on-{one.node.name}"), one.node) for one in offers]
    waiters = [
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
    seen = forecast(waiters, runners, offers, always(1.0))
    assert [(job.name, one.position) for job, one in seen.items()] == [
        ("urgent", 1), ("cuda-1", 2), ("any-1", 3), ("cuda-2", 4), ("retrying", 5),
        ("hip-1", None), ("suspended", None), ("hip-2", None),
        ("elsewhere", 1),
    ]  # fmt: skip


def test_jobs_whose_nodes_take_none_have_no_position_and_say_why() -> None:
    offers = [
        NodeOffer(NamespacedName("x", "a"), "cpu", cordoned=True),
        NodeOffer(NamespacedName("x", "b"), "nvidia", healthy=False),
    ]
    waiters = [WaitingJob(request("a", 0)), WaitingJob(request("b", 1, backend="cuda")), WaitingJob(request("c", 2))]
    seen = forecast(waiters, [], offers, always(1.0))
    assert [(one.position, one.start, one.cause.reason) for one in seen.values() if one.cause] == [
        (None, None, "NoHealthyNode")
    ] * 3
    offers[0] = NodeOffer(NamespacedName("x", "a"), "cpu")
    found = forecast(waiters, [], offers, always(1.0))
    assert [(job.name, one.position) for job, one in found.items()] == [("a", 1), ("c", 2), ("b", None)]


def test_durations_are_those_of_the_latest_runs_of_the_kind() -> None:
    terms, cpu, gpu = (
        Requirements("x"),
        NodeOffer(NamespacedName("x", "c"), "cpu"),
        NodeOffer(NamespacedName("x", "g"), "nvidia"),
    )
    runs = [JobDuration(JobClass("x", "cpu"), float(number), 10.0) for number in range(MAX_SAMPLES)]
    runs += [JobDuration(JobClass("x", "cpu"), 1e6 + number, 20.0) for number in range(MAX_SAMPLES)]
    runs += [JobDuration(JobClass("x", "nvidia"), 1.0, seconds) for seconds in (1.0, 2.0, 6.0, 9.0, -5.0)]
    known = Durations(runs)
    assert (known.expected(terms, cpu), known.expected(terms, gpu)) == (20.0, 4.0)
    assert known.expected(Requirements("x", "cpu"), gpu) == 20.0  # computed by the CPU, on whatever node
    assert known.expected(Requirements("y"), cpu) is None
    assert Durations().expected(terms, cpu) is None


@pytest.mark.parametrize(
    ("so_far", "rest"), [(0.0, 4.0), (1.5, 4.5), (6.0, 3.0), (9.0, 0.0), (18.0, 0.0), (18.1, None)]
)
def test_the_rest_of_a_run_is_that_of_those_not_over_by_then(so_far: float, rest: float | None) -> None:
    known = Durations([JobDuration(JobClass("x", "cpu"), 1.0, seconds) for seconds in (1.0, 2.0, 6.0, 9.0)])
    assert known.remaining(Requirements("x"), NodeOffer(NamespacedName("x", "c"), "cpu"), so_far) == rest


def job(spec: Mapping[str, Any] = {}, **status: Any) -> JobView:
    meta = MetaView("clip", "x", "u1", creationTimestamp=NOW)
    return JobView(meta, JobSpecView("s3://b/r", "s3://b/d", **spec), JobStatusView(**status))


def said(status: Any, reason: str, seconds_ago: float) -> tuple[Condition, ...]:
    return (Condition("Scheduled", status, NOW - timedelta(seconds=seconds_ago), reason, "no luck"),)


RETRYING = said("False", "Retrying", 4)


@pytest.mark.parametrize(
    ("one", "reason", "after"),
    [
        (job(), None, 0.0),
        (job({"suspend": True}), "Suspended", None),
        (job({"schedulerName": "other"}), "AwaitingScheduler", None),
        (job(failures=1, conditions=RETRYING), "Retrying", 6.0),
        (job(failures=1, conditions=said("False", "Retrying", 11)), None, 0.0),
        (job(conditions=said("False", "NoNodes", 11)), None, 0.0),
    ],
)
def test_who_is_in_the_queue_is_who_the_operator_puts_there(
    one: JobView, reason: str | None, after: float | None
) -> None:
    step = decide(one, NOW)
    hold = scheduling_gate(one, NOW)
    if reason is None:
        assert (step, hold) == (Enqueue(), None)
    else:
        assert isinstance(step, KeepPending)
        assert hold is not None
        assert (hold.reason, hold.message) == (step.reason, step.message)
        assert hold.reason == reason
    assert waiting_job(one, NOW).after == after


def test_a_job_that_another_controller_has_is_not_in_the_queue() -> None:
    one = job(controllerJobID="external")
    assert scheduling_gate(one, NOW) == ("AwaitingScheduler", "another controller runs it, as external", None)


def test_cancelled_and_placed_jobs_wait_for_nothing_but_the_operator() -> None:
    for one, reason in ((job({"cancel": True}), "Cancelled"), (job(assignedNode="n"), "Placed")):
        hold = scheduling_gate(one, NOW)
        assert hold is not None
        assert (hold.reason, hold.after) == (reason, None)


def test_a_running_job_is_judged_by_its_frames_else_by_what_others_took() -> None:
    offer = NodeOffer(NamespacedName("x", "n"), "cpu")
    running = job(
        phase="Running", assignedNode="n", startedAt=NOW - timedelta(hours=1), conditions=said("True", "P", 4)
    )
    known = Durations([JobDuration(JobClass("x", "cpu"), 1.0, 10.0)])
    name, node = NamespacedName("x", "clip"), NamespacedName("x", "n")
    assert running_job(running, offer, known, NOW) == RunningJob(name, node, 6.0)
    assert running_job(running, offer, known, NOW, JobProgress(100, 400, 50.0)) == RunningJob(name, node, 6.0)
    assert running_job(running, offer, known, NOW, JobProgress(500, 400, 50.0)) == RunningJob(name, node, 0.0)
    assert running_job(running, offer, known, NOW, JobProgress(100, 0, 50.0)) == RunningJob(name, node, 6.0)
    assert running_job(running, offer, Durations(), NOW) == RunningJob(name, node, None)
    assert running_job(running, None, known, NOW) == RunningJob(name, node, None)


def test_a_run_is_the_last_attempt_and_not_the_waiting_before_it() -> None:
    offer = NodeOffer(NamespacedName("x", "n"), "nvidia")
    status: dict[str, Any] = {
        "phase": "Succeeded",
        "assignedNode": "n",
        "startedAt": NOW - timedelta(hours=1),
        "finishedAt": NOW,
    }
    assert job_duration(job(**status, conditions=said("True", "Placed", 8)), offer) == JobDuration(
        JobClass("x", "nvidia"), NOW.timestamp(), 8.0
    )
    assert job_duration(job(**status), offer) == JobDuration(JobClass("x", "nvidia"), NOW.timestamp(), 3600.0)
    assert job_duration(job(phase="Succeeded", assignedNode="n"), offer) is None


def test_an_outlook_of_nobody() -> None:
    assert forecast([], [], [], always(1.0)) == {}
    assert forecast([WaitingJob(request("a"))], [], [], always(1.0)) == {
        NamespacedName("x", "a"): JobForecast(None, PendingCause("NoNodes", "there is no VmafxNode in namespace x"))
    }
