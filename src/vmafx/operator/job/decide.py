"""What to do about a job, from what is known of it, its node and its Pod.

Pure: every case is a unit test without a cluster.
"""

from datetime import datetime, timedelta

import msgspec

from vmafx.api.job import FINISHED, JobView
from vmafx.api.node import NodeView, Runtime
from vmafx.jobs.attempt import decode_result
from vmafx.jobs.outcome import Fail, Retry, Suspend, deadline_exceeded, failed_attempt, outcome_of
from vmafx.jobs.state import attempt_id, deadline_left, scheduled_condition, scheduling_gate
from vmafx.operator.job.foreign import ForeignState, decide_foreign
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
from vmafx.operator.node.decide import is_lost, last_heartbeat, readiness
from vmafx.scheduling.scheduler import POD_ONLY

START_TIMEOUT = timedelta(minutes=10)
START_GRACE = timedelta(seconds=30)  # after which it is told what keeps it
END_TIMEOUT = timedelta(seconds=30)  # beyond a Pod's own grace
CLAIM_TIMEOUT = timedelta(seconds=60)
MINUTES = START_TIMEOUT // timedelta(minutes=1)
PLACED: dict[Runtime, str] = {"Pod": "Placed", "Agent": "PlacedWithAgent"}  # the reason of Scheduled=True


class Observation(msgspec.Struct, frozen=True):
    """All that is known about a job beside the job itself.

    node           its node, or the one that it is to be given
    place          the name of the node that the scheduler gives it, while it is Pending
    pod            a Pod with the name of its current attempt
    seen           this process has seen that attempt's Pod before
    made_ago       seconds since this process made that attempt's Pod; None if it did not
    watched_since  when this process began to look after jobs, or last could not reach the server; what happened
                   before is only known from what was written
    elsewhere      what is known of it at another controller, if that has it
    """

    node: NodeView | None = None
    place: str | None = None
    pod: PodView | None = None
    seen: bool = False
    made_ago: float | None = None
    watched_since: datetime | None = None
    elsewhere: ForeignState | None = None


NO_OBSERVATION = Observation()


def decide(job: JobView, now: datetime, situation: Observation = NO_OBSERVATION) -> Step:
    if job.metadata.deletionTimestamp is not None:
        return NoAction()
    if situation.elsewhere is not None:
        return decide_foreign(job, situation.elsewhere)
    return _pending(job, now, situation) if job.status.phase == "Pending" else _running(job, now, situation)


def _pending(job: JobView, now: datetime, situation: Observation) -> Step:
    left, hold = deadline_left(job, now), scheduling_gate(job, now)
    if hold is None:
        return Enqueue(left) if situation.place is None else _placed(job, situation.place, situation.node)
    match hold.reason:
        case "Cancelled":
            return Fail("Cancelled", "cancelled before it ran")
        case "Suspended":  # with a start, the deadline would go on
            return KeepPending("Suspended", hold.message) if job.status.startedAt is None else Suspend()
        case "DeadlineExceeded":
            return deadline_exceeded(job)
        case "Placed":
            return _placed(job, job.status.assignedNode, situation.node)
        case "AwaitingScheduler" | "Retrying":
            return KeepPending(hold.reason, hold.message, earlier(hold.after, left))


def _placed(job: JobView, name: str | None, node: NodeView | None) -> PlaceOn | RejectPlacement:
    """On the node of this name, if that is there and can take it."""
    if node is None or name is None:  # gone since, or named by somebody else and not there yet
        return RejectPlacement("NoNodes", f"there is no VmafxNode {name}")
    if node.spec.runtime == "Agent" and job.spec.credentialsSecretRef is not None:
        return RejectPlacement(*POD_ONLY)  # named by somebody else, or changed since
    return PlaceOn(name)


def _running(job: JobView, now: datetime, situation: Observation) -> Step:
    pod = situation.pod
    ours = pod if pod is not None and is_current(pod, job) else None
    if ours is not None and (ended := ours.ended()) is not None:
        return _result(job, ours, ended)
    if job.spec.cancel:  # a result that came at the same moment has won already
        return Fail("Cancelled", "cancelled while it ran")
    if job.spec.suspend:
        return Suspend()
    left = deadline_left(job, now)
    if left is not None and left <= 0:
        return deadline_exceeded(job)
    if not runs_here(job):  # somebody else let it run, on a node that we know; or has given it back
        name = job.status.assignedNode
        return _placed(job, name, situation.node) if name else Retry("whoever had it gave it back", failed=False)
    runtime = runtime_of(job, situation)
    if runtime == "Agent" or situation.node is not None:  # a Pod that is there needs no VmafxNode
        there = _node_for(job, situation.node, runtime)
        if isinstance(there, Retry):
            return there
        if runtime == "Agent":
            return _with_agent(job, there, now, situation.watched_since, left)
    if ours is not None:
        return _under_way(job, ours, now, left)
    return _without_pod(job, situation, left)


def _without_pod(job: JobView, situation: Observation, left: float | None) -> Step:
    """The cache and, where it may lag, the server have no Pod of this attempt."""
    if situation.seen and situation.pod is None:
        return failed_attempt(job, "its Pod disappeared")
    there = _node_for(job, situation.node, "Pod")
    if isinstance(there, Retry):
        return there
    if situation.made_ago is not None:
        just_now = situation.made_ago < RECHECK_INTERVAL
        return NoAction(earlier(RECHECK_INTERVAL, left)) if just_now else failed_attempt(job, "its Pod disappeared")
    return CreatePod(left) if situation.pod is None else WaitForPodName(left)


