"""The scheduler: all waiting jobs, all nodes, and which job gets which free slot."""

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
    """Gets every change of a job or a node, and gives each free slot to the first job that fits."""

    def __init__(self) -> None:
        self._groups: dict[Requirements, JobGroup] = {}
        self._groups_by_namespace: SetIndex[str, JobGroup] = SetIndex()
        self._groups_by_key: SetIndex[RequirementKey, JobGroup] = SetIndex()  # each by one label that it selects
        self._group_of: dict[NamespacedName, JobGroup] = {}  # by waiting job
        self._nodes: dict[NamespacedName, NodeOffer] = {}
        self._nodes_by_key: SetIndex[RequirementKey, NamespacedName] = SetIndex()  # each by all its labels, and None
        self._node_of: dict[NamespacedName, NamespacedName] = {}  # by placed job
        self._used: Counter[NamespacedName] = Counter()  # slots, by node
        self._candidates: RankedSet[JobGroup, Order] = RankedSet()  # groups that may have a slot for a job

    def enqueue(self, request: JobRequest) -> None:
        """Add a waiting job, or update its requirements; release its slot if it has one."""
        job, shared = request.job, request.requirements.without_exclusions()
        self._release_slot(job)
        group = self._groups.get(shared) or self._new_group(shared)
        if self._group_of.get(job, group) is not group:
            self._dequeue(job)
        self._group_of[job] = group
        group.add(job, request.order(), request.requirements.excluded)
        self._update_candidate(group)

    def hold(self, job: NamespacedName, node: NamespacedName) -> None:
        """Record that a job has a slot of a node, whoever placed it, and even if the node is not known yet."""
        self._dequeue(job)
        if self._node_of.get(job) != node:
            self._release_slot(job)
            self._node_of[job] = node
            self._used[node] += 1
            self._update_groups(node)

    def remove_job(self, job: NamespacedName) -> None:
        """Forget a job that finished, was deleted, or is not to be placed."""
        self._dequeue(job)
        self._release_slot(job)

    def set_node(self, offer: NodeOffer) -> bool:
        """Add or update a node; false if the change cannot affect why a job waits."""
        before = self._nodes.get(offer.node)
        if before is not None and msgspec.structs.replace(before, fps=offer.fps) == offer:
            if before != offer:
                self._nodes[offer.node] = offer
                self._update_groups(offer.node)
            return False
        if before is not None:
            self._remove_from_groups(before, now=offer)
        self._nodes[offer.node] = offer
        for key in _keys(offer):
            self._nodes_by_key.add(key, offer.node)
        for group in self._groups_near(offer):
            group.pending_cause = None
        self._update_groups(offer.node)
        return True

    def remove_node(self, node: NamespacedName) -> None:
        """Remove a node; its jobs keep their slots until they are removed or enqueued."""
        before = self._nodes.pop(node, None)
        if before is not None:
            self._remove_from_groups(before)
            if self._has_no_nodes(node.namespace):
                for group in [group for group in self._groups_by_namespace[node.namespace] if not group.jobs]:
                    self._remove_group(group)

    def place(self) -> Iterator[Placement]:
        """Place jobs while there are free slots. Each placement holds its slot; `enqueue` or `remove_job` undo it."""
        while (group := self._candidates.first()) is not None:
            found = group.next_placement()
            if found is None:
                self._candidates.drop(group)
            elif found[0] != self._candidates.rank(group):
                self._candidates.put(group, found[0])  # jobs of other groups may come first
            else:
                self.hold(*found[1])
                yield found[1]

    def pending_cause(self, job: NamespacedName) -> PendingCause | None:
        """Why this job waits; None if it does not wait."""
        group = self._group_of.get(job)
        return None if group is None else self._cause_of(group)

    def pending_groups(self, namespace: str) -> Iterator[tuple[Requirements, PendingCause, Collection[NamespacedName]]]:
        """The waiting jobs of a namespace, by requirements without exclusions: such jobs wait for the same cause."""
        for group in self._groups_by_namespace[namespace]:
            if group.jobs:
                yield group.requirements, self._cause_of(group), group.jobs.keys()

    def used_slots(self, node: NamespacedName) -> int:
        return self._used[node]

    def _new_group(self, requirements: Requirements) -> JobGroup:
        namespace = requirements.namespace
        keys: list[RequirementKey] = [(namespace, label) for label in requirements.selector] or [(namespace, None)]
        # The key with the fewest groups: a label that all jobs select must not make each node visit all groups.
        group = JobGroup(requirements, min(keys, key=lambda key: len(self._groups_by_key[key])))
        self._groups[requirements] = group
        self._groups_by_namespace.add(namespace, group)
        self._groups_by_key.add(group.key, group)
        for offer in self._selected_nodes(requirements):
            if offer.fits(requirements):
                group.set_node(offer, self._used[offer.node])
        return group

    def _remove_group(self, group: JobGroup) -> None:
        del self._groups[group.requirements]
        self._groups_by_namespace.discard(group.requirements.namespace, group)
        self._groups_by_key.discard(group.key, group)
        self._candidates.drop(group)

    def _has_no_nodes(self, namespace: str) -> bool:
        return not self._nodes_by_key[namespace, None]

    def _dequeue(self, job: NamespacedName) -> None:
        """Remove a job from its group. Remove an empty group, so that old requirements cost nothing.

        A group that selects no labels stays while its namespace has nodes: there are few of them, they are used again,
        and a new one would have to visit every node.
        """
        group = self._group_of.pop(job, None)
        if group is not None:
            group.remove(job)
            if group.jobs or not (group.requirements.selector or self._has_no_nodes(group.requirements.namespace)):
                self._update_candidate(group)
            else:
                self._remove_group(group)

    def _release_slot(self, job: NamespacedName) -> None:
        node = self._node_of.pop(job, None)
        if node is not None:
            self._used[node] -= 1
            if not self._used[node]:
                del self._used[node]
            self._update_groups(node)

    def _update_groups(self, node: NamespacedName) -> None:
        """Tell every group that the node fits about its new offer or load."""
        offer = self._nodes.get(node)
        if offer is not None:
            used = self._used[node]
            for group in self._groups_near(offer):
                if offer.fits(group.requirements):
                    group.set_node(offer, used)
                    self._update_candidate(group)

    def _remove_from_groups(self, before: NodeOffer, now: NodeOffer | None = None) -> None:
        """Remove a node that changed from the indexes, and from the groups that it no longer fits."""
        for key in _keys(before):
            self._nodes_by_key.discard(key, before.node)
        for group in self._groups_near(before):
            group.pending_cause = None
            if now is None or not now.fits(group.requirements):
                group.remove_node(before.node)
                self._update_candidate(group)

    def _update_candidate(self, group: JobGroup) -> None:
        """Rank a group by its first job, after every change of the group."""
        order = group.first_order()
        if order is None:
            self._candidates.drop(group)
        else:
            self._candidates.put(group, order)

    def _groups_near(self, offer: NodeOffer) -> Iterator[JobGroup]:
        """All groups that the node fits, and some that it does not."""
        for key in _keys(offer):
            yield from self._groups_by_key[key]

    def _selected_nodes(self, requirements: Requirements) -> Iterator[NodeOffer]:
        """The nodes that have the selected labels."""
        keys: list[RequirementKey] = [(requirements.namespace, label) for label in (None, *requirements.selector)]
        for node in min((self._nodes_by_key[key] for key in keys), key=len):
            if requirements.selector <= (offer := self._nodes[node]).labels:
                yield offer

    def _cause_of(self, group: JobGroup) -> PendingCause:
        namespace = group.requirements.namespace
        if self._has_no_nodes(namespace):
            return PendingCause("NoNodes", f"there is no VmafxNode in namespace {namespace}")
        if group.pending_cause is None:
            group.pending_cause = _pending_cause(group.requirements, list(self._selected_nodes(group.requirements)))
        return group.pending_cause


