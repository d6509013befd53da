"""Puts together what is known of a job: from the caches, the scheduler, other controllers, and our own memory."""

from collections.abc import Callable
from datetime import datetime

from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.jobs.attempts import is_foreign
from vmafx.kube import Key
from vmafx.operator.job.decide import NOTHING_KNOWN, Situation, is_current, runs_here, runtime_of
from vmafx.operator.job.following import Following
from vmafx.operator.job.memory import Memory
from vmafx.operator.job.placing import Placing
from vmafx.operator.job.pod import pod_name
from vmafx.operator.job.pods import PodCreator
from vmafx.operator.job.podview import PodView
from vmafx.operator.job.steps import LOOK_AGAIN
from vmafx.runtime.informer import Informer
from vmafx.times import loop_time


class Gatherer:
    """The server is asked only for a Pod that should be there and that the cache does not show."""

    def __init__(
        self,
        nodes: Informer[NodeView],
        pods: Informer[PodView],
        placing: Placing,
        following: Following,
        creator: PodCreator,
        memory: Memory,
        now: Callable[[], datetime],
    ) -> None:
        self._nodes, self._pods, self._creator, self._memory = nodes, pods, creator, memory
        self._placing, self._following, self._now = placing, following, now
        self.watched_since: datetime | None = None

    async def gather(self, key: Key, job: JobView) -> Situation:
        if job.metadata.deletionTimestamp is not None:
            return NOTHING_KNOWN  # it is given no place, and nobody is asked after it
        if is_foreign(job):
            return Situation(elsewhere=self._following.about(key, job, self._now()))
        if job.status.phase == "Pending":
            place = self._placing.ask_for(key, job)
            return Situation(self._node(key, place or job.status.assignedNode), place)
        return await self._running(key, job)

    async def _running(self, key: Key, job: JobView) -> Situation:
        known = self._memory.of(key, job.status.controllerJobID or "")
        pod = self._pods.store.get(Key(key.namespace, pod_name(job, job.status.attempts - 1)))
        if pod is not None and is_current(pod, job):
            known.seen = True
        made_ago = None if known.made_at is None else loop_time() - known.made_at
        node = self._node(key, job.status.assignedNode)
        situation = Situation(node, None, pod, known.seen, made_ago, self.watched_since)
        if not _may_lack_its_pod(job, situation):
            return situation
        found = await self._creator.find(key, job)
        if found is not None and is_current(found, job):
            known.seen = True
        return Situation(node, None, found, known.seen, made_ago, self.watched_since)

    def _node(self, key: Key, name: str | None) -> NodeView | None:
        return self._nodes.store.get(Key(key.namespace, name)) if name else None


def _may_lack_its_pod(job: JobView, situation: Situation) -> bool:
    """Whether its attempt should have a Pod, and only the server can tell whether it has."""
    shown = situation.pod is not None and is_current(situation.pod, job)  # another's may be there in its place
    if shown or situation.seen or not runs_here(job):
        return False
    if situation.made_ago is not None and situation.made_ago < LOOK_AGAIN:
        return False
    return situation.node is not None and runtime_of(job, situation) == "Pod"
