"""Creates the Pod of an attempt, or says what prevents it."""

from collections.abc import Callable
from datetime import timedelta

import msgspec

from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.jobs.outcome import Outcome, failed_attempt
from vmafx.kube import Client, ObjectKey
from vmafx.kube.errors import AlreadyExists, BadRequest, Forbidden, Invalid, KubeError
from vmafx.operator.job.decide import START_TIMEOUT, START_TIMEOUT_MINUTES
from vmafx.operator.job.memory import JobMemory
from vmafx.operator.job.pod import PodSettings, make_pod, pod_name, without_resources
from vmafx.operator.job.pod_cache import BY_JOB, PodView
from vmafx.operator.job.samples import SampleVariables
from vmafx.operator.job.steps import RECHECK_INTERVAL
from vmafx.runtime.informer import Informer

FORBIDDEN_RETRY_INTERVAL = 10.0  # seconds
NAME_GRACE = 30.0  # seconds in which the Pod of a deleted job with the same name usually terminates


class PodCreated(msgspec.Struct, frozen=True):
    """The Pod exists. `was_blocked`: the job's message says that it could not be created, and must be cleared."""

    was_blocked: bool = False


class PodBlocked(msgspec.Struct, frozen=True):
    """The Pod cannot be created now; the job keeps its slot, and the operator retries. `report`: for the first time."""

    message: str
    report: bool
    requeue_after: float


class PodCreator:
    def __init__(
        self,
        client: Client,
        pods: Informer[PodView],
        settings: PodSettings,
        samples: SampleVariables,
        clock: Callable[[], float],
    ) -> None:
        self._client, self._pods, self._settings, self._samples, self._clock = client, pods, settings, samples, clock

    async def create(
        self, key: ObjectKey, job: JobView, node: NodeView, memory: JobMemory
    ) -> PodCreated | PodBlocked | Outcome:
        try:
            await self._create(key, job, node)
        except AlreadyExists:
            return self.name_taken(job, memory)
        except (BadRequest, Invalid) as error:  # caused by the node's podTemplate, so a retry would fail too
            return failed_attempt(job, f"the API server rejected its Pod: {error}")
        except Forbidden as error:  # a quota, an admission policy or a missing permission
            message = f"creating its Pod was forbidden (quota, admission policy or permission): {error}"
            return self._blocked(job, memory, message, 0.0, FORBIDDEN_RETRY_INTERVAL)
        was_blocked, memory.pod_created_at = memory.blocked_reported, self._clock()
        memory.blocked_since, memory.blocked_reported = None, False
        return PodCreated(was_blocked)

    async def _create(self, key: ObjectKey, job: JobView, node: NodeView) -> None:
        """With the operator's default resources; without them if a LimitRange of the namespace may contradict them."""
        variables, avoid = await self._samples.of_pod(job, node), self._used_nodes(key)
        refused: KubeError | None = None
        for settings in dict.fromkeys((self._settings, without_resources(self._settings))):
            pod = make_pod(job, node, job.status.attempts - 1, settings, avoid, variables)
            try:
                await self._client.create(self._pods.resource, pod, key.namespace)
            except (BadRequest, Invalid, Forbidden) as error:
                refused = refused or error
            else:
                return
        if refused is not None:
            raise refused

    def name_taken(self, job: JobView, memory: JobMemory) -> PodBlocked | Outcome:
        """The Pod of a deleted job with the same name that still terminates, or one unrelated to vmafx."""
        name = pod_name(job, job.status.attempts - 1)
        return self._blocked(
            job,
            memory,
            f"a Pod named {name} already exists and is not controlled by this job",
            NAME_GRACE,
            RECHECK_INTERVAL,
        )

    def _blocked(
        self, job: JobView, memory: JobMemory, message: str, grace: float, requeue_after: float
    ) -> PodBlocked | Outcome:
        """Retry until START_TIMEOUT; reported once, after `grace` seconds."""
        now = self._clock()
        memory.blocked_since = now if memory.blocked_since is None else memory.blocked_since
        waited = timedelta(seconds=now - memory.blocked_since)
        if waited > START_TIMEOUT:
            return failed_attempt(
                job, f"its Pod could not be created within {START_TIMEOUT_MINUTES} minutes: {message}"
            )
        report = not memory.blocked_reported and waited.total_seconds() >= grace
        memory.blocked_reported = memory.blocked_reported or report
        return PodBlocked(message, report, requeue_after)

    def _used_nodes(self, key: ObjectKey) -> frozenset[str]:
        """The Kubernetes nodes on which earlier attempts ended."""
        ended = (pod for pod in self._pods.store.by(BY_JOB, key) if pod.termination())
        return frozenset(pod.spec.nodeName for pod in ended if pod.spec.nodeName)
