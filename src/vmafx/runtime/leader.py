"""Leader election on a Lease, with client-go's timings and rules.

A candidate takes a lease that has no holder, or whose holder has not renewed it for the lease duration. The candidate
measures that on its own monotonic clock: clocks of different machines are never compared. The leader renews the lease
every `retry_period`. A leader that cannot renew for `renew_deadline` has lost the lease and must exit, some seconds
before another candidate may take it.
"""

import asyncio
import random
from contextlib import aclosing

import msgspec

from vmafx.clock import loop_time, micro_time
from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import LEASES, Lease, LeaseSpec
from vmafx.kube.errors import Conflict, KubeError, NotFound
from vmafx.logs import log
from vmafx.runtime.metrics import Metrics

RELEASE_TIMEOUT = 5.0  # seconds; shorter than the wait of the next leader for a lease that was not released


class Timings(msgspec.Struct, frozen=True):
    """In seconds. `lease_duration` must exceed `renew_deadline`, which must exceed `retry_period`."""

    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0


DEFAULT_TIMINGS = Timings()


class LeaseLost(Exception):
    """Another process may lead now: this one must exit."""


class LeaderElection:
    """One candidate for one lease."""

    def __init__(
        self, client: Client, key: ObjectKey, identity: str, metrics: Metrics, timings: Timings = DEFAULT_TIMINGS
    ) -> None:
        self._client, self._key, self._identity, self._timings = client, key, identity, timings
        self._status = metrics.leader.labels(key.name)
        self._status.set(0)
        self._lease: Lease | None = None
        self._observed_at = float("-inf")  # when the lease last changed, on the clock of this process
        self._renewed_at = float("-inf")
        self._log = log.bind(lease=str(key), identity=identity)

    async def acquire(self) -> None:
        """Wait until this process is the leader. A watch reports a released lease at once."""
        self._log.info("waiting to become leader")
        changed = asyncio.Event()
        watching = asyncio.create_task(self._watch(changed))
        try:
            while not await self._try_acquire():
                changed.clear()
                try:
                    async with asyncio.timeout(self._timings.retry_period * (1 + 0.2 * random.random())):  # noqa: S311
                        await changed.wait()
                except TimeoutError:
                    pass
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        self._status.set(1)
        self._log.info("became leader")

    async def renew(self) -> None:
        """Renew the lease until that fails for `renew_deadline`, or another process holds it: then raise LeaseLost."""
        while True:
            try:
                async with asyncio.timeout_at(self._renewed_at + self._timings.renew_deadline):
                    await asyncio.sleep(self._timings.retry_period)
                    while not await self._try_with_timeout():
                        if self._holder() not in ("", self._identity):
                            raise self._lost(f"{self._holder()} holds it")
                        await asyncio.sleep(self._timings.retry_period)
            except TimeoutError:
                raise self._lost(f"not renewed for {self._timings.renew_deadline:g} s") from None

    def is_leader(self) -> bool:
        """Whether no other process can have the lease yet: it was renewed within `renew_deadline`."""
        return loop_time() < self._renewed_at + self._timings.renew_deadline

    async def release(self) -> None:
        """Release the lease, so that the next leader need not wait until it expires."""
        self._status.set(0)
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                await self._get()  # a write that was in flight at the stop may or may not have reached the server
                if self._lease is not None and self._holder() == self._identity:
                    await self._write(LeaseSpec("", 1, micro_time(), micro_time(), self._lease.spec.leaseTransitions))
                    self._log.info("released the lease")
        except (KubeError, TimeoutError) as error:
            self._log.warn("could not release the lease, it will expire", error=str(error) or "timed out")

    def _lost(self, reason: str) -> LeaseLost:
        self._status.set(0)
        self._log.warn("lost leadership", reason=reason)
        return LeaseLost(f"lost the lease {self._key}: {reason}")

    async def _try_acquire(self) -> bool:
        """Try once to take the lease; false also if it was taken too slowly to leave time for the first renewal."""
        half = self._timings.renew_deadline / 2
        return await self._try_with_timeout() and loop_time() < self._renewed_at + half

    async def _try_with_timeout(self) -> bool:
        """Try for half of `renew_deadline`: after a request that hangs, there is time for another."""
        try:
            async with asyncio.timeout(self._timings.renew_deadline / 2):
                return await self._try_acquire_or_renew()
        except TimeoutError:
            self._lease = None  # unknown whether the write reached the server: read the lease again
            return False

    async def _try_acquire_or_renew(self) -> bool:
        """Take or renew the lease if the rules allow it; false if they do not, or if a request fails."""
        try:
            if self._lease is None or self._holder() != self._identity:
                await self._get()
            return await self._acquire_or_renew()
        except (Conflict, NotFound):
            self._lease = None  # another process wrote it: read the lease again
        except KubeError as error:
            self._log.warn("could not read or write the lease", error=str(error))
        return False

    async def _get(self) -> None:
        try:
            lease: Lease | None = await self._client.get(LEASES, self._key)
        except NotFound:
            lease = None
        if lease != self._lease:
            self._lease, self._observed_at = lease, loop_time()

    async def _acquire_or_renew(self) -> bool:
        sent_at, old = loop_time(), self._lease
        if old is None:
            await self._create()
        else:
            holder, duration = self._holder(), old.spec.leaseDurationSeconds or self._timings.lease_duration
            if holder not in ("", self._identity) and sent_at < self._observed_at + duration:
                return False
            renewal = holder == self._identity
            acquired = old.spec.acquireTime if renewal else micro_time()
            transitions = old.spec.leaseTransitions + (not renewal)
            await self._write(
                LeaseSpec(self._identity, self._timings.lease_duration, acquired, micro_time(), transitions)
            )
        self._renewed_at = sent_at
        return True

    async def _create(self) -> None:
        spec = LeaseSpec(self._identity, self._timings.lease_duration, micro_time(), micro_time())
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._key.name},
            "spec": spec,
        }
        self._lease = await self._client.create(LEASES, body, self._key.namespace)
        self._observed_at = loop_time()

    async def _write(self, spec: LeaseSpec) -> None:
        if self._lease is None:
            return
        precondition = {"resourceVersion": self._lease.metadata.resourceVersion}
        patch = {"metadata": precondition, "spec": msgspec.structs.asdict(spec)}
        self._lease = await self._client.merge_patch(LEASES, self._key, patch)
        self._observed_at = loop_time()

    async def _watch(self, changed: asyncio.Event) -> None:
        """Wake the candidate when the lease changes. Without the watch, it still reads the lease periodically."""
        try:
            fields = f"metadata.name={self._key.name}"
            watch = self._client.watch(LEASES, self._key.namespace, fields=fields)
            async with aclosing(aiter(watch)) as batches:
                async for _ in batches:
                    changed.set()
        except KubeError as error:
            self._log.debug("could not watch the lease", error=str(error))

    def _holder(self) -> str:
        return (self._lease.spec.holderIdentity or "") if self._lease else ""
