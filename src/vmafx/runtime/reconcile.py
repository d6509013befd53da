"""The reconcile loop: workers take keys from a work queue and reconcile them; one branch and one metric per outcome."""

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
RECONCILE_TIMEOUT = 120.0  # seconds
LOW_WORKERS = 4  # reconciliations of low priority at a time, besides the others
BATCH = 500  # keys enqueued without a pause for other tasks


class TerminalError(Exception):
    """A retry would not help: the key is not requeued until its object changes."""


class ReconcileResult(msgspec.Struct, frozen=True):
    """The outcome of a reconciliation that raised nothing, and when to requeue the key."""

    outcome: str
    seconds: float = 0.0

    @classmethod
    def done(cls) -> "ReconcileResult":
        return cls("success")

    @classmethod
    def after(cls, seconds: float) -> "ReconcileResult":
        """Done; requeue after `seconds`."""
        return cls("requeue_after", seconds)

    @classmethod
    def retry(cls) -> "ReconcileResult":
        """Not done; requeue with a rate limit."""
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
        max_concurrent: int = 1,
        timeout: float = RECONCILE_TIMEOUT,
    ) -> None:
        self.name = name
        self._reconcile, self._max_concurrent, self._timeout = reconcile, max_concurrent, timeout
        self.queue: WorkQueue[ObjectKey] = WorkQueue(metrics.queue(name))
        self._metrics = metrics.reconcile_loop(name, max_concurrent)
        self._log = log.bind(loop=name)
        self._running = False
        self._sources: list[Callable[[], Awaitable[None]]] = []

    def watches(
        self, informer: Informer[T], *, to: KeyMapper | None = None, when: ChangePredicate | None = None
    ) -> None:
        """Enqueue the key of every object that changes, or with `to`, the keys to which it maps the object."""

        def enqueue(change: ObjectChange[T], *, low: bool = False) -> None:
            if not self._running or (when is not None and not when(change)):
                return
            if to is None:
                self.queue.add(change.key, low=low)
                return
            for item in (change.old, change.new):
                for key in to(item) if item is not None else ():
                    self.queue.add(key, low=low)

        async def enqueue_all() -> None:
            for number, key in enumerate(list(informer.store)):
                enqueue(ObjectChange(key, None, informer.store.get(key)), low=True)
                if number % BATCH == BATCH - 1:
                    await asyncio.sleep(0)

        informer.on_change(enqueue)
        self._sources.append(enqueue_all)

    def owns(self, informer: Informer[T], kind: str, *, when: ChangePredicate | None = None) -> None:
        """Enqueue the controlling owner, of `kind`, of every object that changes."""

        def owner(item: Any) -> Iterable[ObjectKey]:
            for reference in item.metadata.ownerReferences:
                if reference.controller and reference.kind == kind:
                    yield ObjectKey(item.metadata.namespace, reference.name)

        self.watches(informer, to=owner, when=when)

    async def run(self, is_leader: Callable[[], bool] = lambda: True) -> None:
        """Reconcile until the queue is closed and empty, or this process no longer leads.

        The loop enqueues all objects when it starts, and nothing before: a standby would only pile up keys. They have a
        low priority: what changes now comes first. A process that was suspended may resume after it lost the lease,
        before it notices; `is_leader` is therefore checked before each key.
        """
        self._running = True
        async with asyncio.TaskGroup() as group:
            for number in range(self._max_concurrent):
                group.create_task(self._work(is_leader, low=False), name=f"{self.name}-{number}")
            for number in range(min(LOW_WORKERS, self._max_concurrent)):
                group.create_task(self._work(is_leader, low=True), name=f"{self.name}-low-{number}")
            for enqueue_all in self._sources:
                await enqueue_all()

    async def _work(self, is_leader: Callable[[], bool], *, low: bool) -> None:
        while True:
            try:
                key = await self.queue.get(low=low)
            except QueueClosed:
                return
            if not is_leader():
                return
            self._metrics.active.inc()
            started = loop_time()
            try:
                await self._reconcile_key(key)
            finally:
                self._metrics.seconds.observe(loop_time() - started)
                self._metrics.active.dec()
                self.queue.done(key)
            await asyncio.sleep(0)  # many keys need no I/O: other tasks must have their turn between them

    async def _reconcile_key(self, key: ObjectKey) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                result = await self._reconcile(key)
        except TerminalError as error:
            self._metrics.terminal_errors.inc()
            self._on_error(key, error, retry=False)
            return
        except KubeError as error:
            self._on_error(key, error, retry=True)
            return
        except TimeoutError as error:
            self._metrics.timeouts.inc()
            self._on_error(key, error, retry=True)
            return
        except Exception as error:  # noqa: BLE001 - a bug in one reconciliation must not stop the other keys
            self._metrics.panics.inc()
            self._on_error(key, error, retry=True)
            return
        self._metrics.outcomes[result.outcome].inc()
        if result.outcome == "requeue":
            self.queue.add_rate_limited(key)
            return
        self.queue.forget(key)
        if result.outcome == "requeue_after":
            self.queue.add_after(key, result.seconds)

    def _on_error(self, key: ObjectKey, error: Exception, *, retry: bool) -> None:
        self._metrics.errors.inc()
        self._metrics.outcomes["error"].inc()
        expected = isinstance(error, KubeError | TerminalError | TimeoutError)
        timed_out = isinstance(error, TimeoutError)
        text = str(error) or (f"timed out after {self._timeout:.0f} s" if timed_out else type(error).__name__)
        trace_of = None if expected else error
        self._log.error("reconciliation failed", key=str(key), error=text, retry=retry, trace_of=trace_of)
        if retry:
            self.queue.add_rate_limited(key)
        else:
            self.queue.forget(key)
