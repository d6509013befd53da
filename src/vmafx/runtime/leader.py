"""Leader election on a Lease, by client-go's timings and rules.

A candidate takes a lease that nobody holds, or whose holder has not renewed it for as long as it lasts, measured on the
candidate's own monotonic clock: clocks of different machines are never compared. The leader renews every `retry_every`;
if it cannot for `renew_within`, it has lost the lease and must end, some seconds before anybody else may take it.
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

RELEASE_TIMEOUT = 5.0  # a slow server is worth waiting for: the next one would wait longer


class Timings(msgspec.Struct, frozen=True):
    """In seconds. `lasts` must exceed `renew_within`, which must exceed `retry_every`."""

    lasts: int = 15
    renew_within: float = 10.0
    retry_every: float = 2.0


DEFAULT_TIMINGS = Timings()


class LeaseLost(Exception):
    """Somebody else may lead by now: this process must not go on."""


class LeaderElection:
    """One candidate for one lease."""

    def __init__(
        self, client: Client, key: ObjectKey, identity: str, metrics: Metrics, timings: Timings = DEFAULT_TIMINGS
    ) -> None:
        self._client, self._key, self._identity, self._timings = client, key, identity, timings
        self._status = metrics.leader.labels(key.name)
        self._status.set(0)
        self._lease: Lease | None = None
        self._seen_at = float("-inf")  # when the lease last changed, by our clock
        self._renewed_at = float("-inf")
        self._log = log.bind(lease=str(key), identity=identity)

    async def acquire(self) -> None:
        """Wait until we lead. A lease that is given back is noticed at once, by a watch."""
        self._log.info("waiting to become leader")
        changed = asyncio.Event()
        watching = asyncio.create_task(self._watch(changed))
        try:
            while not await self._try_soon():
                changed.clear()
                try:
                    async with asyncio.timeout(self._timings.retry_every * (1 + 0.2 * random.random())):  # noqa: S311
                        await changed.wait()
                except TimeoutError:
                    pass
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        self._status.set(1)
        self._log.info("became leader")

    async def hold(self) -> None:
        """Renew for as long as we can; LeaseLost when we could not for too long, or somebody else has it."""
        while True:
            try:
                async with asyncio.timeout_at(self._renewed_at + self._timings.renew_within):
                    await asyncio.sleep(self._timings.retry_every)
                    while not await self._try_in_time():
                        if self._holder() not in ("", self._identity):
                            raise self._lost(f"{self._holder()} holds it")
                        await asyncio.sleep(self._timings.retry_every)
            except TimeoutError:
                raise self._lost(f"not renewed for {self._timings.renew_within:g} s") from None

    async def _try_in_time(self) -> bool:
        """One call that hangs must not cost the lease: there is time for another."""
        try:
            async with asyncio.timeout(self._timings.renew_within / 2):
                return await self._try()
        except TimeoutError:
            self._lease = None  # whether it was written nobody knows: look again
            return False

    def holds(self) -> bool:
        """Whether nobody else can have it yet: true for no longer than `renew_within` after it was last renewed."""
        return loop_time() < self._renewed_at + self._timings.renew_within

    async def release(self) -> None:
        """Give the lease back, so that the next one need not wait until it runs out."""
        self._status.set(0)
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                await self._look()  # a write that was under way when we stopped may have been carried out, or not
                if self._lease is not None and self._holder() == self._identity:
                    await self._write(LeaseSpec("", 1, micro_time(), micro_time(), self._lease.spec.leaseTransitions))
                    self._log.info("released the lease")
        except (KubeError, TimeoutError) as error:
            self._log.warn("could not give the lease back; it runs out by itself", error=str(error))

    def _lost(self, why: str) -> LeaseLost:
        self._status.set(0)
        self._log.warn("lost leadership", reason=why)
        return LeaseLost(f"lost the lease {self._key}: {why}")

    async def _try_soon(self) -> bool:
        """As `_try`, but a lease whose taking was confirmed too late to be relied on is not taken."""
        try:
            async with asyncio.timeout(self._timings.renew_within / 2):
                return await self._try() and loop_time() < self._renewed_at + self._timings.renew_within / 2
        except TimeoutError:
            self._lease = None
            return False

    async def _try(self) -> bool:
        """Take or renew the lease if the rules allow it; False if not, or if the server does not answer."""
        try:
            if self._lease is None or self._holder() != self._identity:
                await self._look()
            return await self._take()
        except (Conflict, NotFound):
            self._lease = None  # somebody else wrote; look again
        except KubeError as error:
            self._log.warn("cannot reach the lease", error=str(error))
        return False

    async def _look(self) -> None:
        try:
            lease: Lease | None = await self._client.get(LEASES, self._key)
        except NotFound:
            lease = None
        if lease != self._lease:
            self._lease, self._seen_at = lease, loop_time()

    async def _take(self) -> bool:
        sent, old = loop_time(), self._lease
        if old is None:
            await self._create()
        else:
            holder, lasts = self._holder(), old.spec.leaseDurationSeconds or self._timings.lasts
            if holder not in ("", self._identity) and sent < self._seen_at + lasts:
                return False
            ours = holder == self._identity
            began = old.spec.acquireTime if ours else micro_time()
            await self._write(
                LeaseSpec(
                    self._identity, self._timings.lasts, began, micro_time(), old.spec.leaseTransitions + (not ours)
                )
            )
        self._renewed_at = sent
        return True

    async def _create(self) -> None:
        spec = LeaseSpec(self._identity, self._timings.lasts, micro_time(), micro_time())
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._key.name},
            "spec": spec,
        }
        self._lease = await self._client.create(LEASES, body, self._key.namespace)
        self._seen_at = loop_time()

    async def _write(self, spec: LeaseSpec) -> None:
        if self._lease is None:
            return
        guard = {"resourceVersion": self._lease.metadata.resourceVersion}
        whole = msgspec.structs.asdict(spec)
        self._lease = await self._client.merge_patch(LEASES, self._key, {"metadata": guard, "spec": whole})
        self._seen_at = loop_time()

    async def _watch(self, changed: asyncio.Event) -> None:
        """Only to wake the candidate sooner: without it the lease is still looked at every `retry_every`."""
        try:
            fields = f"metadata.name={self._key.name}"
            watch = self._client.watch(LEASES, self._key.namespace, fields=fields)
            async with aclosing(aiter(watch)) as batches:
                async for _ in batches:
                    changed.set()
        except KubeError as error:
            self._log.debug("cannot watch the lease", error=str(error))

    def _holder(self) -> str:
        return (self._lease.spec.holderIdentity or "") if self._lease else ""
