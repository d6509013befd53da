"""Jobs of the same terms, in their order, and the nodes that fit them, the best first."""

import heapq

from vmafx.scheduling.terms import VENDORS, Name, Offer, Order, Request, Terms

Rank = tuple[int, float, float, str]  # vendor, load, speed, name: the least is the best


class Group:
    """One line of waiting jobs. Both heaps are lazy: an entry counts only if it says what is still true."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.jobs: dict[Name, Request] = {}
        self._line: list[tuple[Order, Name]] = []
        self._ranks: dict[Name, Rank] = {}  # of nodes with a free slot
        self._best: list[tuple[Rank, Name]] = []
        self._usable: set[Name] = set()  # that are not excluded
        self._preference = {vendor: place for place, vendor in enumerate(VENDORS[terms.backend])}

    def add(self, request: Request) -> None:
        if self.jobs.get(request.job) != request:
            self.jobs[request.job] = request
            heapq.heappush(self._line, (request.order(), request.job))

    def remove(self, job: Name) -> None:
        self.jobs.pop(job, None)

    def head(self) -> Request | None:
        """The job whose turn it is."""
        while self._line:
            order, job = self._line[0]
            request = self.jobs.get(job)
            if request is not None and request.order() == order:
                return request
            heapq.heappop(self._line)
        return None

    def see(self, offer: Offer, used: int) -> None:
        """A node that fits came, changed, or has another load."""
        node = offer.node
        if offer.usable() and node.name not in self.terms.excluded:
            self._usable.add(node)
        else:
            self._usable.discard(node)
        if not offer.usable() or used >= offer.capacity:
            self._ranks.pop(node, None)
            return
        rank = (self._preference[offer.vendor], used / offer.capacity, -offer.fps, node.name)
        if self._ranks.get(node) != rank:
            self._ranks[node] = rank
            heapq.heappush(self._best, (rank, node))
            if len(self._best) > 4 * len(self._ranks) + 64:
                self._best = [(kept, name) for name, kept in self._ranks.items()]
                heapq.heapify(self._best)

    def lose(self, node: Name) -> None:
        self._ranks.pop(node, None)
        self._usable.discard(node)

    def best(self) -> Name | None:
        """The node for the next job. An excluded one only if no other could ever be waited for."""
        passed_over: list[tuple[Rank, Name]] = []
        found = None
        while self._best:
            rank, node = self._best[0]
            if self._ranks.get(node) != rank:
                heapq.heappop(self._best)
            elif self._usable and node.name in self.terms.excluded:
                passed_over.append(heapq.heappop(self._best))
            else:
                found = node
                break
        for entry in passed_over:
            heapq.heappush(self._best, entry)
        return found