def runs_here(job: JobView) -> bool:
    """Whether the attempt that runs is one of the operator's own."""
    return job.status.controllerJobID == attempt_id(job, job.status.attempts - 1)


def runtime_of(job: JobView, situation: Observation) -> Runtime:
    """How the attempt is run: as was said when it was placed, whatever its node has become since."""
    said = scheduled_condition(job)
    if said is not None and said.status == "True":
        return "Agent" if said.reason == PLACED["Agent"] else "Pod"
    return "Pod" if situation.seen or situation.node is None else situation.node.spec.runtime


def _node_for(job: JobView, node: NodeView | None, runtime: Runtime) -> NodeView | Retry:
    """Its node, if the attempt can be run there as it was to be; where it cannot, that is nobody's failure."""
    name = job.status.assignedNode
    if node is None:
        return Retry(f"its node {name} is gone", failed=False)
    if node.spec.runtime != runtime:
        now = "has an agent run its jobs" if runtime == "Pod" else "runs its jobs as Pods"
        return Retry(f"its node {name} now {now}", failed=False)
    return node


def _with_agent(
    job: JobView, node: NodeView, now: datetime, watched_since: datetime | None, left: float | None
) -> Step:
    if is_lost(node):
        return failed_attempt(job, f"its node {node.metadata.name} has not been heard of since {last_heartbeat(node)}")
    if job.status.claimedAt is not None:
        return NoAction(left)
    since = _claimable_since(job, node, watched_since)
    if since is None:
        return NoAction(left)  # its node's change brings us back
    over = (since + CLAIM_TIMEOUT - now).total_seconds()
    if over <= 0:
        within = CLAIM_TIMEOUT // timedelta(seconds=1)
        why = f"its agent {node.metadata.name} did not take it within {within} s"
        return Retry(why, failed=False) if node.status.draining else failed_attempt(job, why)
    return NoAction(earlier(over, left))


def _claimable_since(job: JobView, node: NodeView, watched_since: datetime | None) -> datetime | None:
    """Since when its agent could have said that it took the job, for all we know; None while it cannot.

    That a controller is away must not move jobs, nor that it comes back. What we did not watch ourselves does not count
    either: it may have been away while we were.
    """
    if node.status.healthy is not True:
        return None
    placed, ready = scheduled_condition(job), readiness(node)
    times = (
        placed.lastTransitionTime if placed is not None and placed.status == "True" else job.status.startedAt,
        ready.lastTransitionTime if ready is not None and ready.status == "True" else None,
        watched_since,
    )
    return max((time for time in times if time is not None), default=None)


def is_current(pod: PodView, job: JobView) -> bool:
    """Whether it is the Pod of the attempt that counts."""
    attempt = _attempt_of(pod, job)
    return attempt is not None and attempt_id(job, attempt) == job.status.controllerJobID


def _attempt_of(pod: PodView, job: JobView) -> int | None:
    """Which attempt at this job it is; None if it is none of this job's."""
    owned = any(owner.uid == job.metadata.uid for owner in pod.metadata.ownerReferences)
    attempt = pod.metadata.labels.attempt
    return int(attempt) if owned and attempt.isdecimal() else None


def is_active(pod: PodView) -> bool:
    """Whether anything of it still runs, be it only what others put beside our worker."""
    return pod.status.phase not in FINISHED and pod.metadata.deletionTimestamp is None


def is_stale(pod: PodView, job: JobView) -> bool:
    """Whether it is of an attempt that the job has given up. One that the job does not know yet is none of these."""
    attempt = _attempt_of(pod, job)
    if attempt is None or attempt >= job.status.attempts:
        return False
    return job.status.phase in FINISHED or not is_current(pod, job)


def _result(job: JobView, pod: PodView, ended: ContainerTerminated) -> Step:
    answer = decode_result(ended.message, job.status.controllerJobID or "")
    if pod.disrupted() and (answer is None or answer.fault not in {None, "BadInput"}):
        return Retry("the cluster took its Pod away", failed=False)  # whatever a worker that was stopped says of it
    if answer is not None:
        return outcome_of(job, answer)
    if pod.metadata.deletionTimestamp is not None:
        return failed_attempt(job, "its Pod was deleted while it ran")
    reason = ended.reason or pod.status.reason or "no reason given"
    if ended.exitCode == 0:
        return failed_attempt(job, "the worker ended well and left no answer that makes sense")
    return failed_attempt(job, f"the worker ended with exit code {ended.exitCode} ({reason}) and left no answer")


def _under_way(job: JobView, pod: PodView, now: datetime, left: float | None) -> Step:
    if pod.metadata.deletionTimestamp is not None:
        over = (pod.metadata.deletionTimestamp + END_TIMEOUT - now).total_seconds()
        if over > 0:
            return NoAction(earlier(over, left))
        if pod.disrupted():
            return Retry("the cluster took its Pod away", failed=False)
        return failed_attempt(job, "its Pod was deleted and does not end")
    since = pod.could_start_since()
    if pod.status.phase != "Pending" or since is None:
        return SetMessage("", left) if job.status.message else NoAction(left)
    over, told = ((since + time - now).total_seconds() for time in (START_TIMEOUT, START_GRACE))
    if over <= 0:
        return failed_attempt(job, f"its Pod did not start within {MINUTES} minutes ({pod.waits_for()})")
    if told <= 0 and not job.status.message:
        return SetMessage(f"its Pod has not started: {pod.waits_for()}", earlier(over, left))
    return NoAction(earlier(told if told > 0 else over, left))
