"""What to do about a job, from what is known of it, its node and its Pod.

Pure: every case is a unit test without a cluster.
"""

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from vmafx.api.job import FINISHED, JobView
from vmafx.api.node import NodeView, Runtime
from vmafx.jobs.attempts import attempt_id
from vmafx.jobs.outcomes import Fail, Leaving, Suspend, TryAgain, failed, outcome
from vmafx.jobs.pending import SCHEDULER, pause_left, scheduled
from vmafx.jobs.work import read_answer
from vmafx.operator.job.podview import PodView, Terminated
from vmafx.operator.node.decide import heard_last, is_lost, readiness

START_WITHIN = timedelta(minutes=10)
START_SOON = timedelta(seconds=30)  # after which it is told what keeps it
END_WITHIN = timedelta(seconds=30)  # beyond a Pod's own grace
CLAIM_WITHIN = timedelta(seconds=60)
MINUTES = START_WITHIN // timedelta(minutes=1)
LOOK_AGAIN = 5.0  # seconds, while something is not there that should be
PLACED: dict[Runtime, str] = {"Pod": "Placed", "Agent": "PlacedWithAgent"}  # the reason of Scheduled=True


class Nothing(msgspec.Struct, frozen=True):
    """All is as it should be; look again after so many seconds, if any."""

    after: float | None = None


class Queue(msgspec.Struct, frozen=True):
    """It waits for a node; look again after so many seconds, if any."""

    after: float | None = None


class Hold(msgspec.Struct, frozen=True):
    """It waits for something that is not a node: Scheduled=False with this reason; look again after so many seconds."""

    reason: Literal["Suspended", "Suspending", "AwaitingScheduler", "Retrying"]
    message: str
    after: float | None = None


class Adopt(msgspec.Struct, frozen=True):
    """Somebody else has placed it: run it there."""

    node: str


class MakePod(msgspec.Struct, frozen=True):
    """The attempt has no Pod, as far as this process ever saw: look for it, and make it if there is none.

    `left`: seconds until the job's deadline.
    """

    left: float | None = None


class Say(msgspec.Struct, frozen=True):
    """It goes on, and people are told what keeps it; nothing keeps it any more if that is empty."""

    message: str
    after: float | None = None


class Mirror(msgspec.Struct, frozen=True):
    """It stands as another controller says; look again after so many seconds, if any."""

    phase: Literal["Pending", "Running"]
    message: str
    after: float | None = None


Step = Nothing | Queue | Hold | Adopt | MakePod | Leaving | Say | Mirror


class Follow(msgspec.Struct, frozen=True):
    """Another controller has it, and is asked how it does. `end`: what it comes to unless there is a result already."""

    end: Fail | None = None
    left: float | None = None  # seconds until its deadline


class Around(msgspec.Struct, frozen=True):
    """What is known of a running attempt's surroundings.

    `pod` has the name of the attempt; `seen`: this process has seen that attempt's Pod before. `watched_since`:
    when it began to look after jobs, or last could not reach the server; what happened before is only known from what
    was written.
    """

    node: NodeView | None = None
    pod: PodView | None = None
    seen: bool = False
    watched_since: datetime | None = None


NOTHING_AROUND = Around()


def decide(job: JobView, now: datetime, around: Around = NOTHING_AROUND) -> Step | Follow:
    if job.metadata.deletionTimestamp is not None:
        return Nothing()
    if is_foreign(job):
        return _followed(job, now)
    return _pending(job, now) if job.status.phase == "Pending" else _running(job, now, around)


def _pending(job: JobView, now: datetime) -> Step:
    if job.spec.cancel:
        return Fail("Cancelled", "cancelled before it ran")
    if job.spec.suspend:  # with a start, the deadline would go on
        stopped = Hold("Suspended", "suspended; set spec.suspend to false to let it run")
        return stopped if job.status.startedAt is None else Suspend()
    if (left := _left(job, now)) is not None and left <= 0:
        return _too_late(job)
    if job.status.assignedNode:
        return Adopt(job.status.assignedNode)
    if job.spec.schedulerName != SCHEDULER:
        return Hold("AwaitingScheduler", f"waits for {job.spec.schedulerName} to place it", left)
    if (pause := pause_left(job, now)) > 0:
        return Hold("Retrying", _said(job) or "tried again in a moment", sooner(pause, left))
    return Queue(left)


def _running(job: JobView, now: datetime, around: Around) -> Step:
    pod = around.pod
    ours = pod if pod is not None and is_current(pod, job) else None
    if ours is not None and (ended := ours.ended()) is not None:
        return _result(job, ours, ended)
    if job.spec.cancel:  # a result that came at the same moment has won already
        return Fail("Cancelled", "cancelled while it ran")
    if job.spec.suspend:
        return Suspend()
    left = _left(job, now)
    if left is not None and left <= 0:
        return _too_late(job)
    if job.status.controllerJobID != attempt_id(job, job.status.attempts - 1):
        # Somebody else let it run, on a node that we know; or has given it back.
        node = job.status.assignedNode
        return Adopt(node) if node else TryAgain("whoever had it gave it back", failed=False)
    runtime = _runtime(job, around)
    if runtime == "Agent" or around.node is not None:  # a Pod that is there needs no VmafxNode
        there = node_for(job, around.node, runtime)
        if isinstance(there, TryAgain):
            return there
        if runtime == "Agent":
            return _with_agent(job, there, now, around.watched_since, left)
    if ours is not None:
        return _under_way(job, ours, now, left)
    return failed(job, "its Pod disappeared") if around.seen and pod is None else MakePod(left)


def _runtime(job: JobView, around: Around) -> Runtime:
    """How the attempt is run: as was said when it was placed, whatever its node has become since."""
    said = scheduled(job)
    if said is not None and said.status == "True":
        return "Agent" if said.reason == PLACED["Agent"] else "Pod"
    return "Pod" if around.seen or around.node is None else around.node.spec.runtime


def node_for(job: JobView, node: NodeView | None, runtime: Runtime) -> NodeView | TryAgain:
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


def is_foreign(job: JobView) -> bool:
    """Whether another controller has it: its controllerJobID is none that the operator gives to attempts at it."""
    uid, _, attempt = (job.status.controllerJobID or "").rpartition("-")
    return bool(job.status.controllerJobID) and not (uid == job.metadata.uid and attempt.isdecimal())


def _followed(job: JobView, now: datetime) -> Follow:
    left = _left(job, now)
    if job.spec.cancel:
        return Follow(Fail("Cancelled", "cancelled while another controller had it"))
    return Follow(_too_late(job) if left is not None and left <= 0 else None, left)


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


def sooner(first: float, second: float | None) -> float:
    return first if second is None else min(first, second)


def _left(job: JobView, now: datetime) -> float | None:
    """Seconds until the deadline, which runs from the first start over all attempts."""
    if job.spec.activeDeadlineSeconds is None or job.status.startedAt is None:
        return None
    return (job.status.startedAt - now).total_seconds() + job.spec.activeDeadlineSeconds


def _too_late(job: JobView) -> Fail:
    return Fail("DeadlineExceeded", f"not done within {job.spec.activeDeadlineSeconds} s of its start")


def _said(job: JobView) -> str:
    said = scheduled(job)
    return said.message if said else ""
