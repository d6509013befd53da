"""Starts everything in order and stops it in reverse.

probes and metrics ── caches, until synced ── the lease, if asked for ── controllers and what else only a leader does
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from vmafx.http import responses
from vmafx.http.address import ListenAddress
from vmafx.http.probe_server import serve_probes
from vmafx.logs import log
from vmafx.runtime.informer import Informer
from vmafx.runtime.leader import LeaderElection
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.reconcile import ReconcileLoop
from vmafx.tasks import run_unless

DRAIN_TIMEOUT = 20.0  # seconds for work in hand when told to stop; then it is cancelled
BackgroundTask = Callable[[], Coroutine[Any, Any, None]]


class Manager:
    """One process: its caches, its controllers, and the order in which they live."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        probes: ListenAddress | None,
        metrics_at: ListenAddress | None,
        election: LeaderElection | None,
    ) -> None:
        self._metrics, self._election = metrics, election
        self._probes_at, self._metrics_at = probes, metrics_at
        self._informers: list[Informer[Any]] = []
        self._fresh: list[Informer[Any]] = []
        self._loops: list[ReconcileLoop] = []
        self._background: list[BackgroundTask] = []
        self._leading: list[BackgroundTask] = []

    def add_informer(self, informer: Informer[Any], *, fresh: bool = False) -> None:
        """With `fresh`, who takes the lease reads it anew first: the last leader's last writes may be on their way."""
        self._informers.append(informer)
        if fresh:
            self._fresh.append(informer)

    def add_loop(self, loop: ReconcileLoop) -> None:
        self._loops.append(loop)

    def in_background(self, work: BackgroundTask) -> None:
        """Run beside everything, whether or not we lead."""
        self._background.append(work)

    def while_leading(self, work: BackgroundTask) -> None:
        """Run beside the controllers, and only while we lead."""
        self._leading.append(work)

    def not_ready(self) -> str | None:
        """What readiness waits for; None when there is nothing left."""
        waiting = [informer.resource.plural for informer in self._informers if not informer.synced.is_set()]
        return f"caches not synced: {', '.join(waiting)}" if waiting else None

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set. LeaseLost, or any failure of a part, ends it sooner (in an ExceptionGroup)."""
        probes = {
            "/healthz": responses.probe_response(lambda: None),
            "/readyz": responses.probe_response(self.not_ready),
        }
        pages = {"/metrics": responses.metrics_response(self._metrics.registry)}
        async with (
            serve_probes(self._probes_at, probes),
            serve_probes(self._metrics_at, pages),
            _beside(*(work() for work in self._background), *(informer.run() for informer in self._informers)),
        ):
            if not await run_unless(stop, self._synced()):
                return
            if self._election is None:
                await self._lead(stop, lambda: True)
            else:
                try:
                    if await run_unless(stop, self._election.acquire()):
                        async with _beside(self._election.hold()):
                            if await run_unless(stop, self._refreshed()):
                                await self._lead(stop, self._election.holds)
                finally:
                    await self._election.release()

    async def _synced(self) -> None:
        for informer in self._informers:
            await informer.synced.wait()
        log.info("caches are synced", objects=sum(len(informer.store) for informer in self._informers))

    async def _refreshed(self) -> None:
        await asyncio.gather(*(informer.refresh() for informer in self._fresh))

    async def _lead(self, stop: asyncio.Event, leads: Callable[[], bool]) -> None:
        """Run the controllers until told to stop, then let them finish what they have in hand.

        If a part fails, or the lease is lost, they are cancelled instead: not one write more.
        """
        async with (
            _beside(*(work() for work in self._leading)),
            _beside(*(loop.run(leads) for loop in self._loops)) as working,
        ):
            await stop.wait()
            for loop in self._loops:
                loop.queue.close()
            if working:
                await asyncio.wait(working, timeout=DRAIN_TIMEOUT)


@asynccontextmanager
async def _beside(*parts: Coroutine[Any, Any, None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run `parts` beside the body, which is cancelled when one of them fails; the end of the body ends them."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part) for part in parts]
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
