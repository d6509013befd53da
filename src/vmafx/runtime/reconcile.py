"""The reconcile loop: workers take keys from a queue and reconcile them; one branch and one metric per outcome."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import msgspec

from vmafx.clock import loop_time
from vmafx.kube import ObjectKey
from vmafx.kube.errors import KubeError
from vmafx.logs import log
from vmafx.runtime.informer import Informer
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.store import ObjectChange
from vmafx.runtime.workqueue import QueueClosed, WorkQueue

T = TypeVar("T")
RECONCILE_TIMEOUT = 120.0


class TerminalError(Exception):
    """Trying again would not help: the item is left until something about it changes."""


class ReconcileResult(msgspec.Struct, frozen=True):
    """What a reconciliation came to."""

    outcome: str
    seconds: float = 0.0

    @classmethod
    def done(cls) -> "ReconcileResult":
        return cls("success")

    @classmethod
    def after(cls, seconds: float) -> "ReconcileResult":
        """Done, and to be looked at again in so many seconds."""
        return cls("requeue_after", seconds)

    @classmethod
    def retry(cls) -> "ReconcileResult":
        """Not there yet: again, with growing patience."""
        return cls("requeue")


ReconcileFunction = Callable[[ObjectKey], Awaitable[ReconcileResult]]
KeyMapper = Callable[[Any], Iterable[ObjectKey]]
ChangePredicate = Callable[[ObjectChange[Any]], bool]


class ReconcileLoop:
    """Reconciles the keys that its watches put into its queue."""

    def __init__(
        self,
        name: str,
        reconcile: ReconcileFunction,
        metrics: Metrics,
        *,
        workers: int = 1,
        timeout: float = RECONCILE_TIMEOUT,
    ) -> None:
        self.name = name
        self._reconcile, self._workers, self._timeout = reconcile, workers, timeout
        self.queue: WorkQueue[ObjectKey] = WorkQueue(metrics.queue(name))
        self._metrics = metrics.reconcile_loop(name, workers)
        self._log = log.bind(controller=name)
        self._running = False
        self._sources: list[Callable[[], None]] = []

    def watches(
        self, informer: Informer[T], *, to: KeyMapper | None = None, when: ChangePredicate | None = None
    ) -> None:
        """Queue the key of every object that changes; or, with `to`, the keys that it maps the object to."""

        def enqueue(change: ObjectChange[T]) -> None:
            if not self._running or (when is not None and not when(change)):
                return
            if to is None:
                self.queue.add(change.key)
                return
            for thing in (change.old, change.new):
                for key in to(thing) if thing is not None else ():
                    self.queue.add(key)

        def enqueue_all() -> None:
            for key in informer.store:
                enqueue(ObjectChange(key, None, informer.store.get(key)))

        informer.on_change(enqueue)
        self._sources.append(enqueue_all)

    def owns(self, informer: Informer[T], kind: str, *, when: ChangePredicate | None = None) -> None:
        """Queue the owner, of `kind`, of every object that changes."""

        def owner(thing: Any) -> Iterable[ObjectKey]:
            for reference in thing.metadata.ownerReferences:
                if reference.controller and reference.kind == kind:
                    yield ObjectKey(thing.metadata.namespace, reference.name)

        self.watches(informer, to=owner, when=when)

    async def run(self, leads: Callable[[], bool] = lambda: True) -> None:
        """Work until the queue is closed and empty, or until we no longer lead.

        Until then nothing is queued: who waits to lead would only pile up keys. What is there is queued now.
        A process that was stopped wakes up in the middle of its work: `leads` is asked before each key, since to be
        told that the lease is lost takes a moment.
        """
        self._running = True
        for enqueue_all in self._sources:
            enqueue_all()
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(leads), name=f"{self.name}-{number}")

    async def _work(self, leads: Callable[[], bool]) -> None:
        while True:
            try:
                key = await self.queue.get()
            except QueueClosed:
                return
            if not leads():
                return
            self._metrics.active.inc()
            began = loop_time()
            try:
                await self._one(key)
            finally:
                self._metrics.seconds.observe(loop_time() - began)
                self._metrics.active.dec()
                self.queue.done(key)

    async def _one(self, key: ObjectKey) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                result = await self._reconcile(key)
        except TerminalError as error:
            self._metrics.terminal_errors.inc()
            self._failed(key, error, again=False)
            return
        except KubeError as error:
            self._failed(key, error, again=True)
            return
        except TimeoutError as error:
            self._metrics.timeouts.inc()
            self._failed(key, error, again=True)
            return
        except Exception as error:  # noqa: BLE001 - the one place: whatever it is, the other keys go on
            self._metrics.panics.inc()
            self._failed(key, error, again=True)
            return
        self._metrics.outcomes[result.outcome].inc()
        if result.outcome == "requeue":
            self.queue.add_backing_off(key)
            return
        self.queue.forget(key)
        if result.outcome == "requeue_after":
            self.queue.add_after(key, result.seconds)

    def _failed(self, key: ObjectKey, error: Exception, *, again: bool) -> None:
        self._metrics.errors.inc()
        self._metrics.outcomes["error"].inc()
        foreseen = isinstance(error, KubeError | TerminalError | TimeoutError)
        text = str(error) or f"took longer than {self._timeout:.0f} s"
        trace_of = None if foreseen else error
        self._log.error("reconciliation failed", key=str(key), error=text, again=again, trace_of=trace_of)
        if again:
            self.queue.add_backing_off(key)
        else:
            self.queue.forget(key)
