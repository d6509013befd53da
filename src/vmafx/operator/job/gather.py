"""Gathers what `decide` needs to know about a job: from the caches, the scheduler, external controllers and memory."""

from collections.abc import Callable

from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.jobs.state import is_external
from vmafx.kube import Client, ObjectKey
from vmafx.kube.errors import NotFound
from vmafx.operator.job.decide import NO_OBSERVATION, Observation, attempt_runtime, is_current, is_own_attempt
from vmafx.operator.job.external.poller import ExternalJobs
from vmafx.operator.job.memory import JobMemories
from vmafx.operator.job.placement import Placer
from vmafx.operator.job.pod import pod_name
from vmafx.operator.job.pod_cache import PodView
from vmafx.operator.job.steps import RECHECK_INTERVAL
from vmafx.runtime.informer import Informer


class Gatherer:
    """Reads from the caches; calls the API server only for a Pod that should exist and is not in the cache."""

    def __init__(
        self,
        client: Client,
        nodes: Informer[NodeView],
        pods: Informer[PodView],
        placer: Placer,
        external: ExternalJobs,
        memory: JobMemories,
        clock: Callable[[], float],
    ) -> None:
        self._client, self._nodes, self._pods, self._memory = client, nodes, pods, memory
        self._placer, self._external, self._clock = placer, external, clock
        self._watched_since: float | None = None

    def watch_from_now(self) -> None:
        """Take earlier events from the status of objects only: this process has just become leader, or lost contact."""
        self._watched_since = self._clock()

    async def gather(self, key: ObjectKey, job: JobView) -> Observation:
        if job.metadata.deletionTimestamp is not None:
            return NO_OBSERVATION  # neither place it nor poll its controller
        if is_external(job):
            return Observation(external=self._external.state(key, job, self._memory.ages(key)))
        if job.status.phase == "Pending":
            placement = self._placer.place(key, job)
            return Observation(self._node(key, placement or job.status.assignedNode), placement)
        return await self._gather_running(key, job)

    async def _gather_running(self, key: ObjectKey, job: JobView) -> Observation:
        memory = self._memory.entry(key, job.status.controllerJobID or "")
        pod_key = ObjectKey(key.namespace, pod_name(job, job.status.attempts - 1))
        node, created_at = self._node(key, job.status.assignedNode), memory.pod_created_at
        clock, watched = self._clock(), self._watched_since
        created_ago = None if created_at is None else clock - created_at
        watched_for = None if watched is None else clock - watched

        def observe(pod: PodView | None) -> Observation:
            if pod is not None and is_current(pod, job):
                memory.pod_seen = True
            gone = memory.gone_pod if pod is None else None
            return Observation(node, None, pod, memory.pod_seen, gone, created_ago, watched_for)

        observed = observe(self._pods.store.get(pod_key))
        return observe(await self._get_pod(pod_key)) if _may_lag(job, observed) else observed

    async def _get_pod(self, key: ObjectKey) -> PodView | None:
        try:
            return await self._client.get(self._pods.resource, key)
        except NotFound:
            return None

    def _node(self, key: ObjectKey, name: str | None) -> NodeView | None:
        return self._nodes.store.get(ObjectKey(key.namespace, name)) if name else None


def _may_lag(job: JobView, observed: Observation) -> bool:
    """Whether the attempt should have a Pod that the cache may not show yet, or not any more."""
    cached = observed.pod is not None and is_current(observed.pod, job)  # the name may be another owner's Pod
    if cached or observed.pod_seen or not is_own_attempt(job):
        return False
    if observed.pod_created_ago is not None and observed.pod_created_ago < RECHECK_INTERVAL:
        return False
    return observed.node is not None and attempt_runtime(job, observed) == "Pod"
