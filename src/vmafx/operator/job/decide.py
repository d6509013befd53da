"""Decides the next step for a job from its spec and status and what was gathered about it.

Pure: every case is a unit test without a cluster.
"""

from datetime import timedelta

import msgspec

from vmafx.api.job import FINISHED, JobView
from vmafx.api.node import NodeView, Runtime
from vmafx.jobs.attempt import decode_result
from vmafx.jobs.outcome import Fail, Retry, Suspend, deadline_exceeded, failed_attempt, outcome_of
from vmafx.jobs.state import Age, attempt_id, deadline_left, placed_at, queue_gate, scheduled_condition
from vmafx.operator.job.external.decide import ExternalState, decide_external
from vmafx.operator.job.pod_cache import ContainerTerminated, PodView
from vmafx.operator.job.steps import (
    RECHECK_INTERVAL,
    CreatePod,
    Enqueue,
    KeepPending,
    NoAction,
    PlaceOn,
    RejectPlacement,
    SetMessage,
    Step,
    WaitForPodName,
    earlier,
)
from vmafx.operator.node.decide import heartbeat_text, is_lost, readiness
from vmafx.scheduling.scheduler import POD_ONLY

START_TIMEOUT = timedelta(minutes=10)  # for the Pod to be created, and then to start once it is not gated
START_TIMEOUT_MINUTES = START_TIMEOUT // timedelta(minutes=1)
START_GRACE = timedelta(seconds=30)  # after which status.message says what delays the Pod
END_TIMEOUT = timedelta(seconds=30)  # beyond the Pod's own termination grace period
CLAIM_TIMEOUT = timedelta(seconds=60)  # from a placement until the agent claims the job
PLACED: dict[Runtime, str] = {"Pod": "Placed", "Agent": "PlacedWithAgent"}  # the reason of Scheduled=True
DISRUPTED = Retry("its Pod was disrupted by the cluster (drain, preemption or shutdown)", failed=False)


class Observation(msgspec.Struct, frozen=True):
    """What is known about a job besides the job itself and the ages of its times.

    node             the node of the current attempt, or the one chosen for the next
    placement        the name of the node that the scheduler chose, while the job is Pending
    pod              the Pod with the name of the current attempt's Pod; may belong to another owner
    pod_seen         this process has seen the current attempt's Pod
    gone_pod         the last state of that Pod, if it was deleted since: it may have ended just before
    pod_created_ago  seconds since this process created that Pod; None if it did not
    watched_for      seconds since this process became leader, or last failed to reach the API server. Earlier events
                     are known only from the status of objects
    external         the state reported by the external controller that has the job, if any
    """

    node: NodeView | None = None
    placement: str | None = None
    pod: PodView | None = None
    pod_seen: bool = False
    gone_pod: PodView | None = None
    pod_created_ago: float | None = None
    watched_for: float | None = None
    external: ExternalState | None = None


NO_OBSERVATION = Observation()


def decide(job: JobView, age: Age, observed: Observation = NO_OBSERVATION) -> Step:
    if job.metadata.deletionTimestamp is not None:
        return NoAction()
    if observed.external is not None:
        return decide_external(job, observed.external)
    return _decide_pending(job, age, observed) if job.status.phase == "Pending" else _decide_running(job, age, observed)


def _decide_pending(job: JobView, age: Age, observed: Observation) -> Step:
    left, gate = deadline_left(job, age), queue_gate(job, age)
    if gate is None:
        return Enqueue(left) if observed.placement is None else _place(job, observed.placement, observed.node)
    match gate.reason:
        case "Cancelled":
            return Fail("Cancelled", "cancelled before it ran")
        case "Suspended":  # Suspend clears startedAt, so that the deadline stops counting
            return KeepPending("Suspended", gate.message) if job.status.startedAt is None else Suspend()
        case "DeadlineExceeded":
            return deadline_exceeded(job)
        case "Placed":
            return _place(job, job.status.assignedNode, observed.node)
        case "AwaitingScheduler" | "Retrying":
            return KeepPending(gate.reason, gate.message, earlier(gate.after, left))


