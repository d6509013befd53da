"""A worker Pod as the cache keeps it: what tells how an attempt is doing, and nothing else."""

from datetime import datetime

import msgspec

from vmafx.api.meta import Model

WORKER = "worker"  # our container
JOB_LABEL, ATTEMPT_LABEL = "vmafx.dev/job", "vmafx.dev/attempt"


class PodLabels(Model):
    """Of all labels, ours: a dictionary of them for each Pod would be the larger part of the cache."""

    job: str = msgspec.field(name=JOB_LABEL, default="")
    attempt: str = msgspec.field(name=ATTEMPT_LABEL, default="")


class Owner(Model):
    uid: str = ""


class PodMeta(Model):
    name: str
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    creationTimestamp: datetime | None = None
    deletionTimestamp: datetime | None = None
    labels: PodLabels = PodLabels()
    ownerReferences: tuple[Owner, ...] = ()


class Terminated(Model):
    exitCode: int = 0
    reason: str = ""
    message: str = ""


class Waiting(Model):
    reason: str = ""
    message: str = ""


class State(Model):
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(Model):
    name: str = ""
    state: State = State()


class PodCondition(Model):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    lastTransitionTime: datetime | None = None


class PodStatus(Model):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    containerStatuses: tuple[ContainerStatus, ...] = ()


class PodSpec(Model):
    nodeName: str = ""


class PodView(Model):
    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def condition(self, kind: str) -> PodCondition | None:
        return next((one for one in self.status.conditions if one.type == kind), None)

    def disrupted(self) -> bool:
        """Taken away by the cluster for its own reasons: drained, preempted, evicted by the API, stopped by a queue."""
        found = self.condition("DisruptionTarget") or self.condition("TerminationTarget")
        return found is not None and found.status == "True"

    def ended(self) -> Terminated | None:
        """How our container ended, whatever others put beside it; a Pod that failed before it had one ended too."""
        for container in self.status.containerStatuses:
            if container.name == WORKER and container.state.terminated is not None:
                return container.state.terminated
        if self.status.phase in {"Succeeded", "Failed"}:
            return Terminated(-1, self.status.reason, "")
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
