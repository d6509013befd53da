"""What to do about a job, from what is known of it, its node and its Pod.

Pure: every case is a unit test without a cluster.
"""

from datetime import datetime, timedelta

import msgspec

from vmafx.api.job import FINISHED, JobView
from vmafx.api.node import NodeView, Runtime
from vmafx.jobs.attempts import attempt_id
from vmafx.jobs.outcomes import Fail, Suspend, TryAgain, failed, outcome, too_late
from vmafx.jobs.pending import deadline_left, held, scheduled
from vmafx.jobs.work import read_answer
from vmafx.operator.job.foreign import Elsewhere, judge
from vmafx.operator.job.podview import PodView, Terminated
from vmafx.operator.job.steps import (
    LOOK_AGAIN,
    AwaitName,
    CreatePod,
    Hold,
    Misplace,
    Nothing,
    Place,
    Queue,
    Say,
    Step,
    sooner,
)
from vmafx.operator.node.decide import heard_last, is_lost, readiness
from vmafx.scheduling.scheduler import POD_ONLY

START_WITHIN = timedelta(minutes=10)
START_SOON = timedelta(seconds=30)  # after which it is told what keeps it
END_WITHIN = timedelta(seconds=30)  # beyond a Pod's own grace
CLAIM_WITHIN = timedelta(seconds=60)
MINUTES = START_WITHIN // timedelta(minutes=1)
PLACED: dict[Runtime, str] = {"Pod": "Placed", "Agent": "PlacedWithAgent"}  # the reason of Scheduled=True


class Situation(msgspec.Struct, frozen=True):
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
    elsewhere: Elsewhere | None = None


NOTHING_KNOWN = Situation()


def decide(job: JobView, now: datetime, situation: Situation = NOTHING_KNOWN) -> Step:
    if job.metadata.deletionTimestamp is not None:
        return Nothing()
    if situation.elsewhere is not None:
        return judge(job, situation.elsewhere)
    return _pending(job, now, situation) if job.status.phase == "Pending" else _running(job, now, situation)


def _pending(job: JobView, now: datetime, situation: Situation) -> Step:
    left, hold = deadline_left(job, now), held(job, now)
    if hold is None:
        return Queue(left) if situation.place is None else _placed(job, situation.place, situation.node)
    match hold.reason:
        case "Cancelled":
            return Fail("Cancelled", "cancelled before it ran")
        case "Suspended":  # with a start, the deadline would go on
            return Hold("Suspended", hold.message) if job.status.startedAt is None else Suspend()
        case "DeadlineExceeded":
            return too_late(job)
        case "Placed":
            return _placed(job, job.status.assignedNode, situation.node)
        case "AwaitingScheduler" | "Retrying":
            return Hold(hold.reason, hold.message, sooner(hold.after, left))


def _placed(job: JobView, name: str | None, node: NodeView | None) -> Place | Misplace:
    """On the node of this name, if that is there and can take it."""
    if node is None or name is None:  # gone since, or named by somebody else and not there yet
        return Misplace("NoNodes", f"there is no VmafxNode {name}")
    if node.spec.runtime == "Agent" and job.spec.credentialsSecretRef is not None:
        return Misplace(*POD_ONLY)  # named by somebody else, or changed since
    return Place(name)


def _running(job: JobView, now: datetime, situation: Situation) -> Step:
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
        return too_late(job)
    if not runs_here(job):  # somebody else let it run, on a node that we know; or has given it back
        name = job.status.assignedNode
        return _placed(job, name, situation.node) if name else TryAgain("whoever had it gave it back", failed=False)
    runtime = runtime_of(job, situation)
    if runtime == "Agent" or situation.node is not None:  # a Pod that is there needs no VmafxNode
        there = _node_for(job, situation.node, runtime)
        if isinstance(there, TryAgain):
            return there
        if runtime == "Agent":
            return _with_agent(job, there, now, situation.watched_since, left)
    if ours is not None:
        return _under_way(job, ours, now, left)
    return _without_pod(job, situation, left)


def _without_pod(job: JobView, situation: Situation, left: float | None) -> Step:
    """The cache and, where it may lag, the server have no Pod of this attempt."""
    if situation.seen and situation.pod is None:
        return failed(job, "its Pod disappeared")
    there = _node_for(job, situation.node, "Pod")
    if isinstance(there, TryAgain):
        return there
    if situation.made_ago is not None:
        just_now = situation.made_ago < LOOK_AGAIN
        return Nothing(sooner(LOOK_AGAIN, left)) if just_now else failed(job, "its Pod disappeared")
    return CreatePod(left) if situation.pod is None else AwaitName(left)


