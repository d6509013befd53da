"""The scheduler against the plainest one there is: look at every job and every node, every time."""

import sys
from collections import Counter
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.scheduling.requirements import (
    VENDORS,
    JobRequest,
    Label,
    NamespacedName,
    NodeOffer,
    PendingCause,
    Placement,
    Requirements,
)
from vmafx.scheduling.scheduler import Scheduler

A, B, C = ("tier", "a"), ("tier", "b"), ("region", "c")


@dataclass
class Plain:
    """What the scheduler must decide, without a thought for time."""

    waiting: dict[NamespacedName, JobRequest] = field(default_factory=dict)
    nodes: dict[NamespacedName, NodeOffer] = field(default_factory=dict)
    on: dict[NamespacedName, NamespacedName] = field(default_factory=dict)

    def place(self) -> list[Placement]:
        placed = []
        while found := next(
            (
                (request.job, node)
                for request in sorted(self.waiting.values(), key=JobRequest.order)
                if (node := self._best(request.requirements))
            ),
            None,
        ):
            job, node = found
            del self.waiting[job]
            self.on[job] = node
            placed.append(Placement(job, node))
        return placed

    def _best(self, terms: Requirements) -> NamespacedName | None:
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


JOBS = st.builds(NamespacedName, st.sampled_from(["x", "y"]), st.sampled_from([f"job-{number}" for number in range(8)]))
NODES = st.builds(
    NamespacedName, st.sampled_from(["x", "y"]), st.sampled_from([f"node-{number}" for number in range(4)])
)
NODE_NAMES = st.sampled_from([f"node-{number}" for number in range(4)])
LABELS = st.one_of(st.just(frozenset[Label]()), st.frozensets(st.sampled_from([A, B, C])))
OFFERS = st.builds(
    NodeOffer,
    node=NODES,
    vendor=st.sampled_from(["cpu", "nvidia", "amd"]),
    capacity=st.integers(1, 3),
    healthy=st.sampled_from([True, True, True, False]),
    cordoned=st.sampled_from([False, False, False, True]),
    draining=st.sampled_from([False, False, False, True]),
    agent=st.booleans(),
    agent_registered=st.sampled_from([True, True, False]),
    labels=LABELS,
    fps=st.sampled_from([0.0, 10.0, 20.0]),
)


@st.composite
def requests(draw: st.DrawFn) -> JobRequest:
    job = draw(JOBS)
    terms = Requirements(
        job.namespace,
        draw(st.sampled_from([None, "cpu", "cuda", "hip"])),
        draw(LABELS),
        draw(st.one_of(st.just(frozenset[str]()), st.frozensets(NODE_NAMES))),
        draw(st.sampled_from([False, False, True])),
    )
    return JobRequest(job, terms, float(draw(st.integers(0, 5))), draw(st.integers(0, 2)))


STEPS = st.lists(
    st.one_of(
        requests(),
        OFFERS,
        st.tuples(st.just("forget"), JOBS),
        st.tuples(st.just("gone"), NODES),
        st.tuples(st.just("hold"), JOBS, NODE_NAMES),
        st.tuples(st.just("look"), JOBS, st.integers(1, 200)),
        st.just("place"),
    ),
    max_size=60,
)


def apply(scheduler: Scheduler, plain: Plain, step: object) -> None:
    match step:
        case JobRequest():
            scheduler.enqueue(step)
            plain.on.pop(step.job, None)
            plain.waiting[step.job] = step
        case NodeOffer():
            scheduler.set_node(step)
            plain.nodes[step.node] = step
        case ("forget", NamespacedName() as job):
            scheduler.remove_job(job)
            plain.waiting.pop(job, None)
            plain.on.pop(job, None)
        case ("gone", NamespacedName() as node):
            scheduler.remove_node(node)
            plain.nodes.pop(node, None)
        case ("hold", NamespacedName() as job, str() as name):
            node = NamespacedName(job.namespace, name)
            scheduler.hold(job, node)
            plain.waiting.pop(job, None)
            plain.on[job] = node
        case ("look", NamespacedName() as job, int() as times):
            if request := plain.waiting.get(job):
                for _ in range(times):
                    scheduler.remove_job(job)
                    scheduler.enqueue(request)
        case _:
            assert list(scheduler.place()) == plain.place()


