"""Jobs that the same nodes fit, in their order, and those nodes, the best first."""

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

RequirementKey = tuple[str, Label | None]  # a namespace and a label in it; None: whatever the labels
NodeRank = tuple[int, float, float, str]  # vendor, load, speed, name


class Subqueue(RankedSet[NamespacedName, Order]):
    """Jobs of a group that avoid the same nodes."""

    def __init__(self, excluded: frozenset[str]) -> None:
        super().__init__()
        self.excluded = excluded


class JobGroup:
    """Waiting jobs whose terms differ at most in the nodes they avoid. Who avoids all that is free holds up nobody."""

    def __init__(self, terms: Requirements, mark: RequirementKey) -> None:
        self.requirements = terms
        self.mark = mark  # that a node must have to fit
        self.why: PendingCause | None = None  # as long as it is known to be true
        self.jobs: dict[NamespacedName, Subqueue] = {}
        self._lines: dict[frozenset[str], Subqueue] = {}
        self._heads: RankedSet[Subqueue, Order] = RankedSet()  # the lines, by their first job
        self._usable: set[str] = set()  # nodes
        self._free: RankedSet[str, NodeRank] = RankedSet()  # those with a free slot
        self._avoided: set[str] = set()  # those that all lines were found to avoid, so that none looks at them again
        self._preference = {vendor: place for place, vendor in enumerate(VENDORS[terms.backend])}

    def add(self, job: NamespacedName, order: Order, excluded: frozenset[str]) -> None:
        line = self._lines.get(excluded)
        if line is None:
            line = self._lines[excluded] = Subqueue(excluded)
            self._avoided &= frozenset() if self._usable <= excluded else excluded  # it may want what the others do not
        if self.jobs.get(job, line) is not line:
            self.remove(job)
        self.jobs[job] = line
        line.put(job, order)
        self._line_up(line)

    def remove(self, job: NamespacedName) -> None:
        line = self.jobs.pop(job)
        line.drop(job)
        self._line_up(line)

    def see(self, offer: NodeOffer, used: int) -> None:
        """A node that fits came, changed, or has another load."""
        if not offer.usable():
            self.lose(offer.node)
            return
        node = offer.node.name
        self._usable.add(node)
        if used < offer.capacity:
            self._free.put(node, (self._preference[offer.vendor], used / offer.capacity, -offer.fps, node))
        else:
            self._free.drop(node)

    def lose(self, node: NamespacedName) -> None:
        self._free.drop(node.name)
        self._usable.discard(node.name)
        self._avoided.clear()  # to some, only nodes may be left that they avoided so far

    def turn(self) -> Order | None:
        """No job before this one can have a place now; None if none can."""
        if not self._free.things or (self._avoided and self._free.things <= self._avoided):
            return None
        head = self._heads.first()
        return None if head is None else self._heads.rank(head)

    def next(self) -> tuple[Order, Placement] | None:
        """The first job that can have a place, and the best node for it."""
        line = self._heads.first_that(lambda line: self._best(line) is not None)
        job = None if line is None else line.first()
        node = None if line is None else self._best(line)
        if line is None or job is None or node is None:
            self._avoided.update(self._free.things)
            return None
        return line.rank(job), Placement(job, NamespacedName(self.requirements.namespace, node))

    def _best(self, line: Subqueue) -> str | None:
        """A node that is to be avoided only if no other could ever be waited for."""
        if not line.excluded or self._usable <= line.excluded:
            return self._free.first()
        return self._free.first_that(lambda node: node not in line.excluded)

    def _line_up(self, line: Subqueue) -> None:
        """Its first job may be another, or it may have none."""
        first = line.first()
        if first is not None:
            self._heads.put(line, line.rank(first))
        else:
            self._heads.drop(line)
            del self._lines[line.excluded]
