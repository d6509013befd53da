"""Makes the Pod of an attempt, once, and says what came of it where that is not simply a Pod."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from vmafx.api.job import JobView
from vmafx.kube import Client, Key
from vmafx.kube.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid, NotFound
from vmafx.operator.job import decide as steps
from vmafx.operator.job.cache import BY_JOB, PODS, Caches
from vmafx.operator.job.pod import PodSettings, pod

ASK_AGAIN = 10.0  # seconds, while it is not allowed


class Made(msgspec.Struct, frozen=True):
    """It is there, or about to be; look again after so many seconds, if any. `at_last`: it was not allowed before."""

    after: float | None = None
    at_last: bool = False


class NotAllowed(msgspec.Struct, frozen=True):
    """A quota, an admission rule, a right that is missing: the job keeps its place, and asks again."""

    error: str
    first: bool
    after: float = ASK_AGAIN


class PodMaking:
    """Knows which attempts have had their Pod made, and which were not allowed one."""

    def __init__(self, client: Client, caches: Caches, settings: PodSettings, now: Callable[[], datetime]) -> None:
        self._client, self._caches, self._settings, self._now = client, caches, settings, now
        self._made: dict[Key, str] = {}  # whether or not the cache shows it yet
        self._refused: dict[Key, tuple[str, datetime]] = {}  # and since when

    def forget(self, key: Key) -> None:
        self._made.pop(key, None)
        self._refused.pop(key, None)

    async def make(self, key: Key, job: JobView, *, look: bool) -> Made | NotAllowed | steps.Leaving:
        """`look`: somebody may have made it before us."""
        attempt = job.status.controllerJobID or ""
        node = self._caches.nodes.store.get(Key(key.namespace, job.status.assignedNode or ""))
        if node is None:
            return steps.TryAgain(f"its node {job.status.assignedNode} is gone", failed=False)
        if self._made.get(key) == attempt or node.spec.runtime == "Agent":
            return Made()
        wanted = pod(job, node, job.status.attempts - 1, self._settings, self._failed_on(key))
        try:
            if not await self._create(wanted, key.namespace, look=look):
                return Made(steps.LOOK_AGAIN)  # the cache is about to show it, or a namesake's is to go first
        except (BadRequest, Invalid) as error:  # by what its node adds to it, and not otherwise tomorrow
            return steps.failed(job, f"its Pod was refused: {error}")
        except Forbidden as error:
            return self._not_allowed(key, job, error)
        if self._caches.jobs.store.get(key) is not None:
            self._made[key] = attempt
        return Made(at_last=self._refused.pop(key, None) is not None)

    def _not_allowed(self, key: Key, job: JobView, error: ApiError) -> NotAllowed | steps.Leaving:
        """For as long as a Pod may take to start, whatever keeps it from that."""
        attempt, now = job.status.controllerJobID or "", self._now()
        known, since = self._refused.get(key, ("", now))
        if known != attempt:
            self._refused[key] = attempt, now
            return NotAllowed(str(error), first=True)
        if now - since > steps.START_WITHIN:
            return steps.failed(job, f"its Pod was not allowed for 10 minutes: {error}")
        return NotAllowed(str(error), first=False)

    async def _create(self, wanted: dict[str, Any], namespace: str, *, look: bool) -> bool:
        """False if there is a Pod of that name."""
        try:
            if look:
                await self._client.get(PODS, Key(namespace, wanted["metadata"]["name"]))
                return False
        except NotFound:
            pass
        try:
            await self._client.create(PODS, wanted, namespace)
        except AlreadyExists:
            return False
        return True

    def _failed_on(self, key: Key) -> frozenset[str]:
        """The Kubernetes nodes on which earlier attempts ended."""
        ended = (one for one in self._caches.pods.store.by(BY_JOB, key) if one.ended())
        return frozenset(one.spec.nodeName for one in ended if one.spec.nodeName)