def told(plain: Plain) -> Scheduler:
    """A new scheduler that knows the state, told in another order."""
    fresh = Scheduler()
    for request in reversed(plain.waiting.values()):
        fresh.enqueue(request)
    for job, node in reversed(plain.on.items()):
        fresh.hold(job, node)
    for offer in reversed(plain.nodes.values()):
        fresh.set_node(offer)
    return fresh


def reasons(scheduler: Scheduler) -> dict[NamespacedName, PendingCause]:
    return {job: why for namespace in "xy" for _, why, jobs in scheduler.pending_groups(namespace) for job in jobs}


@given(STEPS)
def test_it_decides_as_the_plain_one_does(steps: list[object]) -> None:
    scheduler, plain = Scheduler(), Plain()
    for step in [*steps, "place"]:
        apply(scheduler, plain, step)
        assert reasons(scheduler) == reasons(told(plain))
        assert reasons(scheduler).keys() == plain.waiting.keys()
        used = Counter(plain.on.values())
        assert all(scheduler.used_slots(node) == used[node] for node in plain.nodes)
    assert {job: scheduler.pending_cause(job) for job in plain.waiting} == reasons(scheduler)
    for job in plain.on:
        assert scheduler.pending_cause(job) is None


@given(STEPS)
def test_a_restart_gives_the_same_answer(steps: list[object]) -> None:
    scheduler, plain = Scheduler(), Plain()
    for step in steps:
        apply(scheduler, plain, step)
    assert list(told(plain).place()) == list(scheduler.place())


@given(STEPS)
def test_what_is_gone_leaves_no_trace(steps: list[object]) -> None:
    scheduler, plain = Scheduler(), Plain()
    for step in steps:
        apply(scheduler, plain, step)
    for job in [*plain.waiting, *plain.on]:
        scheduler.remove_job(job)
    for node in plain.nodes:
        scheduler.remove_node(node)
    assert held(scheduler) <= held(Scheduler()) + SLACK


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
            assert offer.fits(request.requirements)
            assert offer.usable()
            assert scheduler.used_slots(placement.node) <= offer.capacity
        plain.place()


SLACK = 64 * 15  # entries of one heap that no longer count, and what they hold


def held(thing: object) -> int:
    """How much a scheduler keeps in mind: the sizes of all that is reachable from it."""
    seen: dict[int, object] = {}
    queue = [thing]
    total = 0
    while queue:
        one = queue.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if isinstance(one, dict):
            queue += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            queue += one
        elif type(one).__module__.startswith("vmafx."):
            queue += vars(one).values() if hasattr(one, "__dict__") else ()
        total += len(one) if isinstance(one, Sized) and not isinstance(one, str) else 0
    return total


def calls(work: Callable[[], object]) -> int:
    """How many functions are called for it: a measure of work that no other load changes."""
    counted = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


def request(name: str, created: float = 0, **terms: object) -> JobRequest:
    return JobRequest(NamespacedName("x", name), Requirements("x", **terms), created)  # type: ignore[arg-type]


def offered(*offers: NodeOffer) -> Scheduler:
    scheduler = Scheduler()
    for offer in offers:
        scheduler.set_node(offer)
    return scheduler


def test_a_line_that_cannot_move_holds_up_no_other() -> None:
    scheduler = offered(NodeOffer(NamespacedName("x", "cpu"), "cpu"))
    scheduler.enqueue(request("first", 1, backend="cuda"))
    scheduler.enqueue(request("second", 2, backend="cpu"))
    assert list(scheduler.place()) == [(NamespacedName("x", "second"), NamespacedName("x", "cpu"))]


def test_jobs_spread_over_nodes_and_prefer_the_faster() -> None:
    scheduler = offered(
        *(NodeOffer(NamespacedName("x", name), "cpu", 2, fps=fps) for name, fps in (("slow", 10), ("fast", 50)))
    )
    for number in range(4):
        scheduler.enqueue(request(f"job-{number}", number))
    assert [placement.node.name for placement in scheduler.place()] == ["fast", "slow", "fast", "slow"]


def test_an_excluded_node_is_used_only_if_no_other_fits() -> None:
    scheduler = offered(NodeOffer(NamespacedName("x", "bad"), "cpu"), NodeOffer(NamespacedName("x", "good"), "cpu"))
    scheduler.hold(NamespacedName("x", "other"), NamespacedName("x", "good"))
    scheduler.enqueue(request("again", excluded=frozenset({"bad"})))
    assert list(scheduler.place()) == []
    scheduler.set_node(NodeOffer(NamespacedName("x", "good"), "cpu", cordoned=True))
    assert list(scheduler.place()) == [(NamespacedName("x", "again"), NamespacedName("x", "bad"))]


