"""The waiting jobs with equal requirements, in their order, and the nodes that fit them, best first."""

from vmafx.scheduling.indexes import RankedSet
from vmafx.scheduling.requirements import (
    VENDORS,
    Label,
    NamespacedName,
    NodeOffer,
    Order,
    PendingCause,
    Placement,
    Requirements,
)

RequirementKey = tuple[str, Label | None]  # a namespace and a label; None: any labels
NodeRank = tuple[int, float, float, str]  # vendor, load, speed, name


class Subqueue(RankedSet[NamespacedName, Order]):
    """The jobs of a group that exclude the same nodes."""

    def __init__(self, excluded: frozenset[str]) -> None:
        super().__init__()
        self.excluded = excluded


class JobGroup:
    """Waiting jobs whose requirements differ at most in the nodes that they exclude.

    A job that excludes all free nodes does not block the others.
    """

    def __init__(self, requirements: Requirements, key: RequirementKey) -> None:
        self.requirements = requirements
        self.key = key  # every node that fits has it
        self.pending_cause: PendingCause | None = None  # None: not known
        self.jobs: dict[NamespacedName, Subqueue] = {}
        self._subqueues: dict[frozenset[str], Subqueue] = {}  # by the nodes they exclude
        self._heads: RankedSet[Subqueue, Order] = RankedSet()  # the subqueues, by their first job
        self._usable: set[str] = set()  # nodes
        self._free: RankedSet[str, NodeRank] = RankedSet()  # usable nodes with a free slot
        self._avoided: set[str] = set()  # nodes that no subqueue takes: not checked again while that holds
        self._preference = {vendor: place for place, vendor in enumerate(VENDORS[requirements.backend])}

    def add(self, job: NamespacedName, order: Order, excluded: frozenset[str]) -> None:
        subqueue = self._subqueues.get(excluded)
        if subqueue is None:
            subqueue = self._subqueues[excluded] = Subqueue(excluded)
            self._avoided &= frozenset() if self._usable <= excluded else excluded  # it may take what others do not
        if self.jobs.get(job, subqueue) is not subqueue:
            self.remove(job)
        self.jobs[job] = subqueue
        subqueue.put(job, order)
        self._update_head(subqueue)

    def remove(self, job: NamespacedName) -> None:
        subqueue = self.jobs.pop(job)
        subqueue.drop(job)
        self._update_head(subqueue)

    def set_node(self, offer: NodeOffer, used: int) -> None:
        """Add or update a node that fits."""
        if not offer.usable():
            self.remove_node(offer.node)
            return
        node = offer.node.name
        self._usable.add(node)
        if used < offer.capacity:
            self._free.put(node, (self._preference[offer.vendor], used / offer.capacity, -offer.fps, node))
        else:
            self._free.drop(node)

    def remove_node(self, node: NamespacedName) -> None:
        self._free.drop(node.name)
        self._usable.discard(node.name)
        self._avoided.clear()  # for some jobs, only excluded nodes may be left, which they take now

    def first_order(self) -> Order | None:
        """A lower bound: no job before this order can be placed now. None if no job can."""
        if not self._free.items or (self._avoided and self._free.items <= self._avoided):
            return None
        head = self._heads.first()
        return None if head is None else self._heads.rank(head)

    def next_placement(self) -> tuple[Order, Placement] | None:
        """The first job that can be placed, and the best node for it."""
        subqueue = self._heads.first_that(lambda subqueue: self._best_node(subqueue) is not None)
        job = None if subqueue is None else subqueue.first()
        node = None if subqueue is None else self._best_node(subqueue)
        if subqueue is None or job is None or node is None:
            self._avoided.update(self._free.items)
            return None
        return subqueue.rank(job), Placement(job, NamespacedName(self.requirements.namespace, node))

    def _best_node(self, subqueue: Subqueue) -> str | None:
        """The best free node. An excluded one only if every usable node is excluded."""
        if not subqueue.excluded or self._usable <= subqueue.excluded:
            return self._free.first()
        return self._free.first_that(lambda node: node not in subqueue.excluded)

    def _update_head(self, subqueue: Subqueue) -> None:
        """After a change of a subqueue: update the order of its first job, or delete it if it is empty."""
        first = subqueue.first()
        if first is not None:
            self._heads.put(subqueue, subqueue.rank(first))
        else:
            self._heads.drop(subqueue)
            del self._subqueues[subqueue.excluded]
