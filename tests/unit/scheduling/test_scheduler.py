"""The scheduler, compared with a simple model that checks every job against every node, every time."""

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
class SimpleScheduler:
    """What the scheduler must decide, in the simplest way."""

    waiting: dict[NamespacedName, JobRequest] = field(default_factory=dict)
    nodes: dict[NamespacedName, NodeOffer] = field(default_factory=dict)
    node_of: dict[NamespacedName, NamespacedName] = field(default_factory=dict)

    def place(self) -> list[Placement]:
        placed = []
        while found := next(
            (
                (request.job, node)
                for request in sorted(self.waiting.values(), key=JobRequest.order)
                if (node := self._best_node(request.requirements))
            ),
            None,
        ):
            job, node = found
            del self.waiting[job]
            self.node_of[job] = node
            placed.append(Placement(job, node))
        return placed

    def _best_node(self, requirements: Requirements) -> NamespacedName | None:
        used = Counter(self.node_of.values())
        usable = [offer for offer in self.nodes.values() if offer.fits(requirements) and offer.usable()]
        preferred = [offer for offer in usable if offer.node.name not in requirements.excluded] or usable
        free = [offer for offer in preferred if used[offer.node] < offer.capacity]
        order = VENDORS[requirements.backend]
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
    requirements = Requirements(
        job.namespace,
        draw(st.sampled_from([None, "cpu", "cuda", "hip"])),
        draw(LABELS),
        draw(st.one_of(st.just(frozenset[str]()), st.frozensets(NODE_NAMES))),
        draw(st.sampled_from([False, False, True])),
    )
    return JobRequest(job, requirements, float(draw(st.integers(0, 5))), draw(st.integers(0, 2)))


STEPS = st.lists(
    st.one_of(
        requests(),
        OFFERS,
        st.tuples(st.just("remove job"), JOBS),
        st.tuples(st.just("remove node"), NODES),
        st.tuples(st.just("hold"), JOBS, NODE_NAMES),
        st.tuples(st.just("requeue"), JOBS, st.integers(1, 200)),
        st.just("place"),
    ),
    max_size=60,
)


def apply(scheduler: Scheduler, model: SimpleScheduler, step: object) -> None:
    match step:
        case JobRequest():
            scheduler.enqueue(step)
            model.node_of.pop(step.job, None)
            model.waiting[step.job] = step
        case NodeOffer():
            scheduler.set_node(step)
            model.nodes[step.node] = step
        case ("remove job", NamespacedName() as job):
            scheduler.remove_job(job)
            model.waiting.pop(job, None)
            model.node_of.pop(job, None)
        case ("remove node", NamespacedName() as node):
            scheduler.remove_node(node)
            model.nodes.pop(node, None)
        case ("hold", NamespacedName() as job, str() as name):
            node = NamespacedName(job.namespace, name)
            scheduler.hold(job, node)
            model.waiting.pop(job, None)
            model.node_of[job] = node
        case ("requeue", NamespacedName() as job, int() as times):
            if request := model.waiting.get(job):
                for _ in range(times):
                    scheduler.remove_job(job)
                    scheduler.enqueue(request)
        case _:
            assert list(scheduler.place()) == model.place()


def restarted(model: SimpleScheduler) -> Scheduler:
    """A new scheduler with the state of the model, added in another order."""
    fresh = Scheduler()
    for request in reversed(model.waiting.values()):
        fresh.enqueue(request)
    for job, node in reversed(model.node_of.items()):
        fresh.hold(job, node)
    for offer in reversed(model.nodes.values()):
        fresh.set_node(offer)
    return fresh


def pending_causes(scheduler: Scheduler) -> dict[NamespacedName, PendingCause]:
    return {job: cause for namespace in "xy" for _, cause, jobs in scheduler.pending_groups(namespace) for job in jobs}


@given(STEPS)
def test_the_scheduler_decides_as_the_model_does(steps: list[object]) -> None:
    scheduler, model = Scheduler(), SimpleScheduler()
    for step in [*steps, "place"]:
        apply(scheduler, model, step)
        assert pending_causes(scheduler) == pending_causes(restarted(model))
        assert pending_causes(scheduler).keys() == model.waiting.keys()
        used = Counter(model.node_of.values())
        assert all(scheduler.used_slots(node) == used[node] for node in model.nodes)
    assert {job: scheduler.pending_cause(job) for job in model.waiting} == pending_causes(scheduler)
    for job in model.node_of:
        assert scheduler.pending_cause(job) is None


@given(STEPS)
def test_a_restarted_scheduler_decides_the_same(steps: list[object]) -> None:
    scheduler, model = Scheduler(), SimpleScheduler()
    for step in steps:
        apply(scheduler, model, step)
    assert list(restarted(model).place()) == list(scheduler.place())


