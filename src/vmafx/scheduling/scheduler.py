"""All that wait and all that could take them."""

from collections import Counter
from collections.abc import Collection, Iterator

import msgspec

from vmafx.scheduling.group import JobGroup, RequirementKey
from vmafx.scheduling.indexes import RankedSet, SetIndex
from vmafx.scheduling.requirements import (
    JobRequest,
    NamespacedName,
    NodeOffer,
    Order,
    PendingCause,
    Placement,
    Requirements,
)

POD_ONLY = PendingCause("BackendUnavailable", "its credentialsSecretRef needs a node that runs jobs as Pods")


class Scheduler:
    """Told of every job and node, it gives each free slot to the job whose turn it is."""

    def __init__(self) -> None:
        self._groups: dict[Requirements, JobGroup] = {}
        self._groups_in: SetIndex[str, JobGroup] = SetIndex()
        self._groups_by: SetIndex[RequirementKey, JobGroup] = SetIndex()  # each once, by a label that it asks for
        self._waits: dict[NamespacedName, JobGroup] = {}
        self._nodes: dict[NamespacedName, NodeOffer] = {}
        self._nodes_by: SetIndex[RequirementKey, NamespacedName] = SetIndex()  # each by all its labels, and by none
        self._on: dict[NamespacedName, NamespacedName] = {}  # jobs that have a node
        self._used: Counter[NamespacedName] = Counter()
        self._turns: RankedSet[JobGroup, Order] = RankedSet()  # the groups that may have a place for their first job

    def enqueue(self, request: JobRequest) -> None:
        """A job waits, or waits on other terms than before."""
        job, alike = request.job, request.requirements.without_exclusions()
        self._leave(job)
        group = self._groups.get(alike) or self._new_group(alike)
        if self._waits.get(job, group) is not group:
            self._withdraw(job)
        self._waits[job] = group
        group.add(job, request.order(), request.requirements.excluded)
        self._line_up(group)

    def hold(self, job: NamespacedName, node: NamespacedName) -> None:
        """A job has a node, by whoever's decision; it counts there even if the node is not known yet."""
        self._withdraw(job)
        if self._on.get(job) != node:
            self._leave(job)
            self._on[job] = node
            self._used[node] += 1
            self._look_at(node)

    def remove_job(self, job: NamespacedName) -> None:
        """A job is over, or gone, or not ours to place."""
        self._withdraw(job)
        self._leave(job)

    def set_node(self, offer: NodeOffer) -> bool:
        """A node is there, or has changed; False if in nothing that could change why a job waits."""
        before = self._nodes.get(offer.node)
        if before is not None and msgspec.structs.replace(before, fps=offer.fps) == offer:
            if before != offer:
                self._nodes[offer.node] = offer
                self._look_at(offer.node)
            return False
        if before is not None:
            self._lose(before, now=offer)
        self._nodes[offer.node] = offer
        for mark in _marks(offer):
            self._nodes_by.add(mark, offer.node)
        for group in self._near(offer):
            group.why = None
        self._look_at(offer.node)
        return True

    def remove_node(self, node: NamespacedName) -> None:
        """A node is gone; jobs that had it keep it until told otherwise."""
        before = self._nodes.pop(node, None)
        if before is not None:
            self._lose(before)
            if self._is_bare(node.namespace):
                for group in [group for group in self._groups_in[node.namespace] if not group.jobs]:
                    self._give_up(group)

    def place(self) -> Iterator[Placement]:
        """Give out what is free. Each placement counts at once: who takes it back says `wait` or `forget`."""
        while (group := self._turns.first()) is not None:
            found = group.next()
            if found is None:
                self._turns.drop(group)
            elif found[0] != self._turns.rank(group):
                self._turns.put(group, found[0])  # others may be before that one
            else:
                self.hold(*found[1])
                yield found[1]

    def pending_cause(self, job: NamespacedName) -> PendingCause | None:
        """Why this job waits; None if it does not."""
        group = self._waits.get(job)
        return None if group is None else self._why(group)

    def pending_groups(self, namespace: str) -> Iterator[tuple[Requirements, PendingCause, Collection[NamespacedName]]]:
        """Jobs of a namespace that wait on the same terms but for the nodes they avoid, and so for the same reason."""
        for group in self._groups_in[namespace]:
            if group.jobs:
                yield group.requirements, self._why(group), group.jobs.keys()

    def used_slots(self, node: NamespacedName) -> int:
        return self._used[node]

    def _new_group(self, terms: Requirements) -> JobGroup:
        namespace = terms.namespace
        marks: list[RequirementKey] = [(namespace, label) for label in terms.selector] or [(namespace, None)]
        # The one that the fewest others have: so a label that all ask for makes no node look at all.
        group = JobGroup(terms, min(marks, key=lambda mark: len(self._groups_by[mark])))
        self._groups[terms] = group
        self._groups_in.add(namespace, group)
        self._groups_by.add(group.mark, group)
        for offer in self._selected(terms):
            if offer.fits(terms):
                group.see(offer, self._used[offer.node])
        return group

    def _give_up(self, group: JobGroup) -> None:
        del self._groups[group.requirements]
        self._groups_in.discard(group.requirements.namespace, group)
        self._groups_by.discard(group.mark, group)
        self._turns.drop(group)

    def _is_bare(self, namespace: str) -> bool:
        return not self._nodes_by[namespace, None]

    def _withdraw(self, job: NamespacedName) -> None:
        """It waits no longer. A group without jobs is given up, so that old terms cost nothing.

        But not if it asks for no labels: those are few, they come back, and they would look at every node again.
        """
        group = self._waits.pop(job, None)
        if group is not None:
            group.remove(job)
            if group.jobs or not (group.requirements.selector or self._is_bare(group.requirements.namespace)):
                self._line_up(group)
            else:
                self._give_up(group)

    def _leave(self, job: NamespacedName) -> None:
        node = self._on.pop(job, None)
        if node is not None:
            self._used[node] -= 1
            if not self._used[node]:
                del self._used[node]
            self._look_at(node)

    def _look_at(self, node: NamespacedName) -> None:
        """The node's load or nature changed: every group that it fits may move."""
        offer = self._nodes.get(node)
        if offer is not None:
            used = self._used[node]
            for group in self._near(offer):
                if offer.fits(group.requirements):
                    group.see(offer, used)
                    self._line_up(group)

    def _lose(self, before: NodeOffer, now: NodeOffer | None = None) -> None:
        """A node is no longer what it was: no group has it that it does not fit now."""
        for mark in _marks(before):
            self._nodes_by.discard(mark, before.node)
        for group in self._near(before):
            group.why = None
            if now is None or not now.fits(group.requirements):
                group.lose(before.node)
                self._line_up(group)

    def _line_up(self, group: JobGroup) -> None:
        """After every change of it: whether it has a turn, and which."""
        order = group.turn()
        if order is None:
            self._turns.drop(group)
        else:
            self._turns.put(group, order)

    def _near(self, offer: NodeOffer) -> Iterator[JobGroup]:
        """The groups that the node fits, and some others."""
        for mark in _marks(offer):
            yield from self._groups_by[mark]

    def _selected(self, terms: Requirements) -> Iterator[NodeOffer]:
        """The nodes that have the labels asked for."""
        marks: list[RequirementKey] = [(terms.namespace, label) for label in (None, *terms.selector)]
        for node in min((self._nodes_by[mark] for mark in marks), key=len):
            if terms.selector <= (offer := self._nodes[node]).labels:
                yield offer

    def _why(self, group: JobGroup) -> PendingCause:
        namespace = group.requirements.namespace
        if self._is_bare(namespace):
            return PendingCause("NoNodes", f"there is no VmafxNode in namespace {namespace}")
        if group.why is None:
            group.why = _why(group.requirements, list(self._selected(group.requirements)))
        return group.why