def _place(job: JobView, name: str | None, node: NodeView | None) -> PlaceOn | RejectPlacement:
    """Place the job on the node of this name, if it exists and can run the job."""
    if node is None or name is None:  # deleted since, or named by another scheduler and not created yet
        return RejectPlacement("NoNodes", f"there is no VmafxNode {name}")
    if node.spec.runtime == "Agent" and job.spec.credentialsSecretRef is not None:
        return RejectPlacement(*POD_ONLY)  # chosen by another scheduler, or the runtime changed since
    return PlaceOn(name)


def _decide_running(job: JobView, age: Age, observed: Observation) -> Step:
    pod = observed.pod if observed.pod is not None and is_current(observed.pod, job) else None
    last = pod or (observed.gone_pod if is_own_attempt(job) else None)
    if last is not None and (terminated := last.termination()) is not None:  # before cancel: a result takes precedence
        return _decide_result(job, last, terminated)
    if job.spec.cancel:
        return Fail("Cancelled", "cancelled while it ran")
    if job.spec.suspend:
        return Suspend()
    left = deadline_left(job, age)
    if left is not None and left <= 0:
        return deadline_exceeded(job)
    if not is_own_attempt(job):  # another scheduler set the phase, with or without a node
        name = job.status.assignedNode
        return (
            _place(job, name, observed.node)
            if name
            else Retry("its phase was Running, but it had neither a node nor an attempt", failed=False)
        )
    runtime = attempt_runtime(job, observed)
    if runtime == "Agent" or observed.node is not None:  # a Pod keeps running without its VmafxNode
        node = _usable_node(job, observed.node, runtime)
        if isinstance(node, Retry):
            return node
        if runtime == "Agent":
            return _decide_agent(job, node, age, observed.watched_for, left)
    if pod is not None:
        return _decide_unfinished_pod(job, pod, age, observed.pod_created_ago, left)
    return _decide_missing_pod(job, observed, left)


def _decide_result(job: JobView, pod: PodView, terminated: ContainerTerminated) -> Step:
    result = decode_result(terminated.message, job.status.controllerJobID or "")
    if result is None or result.fault not in {None, "BadInput"}:  # the fault of a stopped worker is a consequence
        if pod.is_evicted():
            why = pod.status.message.strip() or "the kubelet gave no reason"
            return failed_attempt(job, f"its Pod was evicted: {why}")
        if pod.is_disrupted():
            return DISRUPTED
    if result is not None:
        return outcome_of(job, result)
    if pod.metadata.deletionTimestamp is not None:
        return failed_attempt(job, "its Pod was deleted while it ran")
    if terminated.exitCode == 0:
        return failed_attempt(job, "the worker exited with code 0 but left no valid result")
    reason = terminated.reason or pod.status.reason or "no reason given"
    return failed_attempt(job, f"the worker exited with code {terminated.exitCode} ({reason}) and left no result")


def _usable_node(job: JobView, node: NodeView | None, runtime: Runtime) -> NodeView | Retry:
    """The node, if it still exists and has the attempt's runtime. If not, the attempt does not count as failed."""
    name = job.status.assignedNode
    if node is None:
        return Retry(f"its node {name} was deleted", failed=False)
    if node.spec.runtime != runtime:
        return Retry(f"spec.runtime of its node {name} changed to {node.spec.runtime}", failed=False)
    return node


def _decide_agent(job: JobView, node: NodeView, age: Age, watched_for: float | None, left: float | None) -> Step:
    if is_lost(node):
        return failed_attempt(job, f"its node {node.metadata.name} has sent no heartbeat since {heartbeat_text(node)}")
    if job.status.claimedAt is not None:
        return NoAction(left)
    claimable_for = _claimable_for(job, node, age, watched_for)
    if claimable_for is None:
        return NoAction(left)  # a change of the node triggers the next reconciliation
    claim_left = CLAIM_TIMEOUT.total_seconds() - claimable_for
    if claim_left > 0:
        return NoAction(earlier(claim_left, left))
    message = f"agent {node.metadata.name} did not claim it within {CLAIM_TIMEOUT // timedelta(seconds=1)} s"
    return Retry(message, failed=False) if node.status.draining else failed_attempt(job, message)