@pytest.mark.parametrize(
    ("offers", "terms", "reason"),
    [
        ([], {}, ("NoNodes", "there is no VmafxNode in namespace x")),
        (
            [NodeOffer(NamespacedName("x", "n"), "cpu")],
            {"selector": frozenset({A})},
            ("NoNodes", "there is no VmafxNode with the labels of its nodeSelector in namespace x"),
        ),
        (
            [NodeOffer(NamespacedName("x", "n"), "cpu")],
            {"backend": "cuda"},
            ("BackendUnavailable", "no node has a GPU for backend cuda"),
        ),
        (
            [NodeOffer(NamespacedName("x", "n"), "cpu", agent=True)],
            {"pod_only": True},
            ("BackendUnavailable", "its credentialsSecretRef needs a node that runs jobs as Pods"),
        ),
        (  # it would not fit without them either
            [NodeOffer(NamespacedName("x", "n"), "cpu", agent=True), NodeOffer(NamespacedName("x", "m"), "cpu")],
            {"pod_only": True, "backend": "cuda"},
            ("BackendUnavailable", "no node has a GPU for backend cuda"),
        ),
        (
            [
                NodeOffer(NamespacedName("x", "n"), "cpu", healthy=False),
                NodeOffer(NamespacedName("x", "m"), "cpu", cordoned=True),
            ],
            {},
            (
                "NoHealthyNode",
                "the 2 nodes that fit are unhealthy (1) or cordoned (1) (kubectl get vmnode)",
            ),
        ),
        (
            [
                NodeOffer(NamespacedName("x", "n"), "cpu", draining=True),
                NodeOffer(NamespacedName("x", "m"), "cpu", cordoned=True, draining=True),
            ],
            {},
            ("NoHealthyNode", "the 2 nodes that fit are draining (1) or cordoned (1) (kubectl get vmnode)"),
        ),
        (
            [NodeOffer(NamespacedName("x", "n"), "cpu", draining=True)],
            {},
            ("NoHealthyNode", "the one node that fits, n, is draining (kubectl describe vmnode n)"),
        ),
        (
            [NodeOffer(NamespacedName("x", "n"), "cpu", healthy=False)],
            {},
            ("NoHealthyNode", "the one node that fits, n, is unhealthy (kubectl describe vmnode n)"),
        ),
        (
            [NodeOffer(NamespacedName("x", "n"), "cpu", agent=True, agent_registered=False)],
            {},
            ("NoAgent", "no agent has registered yet for the one node that fits"),
        ),
    ],
)
def test_why_a_job_waits(offers: list[NodeOffer], terms: dict[str, object], reason: tuple[str, str]) -> None:
    scheduler = offered(*offers)
    scheduler.enqueue(request("job", 0, **terms))
    assert list(scheduler.place()) == []
    assert scheduler.pending_cause(NamespacedName("x", "job")) == reason


def test_a_full_fleet_is_told_with_its_size() -> None:
    scheduler = offered(NodeOffer(NamespacedName("x", "n"), "cpu", 2), NodeOffer(NamespacedName("x", "m"), "cpu"))
    for number in range(4):
        scheduler.enqueue(request(f"job-{number}", number))
    assert len(list(scheduler.place())) == 3
    assert scheduler.pending_cause(NamespacedName("x", "job-3")) == PendingCause(
        "InsufficientCapacity", "all 3 slots of the 2 nodes that fit are taken"
    )
    scheduler.remove_job(NamespacedName("x", "job-0"))
    assert [placement.job.name for placement in scheduler.place()] == ["job-3"]


def test_a_standby_that_never_places_keeps_nothing_of_jobs_that_are_over() -> None:
    scheduler = offered(NodeOffer(NamespacedName("x", "n"), "cpu", 2))
    empty = held(scheduler)
    for number in range(5_000):
        scheduler.enqueue(request(f"job-{number}", -number))  # each is the first of its line
    for number in range(5_000):
        scheduler.hold(NamespacedName("x", f"job-{number}"), NamespacedName("x", "n"))
        scheduler.remove_job(NamespacedName("x", f"job-{number}"))
    assert held(scheduler) <= empty + SLACK


