"""Worker Pods as the operator caches them: the fields that tell how an attempt is doing."""

from datetime import datetime

import msgspec

from vmafx.api.job import FINISHED, JobView
from vmafx.api.meta import ApiModel
from vmafx.jobs.cache import UNFINISHED
from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import PODS
from vmafx.runtime.informer import Informer, StoreFilter

WORKER = "worker"  # our container
JOB_LABEL, ATTEMPT_LABEL = "vmafx.dev/job", "vmafx.dev/attempt"


class PodLabels(ApiModel):
    """Of all labels, ours: a dictionary of them for each Pod would be the larger part of the cache."""

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


class PodView(ApiModel):
    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def condition(self, kind: str) -> PodCondition | None:
        return next((one for one in self.status.conditions if one.type == kind), None)

    def disrupted(self) -> bool:
        """Taken away by the cluster for its own reasons: drained, preempted, evicted by the API, stopped by a queue."""
        found = self.condition("DisruptionTarget") or self.condition("TerminationTarget")
        return found is not None and found.status == "True"

    def ended(self) -> ContainerTerminated | None:
        """How our container ended, whatever others put beside it; a Pod that failed before it had one ended too."""
        for container in self.status.containerStatuses:
            if container.name == WORKER and container.state.terminated is not None:
                return container.state.terminated
        if self.status.phase in {"Succeeded", "Failed"}:
            return ContainerTerminated(-1, self.status.reason, "")
        return None

    def could_start_since(self) -> datetime | None:
        """Since it was made, or let go by a queue; None while that holds it back, and says why."""
        scheduled, made = self.condition("PodScheduled"), self.metadata.creationTimestamp
        if made is None or (scheduled is not None and scheduled.reason == "SchedulingGated"):
            return None
        turned = scheduled.lastTransitionTime if scheduled is not None else None
        return max(made, turned) if turned is not None else made

    def waits_for(self) -> str:
        """What keeps it from starting, in its own words."""
        for container in self.status.containerStatuses:
            if waiting := container.state.waiting:
                return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
        unplaced = self.condition("PodScheduled")
        if unplaced is not None and unplaced.status != "True":
            return f"{unplaced.reason}: {unplaced.message}"
        return self.status.reason or "it does not say why"


BY_JOB = "job"


def pods_informer(client: Client, jobs: Informer[JobView]) -> Informer[PodView]:
    """The Pods of jobs, and no others. One that is over is kept for as long as its job is."""

    def wanted(one: PodView) -> bool:
        job = job_of(one)
        return one.status.phase not in FINISHED or (job is not None and jobs.store.get(job) is not None)

    keep: StoreFilter[PodView] = StoreFilter(wanted, UNFINISHED.fields)  # their phases have the same names
    indexes = {BY_JOB: keys_of}
    resource = PODS.seen_as(PodView)
    return Informer(client, resource, namespace=jobs.namespace, labels=JOB_LABEL, indexes=indexes, keep=keep)


def job_of(pod: PodView) -> ObjectKey | None:
    """Whose Pod it says it is; anybody may have labelled it."""
    name = pod.metadata.labels.job
    return ObjectKey(pod.metadata.namespace, name) if name else None


def keys_of(pod: PodView) -> tuple[ObjectKey, ...]:
    job = job_of(pod)
    return () if job is None else (job,)
