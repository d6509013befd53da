"""The scheduler against the plainest one there is: look at every job and every node, every time."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.scheduling.scheduler import Scheduler
from vmafx.scheduling.terms import VENDORS, Name, Offer, Placement, Request, Terms, Waiting

A, B = ("tier", "a"), ("tier", "b")


@dataclass
class Plain:
    """What the scheduler must decide, without a thought for time."""

    waiting: dict[Name, Request] = field(default_factory=dict)
    nodes: dict[Name, Offer] = field(default_factory=dict)
    on: dict[Name, Name] = field(default_factory=dict)

    def place(self) -> list[Placement]:
        placed = []
        while found := next(
            (
                (request.job, node)
                for request in sorted(self.waiting.values(), key=Request.order)
                if (node := self._best(request.terms))
            ),
            None,
        ):
            job, node = found
            del self.waiting[job]
            self.on[job] = node
            placed.append(Placement(job, node))
        return placed

    def _best(self, terms: Terms) -> Name | None:
        used = Counter(self.on.values())
        usable = [offer for offer in self.nodes.values() if offer.fits(terms) and offer.usable()]
        preferred = [offer for offer in usable if offer.node.name not in terms.excluded] or usable
        free = [offer for offer in preferred if used[offer.node] < offer.capacity]
        order = VENDORS[terms.backend]
        return min(
            (
                (order.index(offer.vendor), used[offer.node] / offer.capacity, -offer.fps, offer.node.name, offer.node)
                for offer in free
            ),
            default=(None,) * 5,
        )[4]


JOBS = st.builds(Name, st.sampled_from(["x", "y"]), st.sampled_from([f"job-{number}" for number in range(8)]))
NODES = st.builds(Name, st.sampled_from(["x", "y"]), st.sampled_from([f"node-{number}" for number in range(4)]))
LABELS = st.sampled_from([frozenset[tuple[str, str]](), frozenset({A}), frozenset({B})])
OFFERS = st.builds(
    Offer,
    node=NODES,
    vendor=st.sampled_from(["cpu", "nvidia", "amd"]),
    capacity=st.integers(1, 3),
    healthy=st.sampled_from([True, True, True, False]),
    cordoned=st.sampled_from([False, False, False, True]),
    agent=st.booleans(),
    spoken=st.sampled_from([True, True, False]),
    labels=LABELS,
    fps=st.sampled_from([0.0, 10.0, 20.0]),
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    job = draw(JOBS)
    terms = Terms(
        job.namespace,
        draw(st.sampled_from([None, "cpu", "cuda", "hip"])),
        draw(LABELS),
        frozenset(draw(st.lists(st.sampled_from([f"node-{number}" for number in range(4)]), max_size=2))),
        draw(st.sampled_from([False, False, True])),
    )
    return Request(job, terms, float(draw(st.integers(0, 5))), draw(st.integers(0, 2)))


STEPS = st.lists(
    st.one_of(
        requests(),
        OFFERS,
        st.tuples(st.just("forget"), JOBS),
        st.tuples(st.just("gone"), NODES),
        st.tuples(st.just("hold"), JOBS, st.sampled_from([f"node-{number}" for number in range(4)])),
        st.just("place"),
    ),
    max_size=60,
)


def apply(scheduler: Scheduler, plain: Plain, step: object) -> None:
    match step:
        case Request():
            scheduler.wait(step)
            plain.on.pop(step.job, None)
            plain.waiting[step.job] = step
        case Offer():
            scheduler.offer(step)
            plain.nodes[step.node] = step
        case ("forget", Name() as job):
            scheduler.forget(job)
            plain.waiting.pop(job, None)
            plain.on.pop(job, None)
        case ("gone", Name() as node):
            scheduler.withdraw(node)
            plain.nodes.pop(node, None)
        case ("hold", Name() as job, str() as name):
            node = Name(job.namespace, name)
            scheduler.hold(job, node)
            plain.waiting.pop(job, None)
            plain.on[job] = node
        case _:
            assert list(scheduler.place()) == plain.place()


@given(STEPS)
def test_it_decides_as_the_plain_one_does(steps: list[object]) -> None:
    scheduler, plain = Scheduler(), Plain()
    for step in [*steps, "place"]:
        apply(scheduler, plain, step)
        assert scheduler.waiting() == len(plain.waiting)
        used = Counter(plain.on.values())
        assert all(scheduler.used(node) == used[node] for node in plain.nodes)
    for job, request in plain.waiting.items():
        assert scheduler.why(job) is not None, request
    for job in plain.on:
        assert scheduler.why(job) is None


@given(STEPS)
def test_a_restart_gives_the_same_answer(steps: list[object]) -> None:
    """A new scheduler that is told the state, in another order, goes on as the old one."""
    scheduler, plain = Scheduler(), Plain()
    for step in steps:
        apply(scheduler, plain, step)
    fresh = Scheduler()
    for request in reversed(plain.waiting.values()):
        fresh.wait(request)
    for job, node in reversed(plain.on.items()):
        fresh.hold(job, node)
    for offer in reversed(plain.nodes.values()):
        fresh.offer(offer)
    assert list(fresh.place()) == list(scheduler.place())


@given(STEPS)
def test_never_over_capacity_and_never_on_an_unfit_node(steps: list[object]) -> None:
    scheduler, plain = Scheduler(), Plain()
    for step in steps:
        if step != "place":
            apply(scheduler, plain, step)
            continue
        before = dict(plain.waiting)
        for placement in scheduler.place():
            offer, request = plain.nodes[placement.node], before[placement.job]
            assert offer.fits(request.terms)
            assert offer.usable()
            assert scheduler.used(placement.node) <= offer.capacity
        plain.place()


def request(name: str, created: float = 0, **terms: object) -> Request:
    return Request(Name("x", name), Terms("x", **terms), created)  # type: ignore[arg-type]


def offered(*offers: Offer) -> Scheduler:
    scheduler = Scheduler()
    for offer in offers:
        scheduler.offer(offer)
    return scheduler


def test_a_line_that_cannot_move_holds_up_no_other() -> None:
    scheduler = offered(Offer(Name("x", "cpu"), "cpu"))
    scheduler.wait(request("first", 1, backend="cuda"))
    scheduler.wait(request("second", 2, backend="cpu"))
    assert list(scheduler.place()) == [(Name("x", "second"), Name("x", "cpu"))]


def test_jobs_spread_over_nodes_and_prefer_the_faster() -> None:
    scheduler = offered(*(Offer(Name("x", name), "cpu", 2, fps=fps) for name, fps in (("slow", 10), ("fast", 50))))
    for number in range(4):
        scheduler.wait(request(f"job-{number}", number))
    assert [placement.node.name for placement in scheduler.place()] == ["fast", "slow", "fast", "slow"]


def test_an_excluded_node_is_used_only_if_no_other_fits() -> None:
    scheduler = offered(Offer(Name("x", "bad"), "cpu"), Offer(Name("x", "good"), "cpu"))
    scheduler.hold(Name("x", "other"), Name("x", "good"))
    scheduler.wait(request("again", excluded=frozenset({"bad"})))
    assert list(scheduler.place()) == []
    scheduler.offer(Offer(Name("x", "good"), "cpu", cordoned=True))
    assert list(scheduler.place()) == [(Name("x", "again"), Name("x", "bad"))]


@pytest.mark.parametrize(
    ("offers", "terms", "reason"),
    [
        ([], {}, ("NoNodes", "there is no VmafxNode in namespace x")),
        (
            [Offer(Name("x", "n"), "cpu")],
            {"selector": frozenset({A})},
            ("NoNodes", "there is no VmafxNode with the labels of its nodeSelector in namespace x"),
        ),
        (
            [Offer(Name("x", "n"), "cpu")],
            {"backend": "cuda"},
            ("BackendUnavailable", "no node has a GPU for backend cuda"),
        ),
        (
            [Offer(Name("x", "n"), "cpu", agent=True)],
            {"pod_only": True},
            ("BackendUnavailable", "its credentialsSecretRef needs a node that runs jobs as Pods"),
        ),
        (
            [Offer(Name("x", "n"), "cpu", healthy=False), Offer(Name("x", "m"), "cpu", cordoned=True)],
            {},
            ("NoHealthyNode", "the 2 nodes that fit are unhealthy or cordoned"),
        ),
        (
            [Offer(Name("x", "n"), "cpu", agent=True, spoken=False)],
            {},
            ("NoAgent", "no agent has spoken yet for the one node that fits"),
        ),
    ],
)
def test_why_a_job_waits(offers: list[Offer], terms: dict[str, object], reason: tuple[str, str]) -> None:
    scheduler = offered(*offers)
    scheduler.wait(request("job", 0, **terms))
    assert list(scheduler.place()) == []
    assert scheduler.why(Name("x", "job")) == reason


def test_a_full_fleet_is_told_with_its_size() -> None:
    scheduler = offered(Offer(Name("x", "n"), "cpu", 2), Offer(Name("x", "m"), "cpu"))
    for number in range(4):
        scheduler.wait(request(f"job-{number}", number))
    assert len(list(scheduler.place())) == 3
    assert scheduler.why(Name("x", "job-3")) == Waiting(
        "InsufficientCapacity", "all 3 slots of the 2 nodes that fit are taken"
    )
    scheduler.forget(Name("x", "job-0"))
    assert [placement.job.name for placement in scheduler.place()] == ["job-3"]
