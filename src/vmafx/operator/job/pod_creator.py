"""Creates the Pod of an attempt once, and reports what prevents it."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.clock import loop_time
from vmafx.jobs.outcome import Outcome, failed_attempt
from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import PODS
from vmafx.kube.errors import AlreadyExists, BadRequest, Forbidden, Invalid, NotFound
from vmafx.operator.job.decide import MINUTES, START_TIMEOUT
from vmafx.operator.job.memory import JobMemory
from vmafx.operator.job.pod import PodSettings, make_pod, pod_name
from vmafx.operator.job.pod_cache import BY_JOB, PodView
from vmafx.operator.job.steps import RECHECK_INTERVAL
from vmafx.runtime.informer import Informer

POD_VIEW = PODS.seen_as(PodView)
RETRY_INTERVAL = 10.0  # seconds, while it is not allowed
NAME_TIMEOUT = 30.0  # seconds in which a namesake's Pod usually goes


class PodCreated(msgspec.Struct, frozen=True):
    """It is there, or about to be. `at_last`: people were told that something was in its way."""

    at_last: bool = False


class PodBlocked(msgspec.Struct, frozen=True):
    """Something is in the way: the job keeps its place, and asks again. `untold`: nobody was told yet."""

    why: str
    untold: bool
    after: float


class PodCreator:
    def __init__(
        self, client: Client, pods: Informer[PodView], settings: PodSettings, now: Callable[[], datetime]
    ) -> None:
        self._client, self._pods, self._settings, self._now = client, pods, settings, now

    async def find(self, key: ObjectKey, job: JobView) -> PodView | None:
        """A Pod with the attempt's name, as the server has it: the cache may not show it yet, or not any more."""
        try:
            return await self._client.get(POD_VIEW, ObjectKey(key.namespace, pod_name(job, job.status.attempts - 1)))
        except NotFound:
            return None

    async def create(
        self, key: ObjectKey, job: JobView, node: NodeView, memory: JobMemory
    ) -> PodCreated | PodBlocked | Outcome:
        wanted = make_pod(job, node, job.status.attempts - 1, self._settings, self._failed_on(key))
        try:
            await self._client.create(POD_VIEW, wanted, key.namespace)
        except AlreadyExists:
            return self.name_taken(job, memory)
        except (BadRequest, Invalid) as error:  # by what its node adds to it, and not otherwise tomorrow
            return failed_attempt(job, f"its Pod was refused: {error}")
        except Forbidden as error:  # a quota, an admission rule, a right that is missing
            return self._blocked(job, memory, f"its Pod is not allowed: {error}", 0.0, RETRY_INTERVAL)
        at_last, memory.made_at = memory.blocked_told, loop_time()
        memory.blocked_since, memory.blocked_told = None, False
        return PodCreated(at_last)

    def name_taken(self, job: JobView, memory: JobMemory) -> PodBlocked | Outcome:
        """By the Pod of a namesake that is about to go, or of somebody who has nothing to do with us."""
        why = f"there is a Pod {pod_name(job, job.status.attempts - 1)} that is not its own"
        return self._blocked(job, memory, why, NAME_TIMEOUT, RECHECK_INTERVAL)

    def _blocked(
        self, job: JobView, memory: JobMemory, why: str, patience: float, after: float
    ) -> PodBlocked | Outcome:
        """For as long as a Pod may take to start, whatever keeps it from that."""
        now = self._now()
        memory.blocked_since = memory.blocked_since or now
        waited = now - memory.blocked_since
        if waited > START_TIMEOUT:
            return failed_attempt(job, f"for {MINUTES} minutes: {why}")
        tell = not memory.blocked_told and waited.total_seconds() >= patience
        memory.blocked_told = memory.blocked_told or tell
        return PodBlocked(why, tell, after)

    def _failed_on(self, key: ObjectKey) -> frozenset[str]:
        """The Kubernetes nodes on which earlier attempts ended."""
        ended = (one for one in self._pods.store.by(BY_JOB, key) if one.ended())
        return frozenset(one.spec.nodeName for one in ended if one.spec.nodeName)