def _keys(offer: NodeOffer) -> Iterator[RequirementKey]:
    yield offer.node.namespace, None
    for label in offer.labels:
        yield offer.node.namespace, label


def _pending_cause(requirements: Requirements, selected: list[NodeOffer]) -> PendingCause:
    """The first check that no node passes."""
    if not selected:
        return PendingCause(
            "NoNodes",
            f"there is no VmafxNode with the labels of its nodeSelector in namespace {requirements.namespace}",
        )
    fitting = [offer for offer in selected if offer.fits(requirements)]
    if not fitting:
        if requirements.pod_only and any(offer.fits(requirements._replace(pod_only=False)) for offer in selected):
            return POD_ONLY
        return PendingCause("BackendUnavailable", f"no node has a GPU for backend {requirements.backend}")
    schedulable = [offer for offer in fitting if offer.is_schedulable()]
    if not schedulable:
        return PendingCause("NoHealthyNode", _none_schedulable(fitting))
    registered = [offer for offer in schedulable if offer.agent_registered]
    if not registered:
        return PendingCause("NoAgent", f"no agent has registered yet for {_which(len(schedulable))}")
    slots = sum(offer.capacity for offer in registered)
    taken, verb = ("the only slot", "is") if slots == 1 else (f"all {slots} slots", "are")
    return PendingCause("InsufficientCapacity", f"{taken} of {_nodes_that_fit(len(registered))} {verb} taken")


def _none_schedulable(fitting: list[NodeOffer]) -> str:
    """A message without numbers, which would change often: it is written to every job that waits for these nodes."""
    if len(fitting) == 1:
        name = fitting[0].node.name
        return f"the one node that fits, {name}, is {_state(fitting[0])} (kubectl describe vmnode {name})"
    found = set(map(_state, fitting))
    states = " or ".join(name for name in ("unhealthy", "draining", "cordoned") if name in found)
    return f"the nodes that fit are {states} (kubectl get vmnode)"


def _state(offer: NodeOffer) -> str:
    if offer.cordoned:
        return "cordoned"
    return "draining" if offer.draining else "unhealthy"


def _which(count: int) -> str:
    return "the one node that fits" if count == 1 else "the nodes that fit"


def _nodes_that_fit(count: int) -> str:
    return "the one node that fits" if count == 1 else f"the {count} nodes that fit"
