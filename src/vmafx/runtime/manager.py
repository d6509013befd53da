"""Starts the parts of a role in order and stops them in reverse.

probes and metrics ── caches, until synced ── the lease, with leader election ── reconcile loops and leader-only tasks
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

DRAIN_TIMEOUT = 20.0  # seconds for queued and running reconciliations at a stop; then they are cancelled
BackgroundTask = Callable[[], Coroutine[Any, Any, None]]


class Manager:
    """The informers, reconcile loops and background tasks of one process, and their life cycle."""

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
        self._refreshed_by_leader: list[Informer[Any]] = []
        self._loops: list[ReconcileLoop] = []
        self._background: list[BackgroundTask] = []
        self._leader_only: list[BackgroundTask] = []

    def add_informer(self, informer: Informer[Any], *, fresh: bool = False) -> None:
        """With `fresh`, a new leader refreshes the cache first: it may lack the last writes of the previous leader."""
        self._informers.append(informer)
        if fresh:
            self._refreshed_by_leader.append(informer)

    def add_loop(self, loop: ReconcileLoop) -> None:
        self._loops.append(loop)

    def in_background(self, work: BackgroundTask) -> None:
        """Run `work` from the start, whether or not this process leads."""
        self._background.append(work)

    def while_leading(self, work: BackgroundTask) -> None:
        """Run `work` together with the reconcile loops, only while this process leads."""
        self._leader_only.append(work)

    def is_busy(self) -> bool:
        """Whether a reconcile loop has work other than that of low priority."""
        return any(loop.queue.is_busy() for loop in self._loops)

    def not_ready(self) -> str | None:
        """Why this process is not ready, or None."""
        unsynced = [informer.resource.plural for informer in self._informers if not informer.synced.is_set()]
        return f"caches not synced: {', '.join(unsynced)}" if unsynced else None

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set. A part that fails, or LeaseLost, ends the run with an ExceptionGroup."""
        probes = {
            "/healthz": responses.probe_response(lambda: None),
            "/readyz": responses.probe_response(self.not_ready),
        }
        pages = {"/metrics": responses.metrics_response(self._metrics.registry)}
        async with (
            serve_probes(self._probes_at, probes),
            serve_probes(self._metrics_at, pages),
            _alongside(*(work() for work in self._background), *(informer.run() for informer in self._informers)),
        ):
            if not await run_unless(stop, self._wait_for_sync()):
                return
            if self._election is None:
                await self._lead(stop, lambda: True)
            else:
                try:
                    if await run_unless(stop, self._election.acquire()):
                        async with _alongside(self._election.renew()):
                            if await run_unless(stop, self._refresh_caches()):
                                await self._lead(stop, self._election.is_leader)
                finally:
                    await self._election.release()

    async def _wait_for_sync(self) -> None:
        for informer in self._informers:
            await informer.synced.wait()
        log.info("caches are synced", objects=sum(len(informer.store) for informer in self._informers))

    async def _refresh_caches(self) -> None:
        await asyncio.gather(*(informer.refresh() for informer in self._refreshed_by_leader))

    async def _lead(self, stop: asyncio.Event, is_leader: Callable[[], bool]) -> None:
        """Run the reconcile loops until `stop` is set, then let them finish the keys they have.

        If a part fails or the lease is lost, cancel them at once instead, so that they write nothing more.
        """
        async with (
            _alongside(*(work() for work in self._leader_only)),
            _alongside(*(loop.run(is_leader) for loop in self._loops)) as running,
        ):
            await stop.wait()
            for loop in self._loops:
                loop.queue.close()
            if running:
                await asyncio.wait(running, timeout=DRAIN_TIMEOUT)


@asynccontextmanager
async def _alongside(*parts: Coroutine[Any, Any, None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run `parts` while the body runs: a part that fails cancels the body, the end of the body cancels the parts."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part) for part in parts]
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
