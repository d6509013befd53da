"""Puts together what is known of a job: from the caches, the scheduler, other controllers, and our own memory."""

from collections.abc import Callable
from datetime import datetime

from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.clock import loop_time
from vmafx.jobs.state import is_foreign
from vmafx.kube import ObjectKey
from vmafx.operator.job.decide import NO_OBSERVATION, Observation, is_current, runs_here, runtime_of
from vmafx.operator.job.foreign_jobs import ForeignJobs
from vmafx.operator.job.memory import JobMemories
from vmafx.operator.job.placement import Placer
from vmafx.operator.job.pod import pod_name
from vmafx.operator.job.pod_cache import PodView
from vmafx.operator.job.pod_creator import PodCreator
from vmafx.operator.job.steps import RECHECK_INTERVAL
from vmafx.runtime.informer import Informer


class Gatherer:
    """The server is asked only for a Pod that should be there and that the cache does not show."""

    def __init__(
        self,
        nodes: Informer[NodeView],
        pods: Informer[PodView],
        placing: Placer,
        following: ForeignJobs,
        creator: PodCreator,
        memory: JobMemories,
        now: Callable[[], datetime],
    ) -> None:
        self._nodes, self._pods, self._creator, self._memory = nodes, pods, creator, memory
        self._placing, self._following, self._now = placing, following, now
        self.watched_since: datetime | None = None

    async def gather(self, key: ObjectKey, job: JobView) -> Observation:
        if job.metadata.deletionTimestamp is not None:
            return NO_OBSERVATION  # it is given no place, and nobody is asked after it
        if is_foreign(job):
            return Observation(elsewhere=self._following.about(key, job, self._now()))
        if job.status.phase == "Pending":
            place = self._placing.ask_for(key, job)
            return Observation(self._node(key, place or job.status.assignedNode), place)
        return await self._running(key, job)

    async def _running(self, key: ObjectKey, job: JobView) -> Observation:
        known = self._memory.of(key, job.status.controllerJobID or "")
        pod = self._pods.store.get(ObjectKey(key.namespace, pod_name(job, job.status.attempts - 1)))
        if pod is not None and is_current(pod, job):
            known.seen = True
        made_ago = None if known.made_at is None else loop_time() - known.made_at
        node = self._node(key, job.status.assignedNode)
        situation = Observation(node, None, pod, known.seen, made_ago, self.watched_since)
        if not _may_lack_its_pod(job, situation):
            return situation
        found = await self._creator.find(key, job)
        if found is not None and is_current(found, job):
            known.seen = True
        return Observation(node, None, found, known.seen, made_ago, self.watched_since)

    def _node(self, key: ObjectKey, name: str | None) -> NodeView | None:
        return self._nodes.store.get(ObjectKey(key.namespace, name)) if name else None


def _may_lack_its_pod(job: JobView, situation: Observation) -> bool:
    """Whether its attempt should have a Pod, and only the server can tell whether it has."""
    shown = situation.pod is not None and is_current(situation.pod, job)  # another's may be there in its place
    if shown or situation.seen or not runs_here(job):
        return False
    if situation.made_ago is not None and situation.made_ago < RECHECK_INTERVAL:
        return False
    return situation.node is not None and runtime_of(job, situation) == "Pod"
