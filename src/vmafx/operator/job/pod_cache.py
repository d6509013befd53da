"""Worker Pods as they are cached: only the fields that show the state of an attempt."""

from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from vmafx.api.job import FINISHED, JobView
from vmafx.api.meta import ApiModel
from vmafx.jobs.cache import UNFINISHED
from vmafx.jobs.state import Age
from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import PODS
from vmafx.runtime.informer import Informer, StoreFilter

WORKER_CONTAINER = "worker"
JOB_LABEL, ATTEMPT_LABEL = "vmafx.dev/job", "vmafx.dev/attempt"
BY_JOB = "job"  # index


class PodLabels(ApiModel):
    """The two labels that are needed: a dictionary of all labels would take most of the cache's memory."""

    job: str = msgspec.field(name=JOB_LABEL, default="")
    attempt: str = msgspec.field(name=ATTEMPT_LABEL, default="")


class PodOwner(ApiModel):
    uid: str = ""


class PodMeta(ApiModel):
    name: str
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    creationTimestamp: datetime | None = None
    deletionTimestamp: datetime | None = None
    deletionGracePeriodSeconds: int = 0
    labels: PodLabels = PodLabels()
    ownerReferences: tuple[PodOwner, ...] = ()


class ContainerTerminated(ApiModel):
    exitCode: int = 0
    reason: str = ""
    message: str = ""


class ContainerWaiting(ApiModel):
    reason: str = ""
    message: str = ""


class ContainerState(ApiModel):
    waiting: ContainerWaiting | None = None
    terminated: ContainerTerminated | None = None


class ContainerStatus(ApiModel):
    name: str = ""
    state: ContainerState = ContainerState()


class PodCondition(ApiModel):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    lastTransitionTime: datetime | None = None


class PodStatus(ApiModel):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    containerStatuses: tuple[ContainerStatus, ...] = ()


class PodSpec(ApiModel):
    nodeName: str = ""


class PodDeletion(NamedTuple):
    """A deletion of a Pod: when it was requested, and how long the Pod may take to end."""

    requested: datetime
    grace: timedelta


class PodView(ApiModel):
    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def condition(self, kind: str) -> PodCondition | None:
        return next((one for one in self.status.conditions if one.type == kind), None)

    def is_evicted(self) -> bool:
        """Whether the kubelet evicted the Pod: its machine ran short of a resource, or a limit on disk was exceeded.

        The Pod may have caused that itself, so it is not a disruption, although node pressure sets DisruptionTarget.
        """
        return self.status.reason == "Evicted"

    def is_disrupted(self) -> bool:
        """Whether the cluster ended the Pod for reasons of its own.

        Examples are drains and other evictions by the API, preemption, taints, a machine that shuts down, and Kueue.
        """
        target = self.condition("DisruptionTarget") or self.condition("TerminationTarget")
        return target is not None and target.status == "True" and not self.is_evicted()

    def termination(self) -> ContainerTerminated | None:
        """How the worker container ended, whatever sidecars do; exit code -1 for a Pod that ended without one."""
        for container in self.status.containerStatuses:
            if container.name == WORKER_CONTAINER and container.state.terminated is not None:
                return container.state.terminated
        if self.status.phase in {"Succeeded", "Failed"}:
            return ContainerTerminated(-1, self.status.reason, "")
        return None

    def deletion(self) -> PodDeletion | None:
        """The deletion that was requested; None if there is none."""
        ends, grace = self.metadata.deletionTimestamp, timedelta(seconds=self.metadata.deletionGracePeriodSeconds)
        return None if ends is None else PodDeletion(ends - grace, grace)

    def startable_for(self, age: Age) -> float | None:
        """Seconds since the Pod was created, or its scheduling gate was removed; None while it is gated."""
        scheduled, created = self.condition("PodScheduled"), self.metadata.creationTimestamp
        if created is None or (scheduled is not None and scheduled.reason == "SchedulingGated"):
            return None
        changed = scheduled.lastTransitionTime if scheduled is not None else None
        return age(created) if changed is None else min(age(created), age(changed))

    def waiting_reason(self) -> str:
        """Why the Pod has not started, as its status says."""
        for container in self.status.containerStatuses:
            if waiting := container.state.waiting:
                return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
        scheduled = self.condition("PodScheduled")
        if scheduled is not None and scheduled.status != "True":
            return f"{scheduled.reason}: {scheduled.message}"
        return self.status.reason or "no reason given"


def pods_informer(client: Client, jobs: Informer[JobView]) -> Informer[PodView]:
    """The Pods of jobs. A finished Pod is kept as long as its job is unfinished."""

    def is_kept(pod: PodView) -> bool:
        job = job_key(pod)
        return pod.status.phase not in FINISHED or (job is not None and jobs.store.get(job) is not None)

    keep: StoreFilter[PodView] = StoreFilter(is_kept, UNFINISHED.fields)  # Pods and jobs have the same phases
    indexes = {BY_JOB: job_keys}
    resource = PODS.decoded_as(PodView)
    return Informer(client, resource, namespace=jobs.namespace, labels=JOB_LABEL, indexes=indexes, keep=keep)


def job_key(pod: PodView) -> ObjectKey | None:
    """The job that the Pod's label names. Not proof of ownership: anyone can set the label."""
    name = pod.metadata.labels.job
    return ObjectKey(pod.metadata.namespace, name) if name else None


def job_keys(pod: PodView) -> tuple[ObjectKey, ...]:
    job = job_key(pod)
    return () if job is None else (job,)