def runs_here(job: JobView) -> bool:
    """Whether the attempt that runs is one of the operator's own."""
    return job.status.controllerJobID == attempt_id(job, job.status.attempts - 1)


def runtime_of(job: JobView, situation: Situation) -> Runtime:
    """How the attempt is run: as was said when it was placed, whatever its node has become since."""
    said = scheduled(job)
    if said is not None and said.status == "True":
        return "Agent" if said.reason == PLACED["Agent"] else "Pod"
    return "Pod" if situation.seen or situation.node is None else situation.node.spec.runtime


def _node_for(job: JobView, node: NodeView | None, runtime: Runtime) -> NodeView | TryAgain:
    """Its node, if the attempt can be run there as it was to be; where it cannot, that is nobody's failure."""
    name = job.status.assignedNode
    if node is None:
        return TryAgain(f"its node {name} is gone", failed=False)
    if node.spec.runtime != runtime:
        now = "has an agent run its jobs" if runtime == "Pod" else "runs its jobs as Pods"
        return TryAgain(f"its node {name} now {now}", failed=False)
    return node


def _with_agent(
    job: JobView, node: NodeView, now: datetime, watched_since: datetime | None, left: float | None
) -> Step:
    if is_lost(node):
        return failed(job, f"its node {node.metadata.name} has not been heard of since {heard_last(node)}")
    if job.status.claimedAt is not None:
        return Nothing(left)
    since = _claimable_since(job, node, watched_since)
    if since is None:
        return Nothing(left)  # its node's change brings us back
    over = (since + CLAIM_WITHIN - now).total_seconds()
    if over <= 0:
        within = CLAIM_WITHIN // timedelta(seconds=1)
        why = f"its agent {node.metadata.name} did not take it within {within} s"
        return TryAgain(why, failed=False) if node.status.draining else failed(job, why)
    return Nothing(sooner(over, left))


def _claimable_since(job: JobView, node: NodeView, watched_since: datetime | None) -> datetime | None:
    """Since when its agent could have said that it took the job, for all we know; None while it cannot.

    That a controller is away must not move jobs, nor that it comes back. What we did not watch ourselves does not count
    either: it may have been away while we were.
    """
    if node.status.healthy is not True:
        return None
    placed, ready = scheduled(job), readiness(node)
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


def goes_on(pod: PodView) -> bool:
    """Whether anything of it still runs, be it only what others put beside our worker."""
    return pod.status.phase not in FINISHED and pod.metadata.deletionTimestamp is None


def is_left_over(pod: PodView, job: JobView) -> bool:
    """Whether it is of an attempt that the job has given up. One that the job does not know yet is none of these."""
    attempt = _attempt_of(pod, job)
    if attempt is None or attempt >= job.status.attempts:
        return False
    return job.status.phase in FINISHED or not is_current(pod, job)


def _result(job: JobView, pod: PodView, ended: Terminated) -> Step:
    answer = read_answer(ended.message, job.status.controllerJobID or "")
    if pod.disrupted() and (answer is None or answer.fault not in {None, "BadInput"}):
        return TryAgain("the cluster took its Pod away", failed=False)  # whatever a worker that was stopped says of it
    if answer is not None:
        return outcome(job, answer)
    if pod.metadata.deletionTimestamp is not None:
        return failed(job, "its Pod was deleted while it ran")
    reason = ended.reason or pod.status.reason or "no reason given"
    if ended.exitCode == 0:
        return failed(job, "the worker ended well and left no answer that makes sense")
    return failed(job, f"the worker ended with exit code {ended.exitCode} ({reason}) and left no answer")


def _under_way(job: JobView, pod: PodView, now: datetime, left: float | None) -> Step:
    if pod.metadata.deletionTimestamp is not None:
        over = (pod.metadata.deletionTimestamp + END_WITHIN - now).total_seconds()
        if over > 0:
            return Nothing(sooner(over, left))
        if pod.disrupted():
            return TryAgain("the cluster took its Pod away", failed=False)
        return failed(job, "its Pod was deleted and does not end")
    since = pod.could_start_since()
    if pod.status.phase != "Pending" or since is None:
        return Say("", left) if job.status.message else Nothing(left)
    over, told = ((since + time - now).total_seconds() for time in (START_WITHIN, START_SOON))
    if over <= 0:
        return failed(job, f"its Pod did not start within {MINUTES} minutes ({pod.waits_for()})")
    if told <= 0 and not job.status.message:
        return Say(f"its Pod has not started: {pod.waits_for()}", sooner(over, left))
    return Nothing(sooner(told if told > 0 else over, left))