def test_a_job_that_is_looked_at_again_and_again_stands_in_line_once() -> None:
    scheduler = offered()
    for name in ("one", "other"):
        scheduler.enqueue(request(name))
    before = held(scheduler)
    for _ in range(5_000):
        scheduler.remove_job(NamespacedName("x", "one"))
        scheduler.enqueue(request("one"))
    assert held(scheduler) <= before + SLACK


def test_namespaces_of_the_past_are_forgotten() -> None:
    scheduler = Scheduler()
    empty = held(scheduler)
    for number in range(1_000):
        namespace = f"ns-{number}"
        scheduler.set_node(NodeOffer(NamespacedName(namespace, "n"), "cpu", labels=frozenset({A})))
        scheduler.enqueue(
            JobRequest(NamespacedName(namespace, "job"), Requirements(namespace, selector=frozenset({A})), 0)
        )
        list(scheduler.place())
        list(scheduler.pending_groups(namespace))
        scheduler.remove_job(NamespacedName(namespace, "job"))
        scheduler.remove_node(NamespacedName(namespace, "n"))
        assert list(scheduler.pending_groups(namespace)) == []
    assert held(scheduler) <= empty + SLACK


def crowded(lines: int, kind: str) -> Scheduler:
    """Nodes with one job each, and jobs that wait in many lines."""
    nodes = [f"node-{number}" for number in range(12)]
    scheduler = offered(
        *(NodeOffer(NamespacedName("x", node), "cpu", labels=frozenset({A, ("host", node)})) for node in nodes)
    )
    for node in nodes:
        scheduler.hold(NamespacedName("x", f"on-{node}"), NamespacedName("x", node))
    scheduler.enqueue(request("first", -1, selector=frozenset({A})))
    avoided = [frozenset(some) for size in range(5) for some in combinations(nodes[1:], size)]
    for number in range(lines):
        selector = frozenset({A, ("host", f"node-{number}")} if kind == "selector" else ())
        excluded = avoided[number] if kind == "excluded" else frozenset({nodes[0]} | avoided[number])
        scheduler.enqueue(request(f"job-{number}", number, selector=selector, excluded=excluded))
    list(scheduler.place())
    return scheduler


@pytest.mark.parametrize("kind", ["selector", "excluded", "all avoid one that is free"])
def test_a_job_end_takes_no_longer_where_there_are_more_lines(kind: str) -> None:
    def end(scheduler: Scheduler) -> int:
        for node in ("node-0", "node-11"):
            scheduler.remove_job(NamespacedName("x", f"on-{node}"))
            list(scheduler.place())
        scheduler.remove_job(NamespacedName("x", "on-node-10"))
        return calls(lambda: list(scheduler.place()))

    assert end(crowded(500, kind)) <= 2 * end(crowded(20, kind))


def test_speed_alone_changes_the_order_of_nodes_but_no_reason() -> None:
    slow, fast = NodeOffer(NamespacedName("x", "a"), "cpu", fps=10), NodeOffer(NamespacedName("x", "b"), "cpu", fps=20)
    scheduler = offered(slow, fast)
    assert not scheduler.set_node(fast)
    assert not scheduler.set_node(msgspec.structs.replace(slow, fps=30.0))
    scheduler.enqueue(request("job"))
    assert [placement.node.name for placement in scheduler.place()] == ["a"]


@pytest.mark.parametrize(
    "change",
    [
        {"healthy": False},
        {"cordoned": True},
        {"draining": True},
        {"agent_registered": False},
        {"capacity": 2},
        {"labels": frozenset({A})},
        {"vendor": "amd"},
        {"agent": True},
    ],
)
def test_whatever_else_changes_about_a_node_is_told(change: dict[str, object]) -> None:
    offer = NodeOffer(NamespacedName("x", "n"), "cpu")
    assert offered(offer).set_node(msgspec.structs.replace(offer, fps=1.0, **change))


def test_who_avoids_every_node_takes_what_others_avoid() -> None:
    scheduler = offered(NodeOffer(NamespacedName("x", "bad"), "cpu"), NodeOffer(NamespacedName("x", "good"), "cpu"))
    scheduler.hold(NamespacedName("x", "other"), NamespacedName("x", "good"))
    scheduler.enqueue(request("picky", 1, excluded=frozenset({"bad"})))
    assert list(scheduler.place()) == []
    scheduler.enqueue(request("desperate", 2, excluded=frozenset({"bad", "good"})))
    assert list(scheduler.place()) == [(NamespacedName("x", "desperate"), NamespacedName("x", "bad"))]