def _marks(offer: NodeOffer) -> Iterator[RequirementKey]:
    yield offer.node.namespace, None
    for label in offer.labels:
        yield offer.node.namespace, label


def _why(terms: Requirements, selected: list[NodeOffer]) -> PendingCause:
    """The first thing that stands in the way, from the outside in."""
    if not selected:
        return PendingCause(
            "NoNodes", f"there is no VmafxNode with the labels of its nodeSelector in namespace {terms.namespace}"
        )
    fitting = [offer for offer in selected if offer.fits(terms)]
    if not fitting:
        if terms.pod_only and any(offer.fits(terms._replace(pod_only=False)) for offer in selected):
            return POD_ONLY
        return PendingCause("BackendUnavailable", f"no node has a GPU for backend {terms.backend}")
    healthy = [offer for offer in fitting if offer.is_open()]
    if not healthy:
        return PendingCause("NoHealthyNode", _none_healthy(fitting))
    registered = [offer for offer in healthy if offer.agent_registered]
    if not registered:
        return PendingCause("NoAgent", f"no agent has registered yet for {_that_fit(len(healthy))}")
    slots = sum(offer.capacity for offer in registered)
    taken = "the only slot" if slots == 1 else f"all {slots} slots"
    return PendingCause("InsufficientCapacity", f"{taken} of {_that_fit(len(registered))} {_are(slots)} taken")


def _none_healthy(fitting: list[NodeOffer]) -> str:
    """In words that stay the same while it does: they are written into every job that waits for these nodes."""
    if len(fitting) == 1:
        name = fitting[0].node.name
        return f"the one node that fits, {name}, is {_state(fitting[0])} (kubectl describe vmnode {name})"
    states = Counter(map(_state, fitting))
    told = " or ".join(f"{state} ({states[state]})" for state in ("unhealthy", "draining", "cordoned") if states[state])
    return f"the {len(fitting)} nodes that fit are {told} (kubectl get vmnode)"


def _state(offer: NodeOffer) -> str:
    if offer.cordoned:
        return "cordoned"
    return "draining" if offer.draining else "unhealthy"


def _that_fit(nodes: int) -> str:
    return "the one node that fits" if nodes == 1 else f"the {nodes} nodes that fit"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