def _claimable_for(job: JobView, node: NodeView, age: Age, watched_for: float | None) -> float | None:
    """For how many seconds the agent could have claimed the job; None while it cannot.

    An outage of the controller must not move jobs. Only the last `watched_for` seconds count, because the controller
    may have been down while this process was not watching.
    """
    if node.status.healthy is not True:
        return None
    ready = readiness(node)
    times = (placed_at(job), ready.lastTransitionTime if ready is not None and ready.status == "True" else None)
    ages = [*(age(time) for time in times if time is not None), *([] if watched_for is None else [watched_for])]
    return min(ages, default=None)


def _decide_unfinished_pod(job: JobView, pod: PodView, age: Age, created_ago: float | None, left: float | None) -> Step:
    if (deleted := pod.deletion()) is not None:
        end_left = (deleted.grace + END_TIMEOUT).total_seconds() - age(deleted.requested)
        if end_left > 0:
            return NoAction(earlier(end_left, left))
        return DISRUPTED if pod.is_disrupted() else failed_attempt(job, "its Pod was deleted but does not terminate")
    startable_for = pod.startable_for(age) if pod.status.phase == "Pending" else None
    if startable_for is None:
        return SetMessage("", left) if job.status.message else NoAction(left)
    if created_ago is not None:  # the clock of the API server may be behind
        startable_for = min(startable_for, created_ago)
    start_left, grace_left = (time.total_seconds() - startable_for for time in (START_TIMEOUT, START_GRACE))
    if start_left <= 0:
        message = f"its Pod did not start within {START_TIMEOUT_MINUTES} minutes ({pod.waiting_reason()})"
        return failed_attempt(job, message)
    if grace_left <= 0 and not job.status.message:
        return SetMessage(f"its Pod has not started: {pod.waiting_reason()}", earlier(start_left, left))
    return NoAction(earlier(grace_left if grace_left > 0 else start_left, left))


def _decide_missing_pod(job: JobView, observed: Observation, left: float | None) -> Step:
    """The cache has no Pod of this attempt, nor has the API server where the cache may lag."""
    if observed.pod_seen and observed.pod is None:
        disrupted = observed.gone_pod is not None and observed.gone_pod.is_disrupted()
        return DISRUPTED if disrupted else failed_attempt(job, "its Pod disappeared")
    node = _usable_node(job, observed.node, "Pod")
    if isinstance(node, Retry):
        return node
    if observed.pod_created_ago is None:
        return CreatePod(left) if observed.pod is None else WaitForPodName(left)
    if observed.pod_created_ago < RECHECK_INTERVAL:
        return NoAction(earlier(RECHECK_INTERVAL, left))
    return failed_attempt(job, "its Pod disappeared")


def is_own_attempt(job: JobView) -> bool:
    """Whether the operator started the current attempt."""
    return job.status.controllerJobID == attempt_id(job, job.status.attempts - 1)


def attempt_runtime(job: JobView, observed: Observation) -> Runtime:
    """The runtime of the attempt: the one recorded at its placement, even if the node's changed since."""
    scheduled = scheduled_condition(job)
    if scheduled is not None and scheduled.status == "True":
        return "Agent" if scheduled.reason == PLACED["Agent"] else "Pod"
    return "Pod" if observed.pod_seen or observed.node is None else observed.node.spec.runtime


def is_current(pod: PodView, job: JobView) -> bool:
    """Whether the Pod belongs to the job's current attempt."""
    attempt = _attempt_number(pod, job)
    return attempt is not None and attempt_id(job, attempt) == job.status.controllerJobID


def is_active(pod: PodView) -> bool:
    """Whether any container of the Pod, also a sidecar, may still run."""
    return pod.status.phase not in FINISHED and pod.metadata.deletionTimestamp is None


def is_stale(pod: PodView, job: JobView) -> bool:
    """Whether the Pod belongs to an attempt that the job has given up.

    Attempts newer than the cached job are not stale: the cache lags behind.
    """
    attempt = _attempt_number(pod, job)
    if attempt is None or attempt >= job.status.attempts:
        return False
    return job.status.phase in FINISHED or not is_current(pod, job)


def _attempt_number(pod: PodView, job: JobView) -> int | None:
    """The number of the Pod's attempt; None if the job does not own the Pod."""
    owned = any(owner.uid == job.metadata.uid for owner in pod.metadata.ownerReferences)
    attempt = pod.metadata.labels.attempt
    return int(attempt) if owned and attempt.isdecimal() else None
