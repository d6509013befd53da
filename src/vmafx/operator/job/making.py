"""Makes the Pod of an attempt, once, and says what came of it where that is not simply a Pod."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.jobs.outcomes import Leaving, TryAgain, failed
from vmafx.kube import Client, Key
from vmafx.kube.core import PODS
from vmafx.kube.errors import AlreadyExists, BadRequest, Forbidden, Invalid, NotFound
from vmafx.operator.job import decide as steps
from vmafx.operator.job.cache import BY_JOB, Caches
from vmafx.operator.job.pod import PodSettings, pod, pod_name
from vmafx.operator.job.podview import PodView
from vmafx.times import loop_time

ASK_AGAIN = 10.0  # seconds, while it is not allowed
NAME_WITHIN = 30.0  # seconds in which a namesake's Pod usually goes


class Made(msgspec.Struct, frozen=True):
    """It is there, or about to be; look again after so many seconds. `at_last`: it was not allowed before."""

    after: float
    at_last: bool = False


class Found(msgspec.Struct, frozen=True):
    """Somebody made it before us, and the cache does not show it."""

    pod: PodView


class NotAllowed(msgspec.Struct, frozen=True):
    """Something is in the way: the job keeps its place, and asks again. `tell`: nobody was told yet."""

    why: str
    tell: bool
    after: float


class _Refusal(msgspec.Struct):
    attempt: str
    since: datetime
    told: bool = False


class PodMaking:
    """Knows which attempts have had their Pod made, and which were not allowed one."""

    def __init__(self, client: Client, caches: Caches, settings: PodSettings, now: Callable[[], datetime]) -> None:
        self._client, self._caches, self._settings, self._now = client, caches, settings, now
        self._made: dict[Key, tuple[str, float]] = {}  # and when, by the loop's clock
        self._refusals: dict[Key, _Refusal] = {}

    def forget(self, key: Key) -> None:
        self._made.pop(key, None)
        self._refusals.pop(key, None)

    async def make(self, key: Key, job: JobView, *, look: bool) -> Made | Found | NotAllowed | Leaving:
        """`look`: somebody may have made it before us."""
        there = self._caches.nodes.store.get(Key(key.namespace, job.status.assignedNode or ""))
        if isinstance(node := steps.node_for(job, there, "Pod"), TryAgain):
            return node
        attempt, made_at = self._made.get(key, ("", 0.0))
        if attempt == job.status.controllerJobID:
            return await self._missed(key, job, made_at)
        if look and (found := await self._find(key, job)) is not None:
            return Found(found) if steps.is_current(found, job) else self._name_is_taken(key, job)
        return await self._create(key, job, node)

    async def _create(self, key: Key, job: JobView, node: NodeView) -> Made | NotAllowed | Leaving:
        wanted = pod(job, node, job.status.attempts - 1, self._settings, self._failed_on(key))
        try:
            await self._client.create(PODS.seen_as(PodView), wanted, key.namespace)
        except AlreadyExists:
            return self._name_is_taken(key, job)
        except (BadRequest, Invalid) as error:  # by what its node adds to it, and not otherwise tomorrow
            return failed(job, f"its Pod was refused: {error}")
        except Forbidden as error:  # a quota, an admission rule, a right that is missing
            return self._refused(key, job, f"its Pod is not allowed: {error}", 0.0, ASK_AGAIN)
        if self._caches.jobs.store.get(key) is not None:
            self._made[key] = job.status.controllerJobID or "", loop_time()
        refusal = self._refusals.pop(key, None)
        return Made(steps.LOOK_AGAIN, at_last=refusal is not None and refusal.told)

    async def _missed(self, key: Key, job: JobView, made_at: float) -> Made | Found | Leaving:
        """We made it, and the cache shows none: not yet; or it came and went while nobody told us."""
        if loop_time() - made_at < steps.LOOK_AGAIN:
            return Made(steps.LOOK_AGAIN)
        there = await self._find(key, job)
        if there is None or not steps.is_current(there, job):
            return failed(job, "its Pod disappeared")
        return Found(there)

    async def _find(self, key: Key, job: JobView) -> PodView | None:
        try:
            name = pod_name(job, job.status.attempts - 1)
            return await self._client.get(PODS.seen_as(PodView), Key(key.namespace, name))
        except NotFound:
            return None

    def _name_is_taken(self, key: Key, job: JobView) -> NotAllowed | Leaving:
        """By the Pod of a namesake that is about to go, or of somebody who has nothing to do with us."""
        why = f"there is a Pod {pod_name(job, job.status.attempts - 1)} that is not its own"
        return self._refused(key, job, why, NAME_WITHIN, steps.LOOK_AGAIN)

    def _refused(self, key: Key, job: JobView, why: str, patience: float, after: float) -> NotAllowed | Leaving:
        """For as long as a Pod may take to start, whatever keeps it from that."""
        attempt, now = job.status.controllerJobID or "", self._now()
        refusal = self._refusals.get(key)
        if refusal is None or refusal.attempt != attempt:
            refusal = self._refusals[key] = _Refusal(attempt, now)
        waited = now - refusal.since
        if waited > steps.START_WITHIN:
            return failed(job, f"for {steps.MINUTES} minutes: {why}")
        tell = not refusal.told and waited.total_seconds() >= patience
        refusal.told = refusal.told or tell
        return NotAllowed(why, tell, after)

    def _failed_on(self, key: Key) -> frozenset[str]:
        """The Kubernetes nodes on which earlier attempts ended."""
        ended = (one for one in self._caches.pods.store.by(BY_JOB, key) if one.ended())
        return frozenset(one.spec.nodeName for one in ended if one.spec.nodeName)
