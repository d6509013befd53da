"""Every turn that a job can take, without a cluster."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from vmafx.api.job import JobSpecView, JobStatusView, JobView
from vmafx.api.meta import Condition, LocalSecretRef, MetaView
from vmafx.api.node import NodeStatusView, NodeView, VmafxNodeSpec
from vmafx.jobs.attempt import AttemptResult, encode_result
from vmafx.jobs.outcome import Fail, Retry, Succeed, Suspend
from vmafx.jobs.state import is_foreign
from vmafx.operator.job import status
from vmafx.operator.job.decide import PLACED, Observation, decide
from vmafx.operator.job.foreign import FollowIntent, ForeignReplies, ForeignReply, ForeignState, follow_intent
from vmafx.operator.job.pod_cache import (
    ContainerState,
    ContainerStatus,
    ContainerTerminated,
    ContainerWaiting,
    PodCondition,
    PodLabels,
    PodMeta,
    PodOwner,
    PodSpec,
    PodStatus,
    PodView,
)
from vmafx.operator.job.steps import (
    RECHECK_INTERVAL,
    CreatePod,
    Enqueue,
    KeepPending,
    MirrorForeign,
    NoAction,
    PlaceOn,
    RejectPlacement,
    SetMessage,
    Step,
    WaitForPodName,
)
from vmafx.scheduling.scheduler import POD_ONLY

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
SCORED = AttemptResult("u1-0", 93.2, 300)
SUSPENDED = KeepPending("Suspended", "suspended; set spec.suspend to false to let it run")
BAD = AttemptResult("u1-0", fault="BadInput", message="distorted: no")


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def pending(spec: dict[str, Any] | None = None, **status: Any) -> JobView:
    meta = MetaView("clip", "x", "u1")
    return JobView(meta, JobSpecView("s3://b/r", "s3://b/d", **(spec or {})), JobStatusView(**status))


def running(spec: dict[str, Any] | None = None, **status: Any) -> JobView:
    usual = {"phase": "Running", "assignedNode": "n", "controllerJobID": "u1-0", "startedAt": ago(60), "attempts": 1}
    return pending(spec, **(usual | status))


def pod(phase: str = "Running", *, ended: ContainerTerminated | None = None, **changes: Any) -> PodView:
    status: dict[str, Any] = {"phase": phase}
    status["containerStatuses"] = (ContainerStatus("worker", ContainerState(terminated=ended)),) if ended else ()
    status |= changes.pop("status", {})
    meta: dict[str, Any] = {
        "labels": PodLabels("clip", "0"),
        "ownerReferences": (PodOwner("u1"),),
        "creationTimestamp": ago(30),
    } | changes
    return PodView(PodMeta("clip-0", "x", "p1", **meta), PodSpec("k8s-1"), PodStatus(**status))


def said(answer: AttemptResult, code: int = 0) -> PodView:
    return pod(
        "Succeeded" if code == 0 else "Failed", ended=ContainerTerminated(code, "Error", encode_result(answer).decode())
    )


def look(job: JobView, found: PodView | None = None, *, seen: bool = True, **known: Any) -> Step:
    return decide(job, NOW, Observation(pod=found, seen=seen, **known))


def condition(reason: str, at: datetime) -> tuple[Condition, ...]:
    return (Condition("Scheduled", "False", at, reason, "EngineFailure: no luck"),)


@pytest.mark.parametrize(
    ("job", "step"),
    [
        (pending(), Enqueue()),
        (pending({"cancel": True}), Fail("Cancelled", "cancelled before it ran")),
        (pending({"suspend": True}), SUSPENDED),
        (pending({"cancel": True, "suspend": True}), Fail("Cancelled", "cancelled before it ran")),
        (
            pending({"schedulerName": "other"}),
            KeepPending("AwaitingScheduler", "waiting for scheduler other to place it"),
        ),
        (pending({"schedulerName": "other"}, assignedNode="n"), PlaceOn("n")),
        (pending(assignedNode="n"), PlaceOn("n")),
        (
            pending({"suspend": True}, assignedNode="n"),
            KeepPending("Suspended", "suspended; set spec.suspend to false to let it run"),
        ),
        (pending(controllerJobID="u1-0"), Enqueue()),  # one of ours, and no longer anywhere
        (
            pending({"activeDeadlineSeconds": 60}, startedAt=ago(61)),
            Fail("DeadlineExceeded", "not finished within 60 s of its start"),
        ),
        (pending({"activeDeadlineSeconds": 60}), Enqueue()),  # it has not started, so nothing runs out
        (
            pending(failures=2, attempts=2, conditions=condition("Retrying", ago(5))),
            KeepPending("Retrying", "EngineFailure: no luck", 15.0),
        ),
        (pending(failures=2, attempts=2, conditions=condition("Retrying", ago(20))), Enqueue()),
        (
            pending(failures=9, conditions=condition("Retrying", ago(0))),
            KeepPending("Retrying", "EngineFailure: no luck", 300.0),
        ),
        (pending(failures=1, conditions=condition("InsufficientCapacity", ago(0))), Enqueue()),
        (pending(failures=5000, conditions=condition("Retrying", ago(301))), Enqueue()),
        (  # the clock was set back
            pending(failures=1, attempts=1, conditions=condition("Retrying", ago(-86400))),
            KeepPending("Retrying", "EngineFailure: no luck", 10.0),
        ),
        (  # taken away three times, which was nobody's fault
            pending(attempts=3, conditions=condition("Retrying", ago(1))),
            KeepPending("Retrying", "EngineFailure: no luck", 3.0),
        ),
        (pending({"suspend": True, "activeDeadlineSeconds": 60}, startedAt=ago(61)), Suspend()),
    ],
)
def test_pending(job: JobView, step: Step) -> None:
    assert look(job, node=node("Pod")) == step


@pytest.mark.parametrize(
    ("job", "found", "step"),
    [
        (running(), pod(), NoAction()),
        (running({"activeDeadlineSeconds": 100}), pod(), NoAction(40.0)),
        (running(), said(SCORED), Succeed(SCORED)),
        (running({"cancel": True}), said(SCORED), Succeed(SCORED)),  # the result wins
        (running({"suspend": True}), said(SCORED), Succeed(SCORED)),
        (running({"cancel": True}), pod(), Fail("Cancelled", "cancelled while it ran")),
        (running({"cancel": True}), None, Fail("Cancelled", "cancelled while it ran")),
        (running({"suspend": True}), pod(), Suspend()),
        (
            running({"activeDeadlineSeconds": 60}),
            pod(),
            Fail("DeadlineExceeded", "not finished within 60 s of its start"),
        ),
        (
            running(),
            said(AttemptResult("u1-0", fault="BadInput", message="distorted: no"), 2),
            Fail("BadInput", "distorted: no"),
        ),
        (running(), said(AttemptResult("u1-0", fault="NodeFault", message="no disk"), 4), Retry("NodeFault: no disk")),
        (running(), said(AttemptResult("u1-0", fault="EngineFailure", message="oh"), 3), Retry("EngineFailure: oh")),
        (
            running({"retryLimit": 0}),
            said(AttemptResult("u1-0", fault="NodeFault", message="no disk"), 4),
            Fail("RetriesExhausted", "NodeFault: no disk"),
        ),
        (
            running(failures=3),
            said(AttemptResult("u1-0", fault="NodeFault", message="no disk"), 4),
            Fail("RetriesExhausted", "failed 4 times, last error: NodeFault: no disk"),
        ),
        (
            running(),
            pod("Succeeded", ended=ContainerTerminated(0, "Completed", "garbage")),
            Retry("the worker ended well and left no answer that makes sense"),
        ),
        (
            running(),
            said(AttemptResult("u1-7", 93.2, 300)),  # of another attempt
            Retry("the worker ended well and left no answer that makes sense"),
        ),
        (
            running(),
            pod("Failed", ended=ContainerTerminated(137, "OOMKilled")),
            Retry("the worker ended with exit code 137 (OOMKilled) and left no answer"),
        ),
        (
            running(),
            pod("Failed", status={"reason": "Evicted"}),
            Retry("the worker ended with exit code -1 (Evicted) and left no answer"),
        ),
        (
            running(),
            pod("Failed", status={"conditions": (PodCondition("DisruptionTarget", "True"),)}),
            Retry("the cluster took its Pod away", failed=False),
        ),
        (
            running(),
            pod(
                "Failed",
                ended=ContainerTerminated(
                    4, "Error", encode_result(AttemptResult("u1-0", fault="NodeFault", message="stopped")).decode()
                ),
                status={"conditions": (PodCondition("DisruptionTarget", "True"),)},
            ),
            Retry("the cluster took its Pod away", failed=False),
        ),
        (running(), None, Retry("its Pod disappeared")),
        (
            running(failures=3),
            None,
            Fail("RetriesExhausted", "failed 4 times, last error: its Pod disappeared"),
        ),
        (
            running(),
            pod("Failed", ended=ContainerTerminated(143, "Error"), deletionTimestamp=ago(1)),
            Retry("its Pod was deleted while it ran"),
        ),
        (running({"activeDeadlineSeconds": 100}), None, Retry("its Pod disappeared")),
        (
            running(),  # what was put beside the worker has ended, and the worker has not
            pod(
                status={
                    "containerStatuses": (
                        ContainerStatus("proxy", ContainerState(terminated=ContainerTerminated(1, "Error"))),
                    )
                }
            ),
            NoAction(),
        ),
        (
            running(),  # let go by its queue a minute ago
            pod(
                "Pending",
                creationTimestamp=ago(6000),
                status={"conditions": (PodCondition("PodScheduled", "True", lastTransitionTime=ago(60)),)},
            ),
            SetMessage("its Pod has not started: it does not say why", 540.0),
        ),
        (running(), pod(deletionTimestamp=ago(10)), NoAction(20.0)),
        (running(), pod(deletionTimestamp=ago(31)), Retry("its Pod was deleted and does not end")),
        (running(), pod("Pending", creationTimestamp=ago(10)), NoAction(20.0)),
        (running({"activeDeadlineSeconds": 65}), pod("Pending", creationTimestamp=ago(10)), NoAction(5.0)),
        (running(), pod("Pending"), SetMessage("its Pod has not started: it does not say why", 570.0)),
        (running(message="its Pod has not started"), pod("Pending"), NoAction(570.0)),
        (running({"activeDeadlineSeconds": 100}, message="so it is"), pod("Pending"), NoAction(40.0)),
        (running(message="its Pod has not started"), pod(), SetMessage("")),
        (
            running(),
            pod(
                "Pending",
                creationTimestamp=ago(601),
                status={
                    "containerStatuses": (
                        ContainerStatus(
                            "worker", ContainerState(ContainerWaiting("ImagePullBackOff", "no such image"))
                        ),
                    )
                },
            ),
            Retry("its Pod did not start within 10 minutes (ImagePullBackOff: no such image)"),
        ),
        (
            running(),
            pod(
                "Pending",
                creationTimestamp=ago(601),
                status={"conditions": (PodCondition("PodScheduled", "False", "Unschedulable", "0/3 nodes"),)},
            ),
            Retry("its Pod did not start within 10 minutes (Unschedulable: 0/3 nodes)"),
        ),
        (
            running(),
            pod(
                "Pending",
                creationTimestamp=ago(6000),
                status={"conditions": (PodCondition("PodScheduled", "False", "SchedulingGated", ""),)},
            ),
            NoAction(),
        ),
    ],
)
def test_running(job: JobView, found: PodView | None, step: Step) -> None:
    assert look(job, found) == step


def node(
    runtime: Any = "Agent", *, healthy: bool | None = True, ready: Condition | None = None, judged: float = 75
) -> NodeView:
    """`judged`: how long ago the heartbeat was for which its agent was found silent."""
    status = NodeStatusView(
        healthy=healthy,
        lastHeartbeat=ago(75),
        observedHeartbeat=ago(judged) if ready is not None and ready.status == "False" else None,
        conditions=(ready,) if ready else (),
    )
    return NodeView(MetaView("n", "x"), VmafxNodeSpec("cpu", runtime=runtime), status)


def with_agent(spec: dict[str, Any] | None = None, since: float = 30, **status: Any) -> JobView:
    placed = Condition("Scheduled", "True", ago(since), PLACED["Agent"], "on n")
    return running(spec, **{"conditions": (placed,), "claimedAt": ago(since - 10)} | status)


def as_pod(spec: dict[str, Any] | None = None, **status: Any) -> JobView:
    return running(spec, conditions=(Condition("Scheduled", "True", ago(30), PLACED["Pod"], "on n"),), **status)


def heard_again(since: float) -> Condition:
    return Condition("Ready", "True", ago(since), "Healthy", "the controller answers")


HEARD = "2026-11-15T11:58:45Z"
LOST = Condition("Ready", "False", ago(1), "AgentLost", f"no heartbeat since {HEARD}; its jobs go elsewhere")
NOT_HEARD = Retry(f"its node n has not been heard of since {HEARD}")
NOT_TAKEN = Retry("its agent n did not take it within 60 s")


@pytest.mark.parametrize(
    ("job", "around", "step"),
    [
        (with_agent(), node(), NoAction()),
        (with_agent({"activeDeadlineSeconds": 100}), node(), NoAction(40.0)),
        (with_agent({"cancel": True}), node(), Fail("Cancelled", "cancelled while it ran")),
        (with_agent({"suspend": True}), node(), Suspend()),
        (
            with_agent({"activeDeadlineSeconds": 60}),
            node(),
            Fail("DeadlineExceeded", "not finished within 60 s of its start"),
        ),
        # Not taken: as long as it had the time to be.
        (with_agent(claimedAt=None), node(), NoAction(30.0)),
        (with_agent({"activeDeadlineSeconds": 70}, claimedAt=None), node(), NoAction(10.0)),
        (with_agent(since=60, claimedAt=None), node(), NOT_TAKEN),
        (with_agent(since=3600), node(), NoAction()),
        (with_agent({"retryLimit": 0}, 60, claimedAt=None), node(), Fail("RetriesExhausted", NOT_TAKEN.message)),
        (with_agent(since=3600, claimedAt=None), node(ready=heard_again(59)), NoAction(1.0)),
        (with_agent(since=3600, claimedAt=None), node(ready=heard_again(60)), NOT_TAKEN),
        (with_agent(since=60, claimedAt=None), node(ready=heard_again(3600)), NOT_TAKEN),
        (with_agent(since=3600, claimedAt=None), node(healthy=False), NoAction()),
        (with_agent(since=3600, claimedAt=None), node(healthy=None), NoAction()),
        (running(claimedAt=None), node(), NOT_TAKEN),  # by somebody's hand, with a start alone
        (running(claimedAt=None, startedAt=ago(20)), node(), NoAction(40.0)),
        (running(claimedAt=None, startedAt=None), node(), NoAction()),
        # Its node.
        (with_agent(), node(healthy=False), NoAction()),
        (with_agent(), node(healthy=False, ready=LOST), NOT_HEARD),
        (
            with_agent(failures=3),
            node(healthy=False, ready=LOST),
            Fail("RetriesExhausted", f"failed 4 times, last error: {NOT_HEARD.message}"),
        ),
        (with_agent({"cancel": True}), node(ready=LOST), Fail("Cancelled", "cancelled while it ran")),
        (
            with_agent(claimedAt=None),  # of the heartbeat before its last
            node(healthy=False, ready=LOST, judged=85),
            NoAction(),
        ),
        (with_agent(), None, Retry("its node n is gone", failed=False)),
        (with_agent(), node("Pod"), Retry("its node n now runs its jobs as Pods", failed=False)),
        (with_agent(claimedAt=None), node("Pod"), Retry("its node n now runs its jobs as Pods", failed=False)),
        (as_pod(), node("Agent"), Retry("its node n now has an agent run its jobs", failed=False)),
        (as_pod(), node("Pod"), CreatePod()),
        (as_pod({"activeDeadlineSeconds": 100}), node("Pod"), CreatePod(40.0)),
        (as_pod(), None, Retry("its node n is gone", failed=False)),
        (with_agent(controllerJobID=None), node(), PlaceOn("n")),
    ],
)  # fmt: skip
def test_running_with_an_agent(job: JobView, around: NodeView | None, step: Step) -> None:
    assert look(job, seen=False, node=around) == step


def test_what_was_not_watched_is_no_reason_to_take_a_job_away() -> None:
    job = with_agent(since=3600, claimedAt=None)
    assert look(job, seen=False, node=node(), watched_since=ago(20)) == NoAction(40.0)
    assert look(job, seen=False, node=node(), watched_since=ago(60)) == NOT_TAKEN
    assert look(with_agent(since=3600), seen=False, node=node(), watched_since=ago(3600)) == NoAction()


def test_a_pod_on_a_node_that_an_agent_has_taken_over() -> None:
    over = Retry("its node n now has an agent run its jobs", failed=False)
    for job in (as_pod(), running()):
        assert look(job, pod(), node=node("Agent")) == over
        assert look(job, None, node=node("Agent")) == over
        assert look(job, said(SCORED), node=node("Agent")) == Succeed(SCORED)
        assert look(job, pod(), node=node("Pod")) == NoAction()
        assert look(job, pod(), node=None) == NoAction()
        assert look(job, pod(), node=node("Pod", healthy=False, ready=LOST)) == NoAction()


def test_a_placement_says_how_it_is_run_and_when_it_was_made() -> None:
    theirs = running(controllerJobID=None, conditions=(Condition("Scheduled", "True", ago(900), "Placed", "theirs"),))
    for runtime, reason in PLACED.items():
        for job in (pending(), theirs):
            (written,) = status.placed_status(job, node(runtime), NOW)["conditions"]
            assert (written.reason, written.lastTransitionTime) == (reason, NOW)


CANCELLED = FollowIntent(Fail("Cancelled", "cancelled while another controller had it"))
LATE = FollowIntent(Fail("DeadlineExceeded", "not finished within 60 s of its start"), 0.0)


@pytest.mark.parametrize("phase", ["Pending", "Running"])
@pytest.mark.parametrize("assigned", [None, "n"])
@pytest.mark.parametrize("theirs", ["theirs", "u2-0", "u1", "u1-", "u1-x", "u1-0-0", "-0"])
def test_what_another_controller_has_is_followed_and_never_run(phase: str, assigned: str | None, theirs: str) -> None:
    status: dict[str, Any] = {"phase": phase, "assignedNode": assigned, "controllerJobID": theirs}
    plain, cancelled, suspended = (pending(spec, **status) for spec in ({}, {"cancel": True}, {"suspend": True}))
    assert is_foreign(plain)
    for job, wanted in ((plain, FollowIntent()), (suspended, FollowIntent()), (cancelled, CANCELLED)):
        assert follow_intent(job, NOW) == wanted
        elsewhere = ForeignState(wanted, "c:1", ForeignReplies(ForeignReply("COMPLETED", score=50.0)))
        for seen in (True, False):
            for found in (None, pod(), said(SCORED)):
                step = look(job, found, seen=seen, elsewhere=elsewhere)
                assert isinstance(step, Succeed if phase == "Running" else MirrorForeign)
    late = {"activeDeadlineSeconds": 60}
    assert follow_intent(pending(late, startedAt=ago(60), **status), NOW) == LATE
    assert follow_intent(pending(late, startedAt=ago(50), **status), NOW) == FollowIntent(left=10.0)
    assert follow_intent(pending(late, **status), NOW) == FollowIntent()


@pytest.mark.parametrize("ours", [None, "", "u1-0", "u1-12"])
def test_what_the_operator_named_itself_is_its_own(ours: str | None) -> None:
    assert not is_foreign(pending(controllerJobID=ours))


def test_what_somebody_else_let_run_is_run_where_they_said_or_taken_back() -> None:
    assert look(running(controllerJobID=None), seen=False, node=node("Pod")) == PlaceOn("n")
    assert look(running(attempts=0), pod(), node=node("Pod")) == PlaceOn("n")  # somebody else's words
    assert look(running(controllerJobID=None), seen=False) == RejectPlacement("NoNodes", "there is no VmafxNode n")
    assert look(running({"cancel": True}, controllerJobID=None)) == Fail("Cancelled", "cancelled while it ran")
    back = Retry("whoever had it gave it back", failed=False)
    assert look(running(controllerJobID=None, assignedNode=None), seen=False) == back


def test_a_pod_that_was_made_is_waited_for_before_it_is_missed() -> None:
    here: dict[str, Any] = {"seen": False, "node": node("Pod")}
    assert look(as_pod(), None, **here) == CreatePod()
    assert look(as_pod(), None, made_ago=0.1, **here) == NoAction(RECHECK_INTERVAL)
    assert look(as_pod({"activeDeadlineSeconds": 61}), None, made_ago=0.1, **here) == NoAction(1.0)
    assert look(as_pod(), None, made_ago=RECHECK_INTERVAL, **here) == Retry("its Pod disappeared")
    assert look(as_pod(), pod(ownerReferences=()), made_ago=RECHECK_INTERVAL, **here) == Retry("its Pod disappeared")
    assert look(as_pod(), pod(), made_ago=RECHECK_INTERVAL, **here) == NoAction()
    gone = Retry("its node n is gone", failed=False)
    for made in (None, 0.1, RECHECK_INTERVAL):
        assert look(as_pod(), None, seen=False, made_ago=made) == gone
        assert look(as_pod(), pod(ownerReferences=()), seen=False, made_ago=made) == gone


@pytest.mark.parametrize("theirs", [pod(ownerReferences=()), pod(labels=PodLabels(attempt="3"))])
def test_a_name_that_anothers_pod_has_is_waited_for(theirs: PodView) -> None:
    for seen in (True, False):
        assert look(running(), theirs, seen=seen, node=node("Pod")) == WaitForPodName()


def test_a_place_that_the_scheduler_gives_is_taken_unless_the_job_is_held() -> None:
    given: dict[str, Any] = {"place": "n", "node": node("Pod"), "seen": False}
    assert look(pending(), **given) == PlaceOn("n")
    assert look(pending(), place="n", seen=False) == RejectPlacement("NoNodes", "there is no VmafxNode n")
    assert look(pending({"suspend": True}), **given) == SUSPENDED
    assert look(pending({"cancel": True}), **given) == Fail("Cancelled", "cancelled before it ran")


def test_credentials_are_for_pods() -> None:
    secret = {"credentialsSecretRef": LocalSecretRef("s3")}
    for job in (pending(secret), pending(secret, assignedNode="n"), running(secret, controllerJobID=None)):
        assert look(job, place="n", node=node("Agent"), seen=False) == RejectPlacement(*POD_ONLY)
        assert look(job, place="n", node=node("Pod"), seen=False) == PlaceOn("n")


def test_a_job_that_goes_is_left_alone() -> None:
    for job in (pending(), running()):
        gone = msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, deletionTimestamp=NOW))
        assert look(gone, pod()) == NoAction()