@given(STEPS)
def test_removed_jobs_and_nodes_leave_nothing_in_memory(steps: list[object]) -> None:
    scheduler, model = Scheduler(), SimpleScheduler()
    for step in steps:
        apply(scheduler, model, step)
    for job in [*model.waiting, *model.node_of]:
        scheduler.remove_job(job)
    for node in model.nodes:
        scheduler.remove_node(node)
    assert memory_size(scheduler) <= memory_size(Scheduler()) + SLACK


@given(STEPS)
def test_a_node_never_exceeds_its_capacity_nor_gets_a_job_it_does_not_fit(steps: list[object]) -> None:
    scheduler, model = Scheduler(), SimpleScheduler()
    for step in steps:
        if step != "place":
            apply(scheduler, model, step)
            continue
        before = dict(model.waiting)
        for placement in scheduler.place():
            offer, request = model.nodes[placement.node], before[placement.job]
            assert offer.fits(request.requirements)
            assert offer.usable()
            assert scheduler.used_slots(placement.node) <= offer.capacity
        model.place()


SLACK = 64 * 15  # stale entries of one heap, and their contents


def memory_size(root: object) -> int:
    """The total length of all collections reachable from a scheduler."""
    seen: dict[int, object] = {}
    queue = [root]
    total = 0
    while queue:
        value = queue.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, dict):
            queue += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            queue += value
        elif type(value).__module__.startswith("vmafx."):
            queue += vars(value).values() if hasattr(value, "__dict__") else ()
        total += len(value) if isinstance(value, Sized) and not isinstance(value, str) else 0
    return total


def count_calls(work: Callable[[], object]) -> int:
    """The number of function calls: a measure of work that does not depend on the load of the machine."""
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


def request(name: str, created: float = 0, **requirements: object) -> JobRequest:
    return JobRequest(NamespacedName("x", name), Requirements("x", **requirements), created)  # type: ignore[arg-type]


def scheduler_with(*offers: NodeOffer) -> Scheduler:
    scheduler = Scheduler()
    for offer in offers:
        scheduler.set_node(offer)
    return scheduler


def test_a_group_without_a_free_slot_does_not_block_others() -> None:
    scheduler = scheduler_with(NodeOffer(NamespacedName("x", "cpu"), "cpu"))
    scheduler.enqueue(request("first", 1, backend="cuda"))
    scheduler.enqueue(request("second", 2, backend="cpu"))
    assert list(scheduler.place()) == [(NamespacedName("x", "second"), NamespacedName("x", "cpu"))]


def test_jobs_spread_over_nodes_and_prefer_the_faster() -> None:
    scheduler = scheduler_with(
        *(NodeOffer(NamespacedName("x", name), "cpu", 2, fps=fps) for name, fps in (("slow", 10), ("fast", 50)))
    )
    for number in range(4):
        scheduler.enqueue(request(f"job-{number}", number))
    assert [placement.node.name for placement in scheduler.place()] == ["fast", "slow", "fast", "slow"]


def test_an_excluded_node_is_used_only_if_no_other_usable_node_fits() -> None:
    scheduler = scheduler_with(
        NodeOffer(NamespacedName("x", "bad"), "cpu"), NodeOffer(NamespacedName("x", "good"), "cpu")
    )
    scheduler.hold(NamespacedName("x", "other"), NamespacedName("x", "good"))
    scheduler.enqueue(request("again", excluded=frozenset({"bad"})))
    assert list(scheduler.place()) == []
    scheduler.set_node(NodeOffer(NamespacedName("x", "good"), "cpu", cordoned=True))
    assert list(scheduler.place()) == [(NamespacedName("x", "again"), NamespacedName("x", "bad"))]


