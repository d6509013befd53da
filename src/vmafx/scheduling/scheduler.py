"""All that wait and all that could take them."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from itertools import count

from vmafx.scheduling.group import Group
from vmafx.scheduling.terms import Name, Offer, Order, Placement, Request, Terms, Waiting


class Scheduler:
    """Told of every job and node, it gives each free slot to the job whose turn it is."""

    def __init__(self) -> None:
        self._groups: dict[Terms, Group] = {}
        self._in_namespace: dict[str, set[Terms]] = defaultdict(set)
        self._terms: dict[Name, Terms] = {}  # of jobs that wait
        self._nodes: dict[Name, Offer] = {}
        self._nodes_in: dict[str, set[Name]] = defaultdict(set)
        self._on: dict[Name, Name] = {}  # jobs that have a node
        self._used: Counter[Name] = Counter()
        # The groups that may have a place for their first job, by that job's order; a serial number settles ties.
        self._turns: list[tuple[Order, int, Terms]] = []
        self._serial = count()

    def wait(self, request: Request) -> None:
        """A job waits, or waits on other terms than before."""
        self._leave(request.job)
        if self._terms.get(request.job, request.terms) != request.terms:
            self.forget(request.job)
        self._terms[request.job] = request.terms
        group = self._group(request.terms)
        group.add(request)
        self._has_a_turn(group)

    def hold(self, job: Name, node: Name) -> None:
        """A job has a node, by whoever's decision; it counts there even if the node is not known yet."""
        self._withdraw(job)
        if self._on.get(job) != node:
            self._leave(job)
            self._on[job] = node
            self._used[node] += 1
            self._look_at(node)

    def forget(self, job: Name) -> None:
        """A job is over, or gone, or not ours to place."""
        self._withdraw(job)
        self._leave(job)

    def offer(self, offer: Offer) -> bool:
        """A node is there, or has changed; False if it is as it was."""
        before = self._nodes.get(offer.node)
        if before == offer:
            return False
        self._nodes[offer.node] = offer
        self._nodes_in[offer.node.namespace].add(offer.node)
        if before is not None and (before.vendor, before.labels, before.agent) != (
            offer.vendor,
            offer.labels,
            offer.agent,
        ):
            self._lose(offer.node)
        self._look_at(offer.node)
        return True

    def withdraw(self, node: Name) -> None:
        """A node is gone; jobs that had it keep it until told otherwise."""
        if self._nodes.pop(node, None) is not None:
            self._nodes_in[node.namespace].discard(node)
            self._lose(node)

    def place(self) -> Iterator[Placement]:
        """Give out what is free. Each placement counts at once: who takes it back says `wait` or `forget`."""
        while self._turns:
            order, _, terms = heapq.heappop(self._turns)
            group = self._groups.get(terms)
            head = group.head() if group else None
            if group is None or head is None or head.order() != order:
                continue  # another entry stands for this group, or nobody waits
            node = group.best()
            if node is None:
                continue  # its turn comes back with a node that changes
            self.hold(head.job, node)
            self._has_a_turn(group)
            yield Placement(head.job, node)

    def why(self, job: Name) -> Waiting | None:
        """Why this job waits; None if it does not."""
        terms = self._terms.get(job)
        return None if terms is None else self._why(terms)

    def lines(self, namespace: str) -> Iterator[tuple[Terms, Waiting, Collection[Name]]]:
        """Jobs of a namespace that wait on the same terms, and so for the same reason."""
        for terms in self._in_namespace[namespace]:
            yield terms, self._why(terms), self._groups[terms].jobs.keys()

    def used(self, node: Name) -> int:
        return self._used[node]

    def waiting(self) -> int:
        return len(self._terms)

    def node_of(self, job: Name) -> Name | None:
        return self._on.get(job)

    def _group(self, terms: Terms) -> Group:
        group = self._groups.get(terms)
        if group is None:
            group = self._groups[terms] = Group(terms)
            self._in_namespace[terms.namespace].add(terms)
            for node in self._nodes_in[terms.namespace]:
                if (offer := self._nodes[node]).fits(terms):
                    group.see(offer, self._used[node])
        return group

    def _withdraw(self, job: Name) -> None:
        """It waits no longer. A line without jobs is given up, so that old terms cost nothing."""
        terms = self._terms.pop(job, None)
        if terms is not None:
            group = self._groups[terms]
            group.remove(job)
            if group.jobs:
                self._has_a_turn(group)
            else:
                del self._groups[terms]
                self._in_namespace[terms.namespace].discard(terms)

    def _leave(self, job: Name) -> None:
        node = self._on.pop(job, None)
        if node is not None:
            self._used[node] -= 1
            if not self._used[node]:
                del self._used[node]
            self._look_at(node)

    def _look_at(self, node: Name) -> None:
        """The node's load or nature changed: every line that it fits may move."""
        offer = self._nodes.get(node)
        if offer is None:
            return
        for terms in self._in_namespace[node.namespace]:
            if offer.fits(terms):
                group = self._groups[terms]
                group.see(offer, self._used[node])
                self._has_a_turn(group)

    def _lose(self, node: Name) -> None:
        """Without it, even a line that never fitted it may move: to a node that it avoided so far."""
        for terms in self._in_namespace[node.namespace]:
            self._groups[terms].lose(node)
            self._has_a_turn(self._groups[terms])

    def _has_a_turn(self, group: Group) -> None:
        head = group.head()
        if head is not None:
            heapq.heappush(self._turns, (head.order(), next(self._serial), group.terms))

    def _why(self, terms: Terms) -> Waiting:
        """The first thing that stands in the way, from the outside in."""
        offers = [self._nodes[node] for node in self._nodes_in[terms.namespace]]
        selected = [offer for offer in offers if terms.selector <= offer.labels]
        if not selected:
            chosen = " with the labels of its nodeSelector" if offers else ""
            return Waiting("NoNodes", f"there is no VmafxNode{chosen} in namespace {terms.namespace}")
        fitting = [offer for offer in selected if offer.fits(terms)]
        if not fitting:
            if terms.pod_only and any(offer.agent for offer in selected):
                return Waiting("BackendUnavailable", "its credentialsSecretRef needs a node that runs jobs as Pods")
            return Waiting("BackendUnavailable", f"no node has a GPU for backend {terms.backend}")
        healthy = [offer for offer in fitting if offer.healthy and not offer.cordoned]
        if not healthy:
            return Waiting("NoHealthyNode", f"{_that_fit(len(fitting))} {_are(len(fitting))} unhealthy or cordoned")
        spoken = [offer for offer in healthy if offer.spoken]
        if not spoken:
            return Waiting("NoAgent", f"no agent has spoken yet for {_that_fit(len(healthy))}")
        slots = sum(offer.capacity for offer in spoken)
        taken = "the only slot" if slots == 1 else f"all {slots} slots"
        return Waiting("InsufficientCapacity", f"{taken} of {_that_fit(len(spoken))} {_are(slots)} taken")


def _that_fit(nodes: int) -> str:
    return "the one node that fits" if nodes == 1 else f"the {nodes} nodes that fit"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