@pytest.mark.parametrize(
    ("offers", "requirements", "cause"),
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
        (  # without its credentials it would not fit either
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
                "the nodes that fit are unhealthy or cordoned (kubectl get vmnode)",
            ),
        ),
        (
            [
                NodeOffer(NamespacedName("x", "n"), "cpu", draining=True),
                NodeOffer(NamespacedName("x", "m"), "cpu", cordoned=True, draining=True),
            ],
            {},
            ("NoHealthyNode", "the nodes that fit are draining or cordoned (kubectl get vmnode)"),
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
def test_the_cause_why_a_job_waits(
    offers: list[NodeOffer], requirements: dict[str, object], cause: tuple[str, str]
) -> None:
    scheduler = scheduler_with(*offers)
    scheduler.enqueue(request("job", 0, **requirements))
    assert list(scheduler.place()) == []
    assert scheduler.pending_cause(NamespacedName("x", "job")) == cause


def test_the_cause_of_a_full_fleet_says_its_size() -> None:
    scheduler = scheduler_with(
        NodeOffer(NamespacedName("x", "n"), "cpu", 2), NodeOffer(NamespacedName("x", "m"), "cpu")
    )
    for number in range(4):
        scheduler.enqueue(request(f"job-{number}", number))
    assert len(list(scheduler.place())) == 3
    assert scheduler.pending_cause(NamespacedName("x", "job-3")) == PendingCause(
        "InsufficientCapacity", "all 3 slots of the 2 nodes that fit are taken"
    )
    scheduler.remove_job(NamespacedName("x", "job-0"))
    assert [placement.job.name for placement in scheduler.place()] == ["job-3"]


def test_a_scheduler_that_never_places_forgets_finished_jobs() -> None:
    scheduler = scheduler_with(NodeOffer(NamespacedName("x", "n"), "cpu", 2))
    empty = memory_size(scheduler)
    for number in range(5_000):
        scheduler.enqueue(request(f"job-{number}", -number))  # each is the new first one
    for number in range(5_000):
        scheduler.hold(NamespacedName("x", f"job-{number}"), NamespacedName("x", "n"))
        scheduler.remove_job(NamespacedName("x", f"job-{number}"))
    assert memory_size(scheduler) <= empty + SLACK


def test_a_job_that_is_enqueued_again_and_again_takes_no_more_memory() -> None:
    scheduler = scheduler_with()
    for name in ("one", "other"):
        scheduler.enqueue(request(name))
    before = memory_size(scheduler)
    for _ in range(5_000):
        scheduler.remove_job(NamespacedName("x", "one"))
        scheduler.enqueue(request("one"))
    assert memory_size(scheduler) <= before + SLACK


def test_namespaces_without_jobs_and_nodes_are_forgotten() -> None:
    scheduler = Scheduler()
    empty = memory_size(scheduler)
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
    assert memory_size(scheduler) <= empty + SLACK


def crowded(subqueues: int, kind: str) -> Scheduler:
    """Full nodes, and jobs that wait in many subqueues."""
    nodes = [f"node-{number}" for number in range(12)]
    scheduler = scheduler_with(
        *(NodeOffer(NamespacedName("x", node), "cpu", labels=frozenset({A, ("host", node)})) for node in nodes)
    )
    for node in nodes:
        scheduler.hold(NamespacedName("x", f"on-{node}"), NamespacedName("x", node))
    scheduler.enqueue(request("first", -1, selector=frozenset({A})))
    exclusions = [frozenset(names) for size in range(5) for names in combinations(nodes[1:], size)]
    for number in range(subqueues):
        selector = frozenset({A, ("host", f"node-{number}")} if kind == "selector" else ())
        excluded = exclusions[number] if kind == "excluded" else frozenset({nodes[0]} | exclusions[number])
        scheduler.enqueue(request(f"job-{number}", number, selector=selector, excluded=excluded))
    list(scheduler.place())
    return scheduler


@pytest.mark.parametrize("kind", ["selector", "excluded", "all exclude a free node"])
def test_the_cost_of_a_job_end_does_not_grow_with_the_number_of_subqueues(kind: str) -> None:
    def cost(scheduler: Scheduler) -> int:
        for node in ("node-0", "node-11"):
            scheduler.remove_job(NamespacedName("x", f"on-{node}"))
            list(scheduler.place())
        scheduler.remove_job(NamespacedName("x", "on-node-10"))
        return count_calls(lambda: list(scheduler.place()))

    assert cost(crowded(500, kind)) <= 2 * cost(crowded(20, kind))


def test_a_new_speed_changes_the_order_of_nodes_but_no_cause() -> None:
    slow, fast = NodeOffer(NamespacedName("x", "a"), "cpu", fps=10), NodeOffer(NamespacedName("x", "b"), "cpu", fps=20)
    scheduler = scheduler_with(slow, fast)
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
def test_set_node_reports_every_other_change(change: dict[str, object]) -> None:
    offer = NodeOffer(NamespacedName("x", "n"), "cpu")
    assert scheduler_with(offer).set_node(msgspec.structs.replace(offer, fps=1.0, **change))


def test_a_job_that_excludes_every_node_takes_one_that_others_exclude() -> None:
    scheduler = scheduler_with(
        NodeOffer(NamespacedName("x", "bad"), "cpu"), NodeOffer(NamespacedName("x", "good"), "cpu")
    )
    scheduler.hold(NamespacedName("x", "other"), NamespacedName("x", "good"))
    scheduler.enqueue(request("picky", 1, excluded=frozenset({"bad"})))
    assert list(scheduler.place()) == []
    scheduler.enqueue(request("desperate", 2, excluded=frozenset({"bad", "good"})))
    assert list(scheduler.place()) == [(NamespacedName("x", "desperate"), NamespacedName("x", "bad"))]
