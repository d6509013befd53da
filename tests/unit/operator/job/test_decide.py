"""The next step of a job, for every case, without a cluster."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from vmafx.api.job import JobSpecView, JobStatusView, JobView
from vmafx.api.meta import Condition, LocalSecretRef, MetaView
from vmafx.api.node import NodeStatusView, NodeView, VmafxNodeSpec
from vmafx.jobs.attempt import AttemptResult, encode_result
from vmafx.jobs.outcome import Fail, Retry, Succeed, Suspend
from vmafx.jobs.state import age_at, is_external
from vmafx.operator.job import status
from vmafx.operator.job.decide import DISRUPTED, PLACED, Observation, decide
from vmafx.operator.job.external.decide import ExternalIntent, ExternalReply, ExternalState, PollResult, external_intent
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
    MirrorExternal,
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
LOW_ON_MEMORY = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Mi."
SUSPENDED = KeepPending("Suspended", "suspended; set spec.suspend to false to let it run")


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


def finished_pod(result: AttemptResult, code: int = 0) -> PodView:
    return pod(
        "Succeeded" if code == 0 else "Failed", ended=ContainerTerminated(code, "Error", encode_result(result).decode())
    )


def disrupted(by: str, *, reason: str = "", phase: str = "Failed", **changes: Any) -> PodView:
    conditions = (PodCondition("DisruptionTarget", "True", by),)
    return pod(phase, status={"reason": reason, "conditions": conditions}, **changes)


def evicted(result: AttemptResult | None = None) -> PodView:
    """By the kubelet, because its machine ran short of memory."""
    ended = ContainerTerminated(137, "Error", encode_result(result).decode() if result is not None else "")
    condition = PodCondition("DisruptionTarget", "True", "TerminationByKubelet", LOW_ON_MEMORY)
    return pod(
        "Failed", ended=ended, status={"reason": "Evicted", "message": LOW_ON_MEMORY, "conditions": (condition,)}
    )


def step_for(job: JobView, found: PodView | None = None, *, pod_seen: bool = True, **known: Any) -> Step:
    return decide(job, age_at(NOW), Observation(pod=found, pod_seen=pod_seen, **known))


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
        (pending(controllerJobID="u1-0"), Enqueue()),  # an earlier attempt of the operator
        (
            pending({"activeDeadlineSeconds": 60}, startedAt=ago(61)),
            Fail("DeadlineExceeded", "not finished within 60 s of its start"),
        ),
        (pending({"activeDeadlineSeconds": 60}), Enqueue()),  # the deadline counts from the start
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
        (  # disrupted three times, without a failure
            pending(attempts=3, conditions=condition("Retrying", ago(1))),
            KeepPending("Retrying", "EngineFailure: no luck", 3.0),
        ),
        (pending({"suspend": True, "activeDeadlineSeconds": 60}, startedAt=ago(61)), Suspend()),
    ],
)
def test_a_pending_job_takes_the_step_for_its_spec_and_status(job: JobView, step: Step) -> None:
    assert step_for(job, node=node("Pod")) == step


@pytest.mark.parametrize(
    ("job", "found", "step"),
    [
        (running(), pod(), NoAction()),
        (running({"activeDeadlineSeconds": 100}), pod(), NoAction(40.0)),
        (running(), finished_pod(SCORED), Succeed(SCORED)),
        (running({"cancel": True}), finished_pod(SCORED), Succeed(SCORED)),  # a result takes precedence
        (running({"suspend": True}), finished_pod(SCORED), Succeed(SCORED)),
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
            finished_pod(AttemptResult("u1-0", fault="BadInput", message="distorted: no"), 2),
            Fail("BadInput", "distorted: no"),
        ),
        (
            running(),
            finished_pod(AttemptResult("u1-0", fault="NodeFault", message="no disk"), 4),
            Retry("NodeFault: no disk"),
        ),
        (
            running(),
            finished_pod(AttemptResult("u1-0", fault="EngineFailure", message="oh"), 3),
            Retry("EngineFailure: oh"),
        ),
        (
            running({"retryLimit": 0}),
            finished_pod(AttemptResult("u1-0", fault="NodeFault", message="no disk"), 4),
            Fail("RetriesExhausted", "NodeFault: no disk"),
        ),
        (
            running(failures=3),
            finished_pod(AttemptResult("u1-0", fault="NodeFault", message="no disk"), 4),
            Fail("RetriesExhausted", "failed 4 times, last error: NodeFault: no disk"),
        ),
        (
            running(),
            pod("Succeeded", ended=ContainerTerminated(0, "Completed", "garbage")),
            Retry("the worker exited with code 0 but left no valid result"),
        ),
        (
            running(),
            finished_pod(AttemptResult("u1-7", 93.2, 300)),  # the result of another attempt
            Retry("the worker exited with code 0 but left no valid result"),
        ),
        (
            running(),
            pod("Failed", ended=ContainerTerminated(137, "OOMKilled")),
            Retry("the worker exited with code 137 (OOMKilled) and left no result"),
        ),
        (
            running(),
            pod("Failed", status={"reason": "Evicted"}),
            Retry("its Pod was evicted: the kubelet gave no reason"),
        ),
        (running(), evicted(), Retry(f"its Pod was evicted: {LOW_ON_MEMORY}")),
        (running({"retryLimit": 0}), evicted(), Fail("RetriesExhausted", f"its Pod was evicted: {LOW_ON_MEMORY}")),
        (
            running(),  # its worker reported that it was stopped
            evicted(AttemptResult("u1-0", fault="NodeFault", message="stopped")),
            Retry(f"its Pod was evicted: {LOW_ON_MEMORY}"),
        ),
        (running(), evicted(SCORED), Succeed(SCORED)),
        (
            running(),
            evicted(AttemptResult("u1-0", fault="BadInput", message="distorted: no")),
            Fail("BadInput", "distorted: no"),
        ),
        (running(), disrupted("TerminationByKubelet", reason="Terminated"), DISRUPTED),  # its machine shut down
        (running(), disrupted("TerminationByKubelet", reason="NodeShutdown"), DISRUPTED),
        (running(), disrupted("TerminationByKubelet", reason="Preempting"), DISRUPTED),
        (running(), disrupted("EvictionByEvictionAPI"), DISRUPTED),
        (running(), disrupted("PreemptionByScheduler"), DISRUPTED),
        (running(), disrupted("DeletionByTaintManager"), DISRUPTED),
        (running(), disrupted("EvictionByEvictionAPI", phase="Running", deletionTimestamp=ago(31)), DISRUPTED),
        (
            running(),
            pod(
                "Failed",
                ended=ContainerTerminated(
                    4, "Error", encode_result(AttemptResult("u1-0", fault="NodeFault", message="stopped")).decode()
                ),
                status={"conditions": (PodCondition("DisruptionTarget", "True"),)},
            ),
            DISRUPTED,
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
            running(),  # a sidecar has ended, the worker has not
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
            running(),  # its scheduling gate was removed a minute ago
            pod(
                "Pending",
                creationTimestamp=ago(6000),
                status={"conditions": (PodCondition("PodScheduled", "True", lastTransitionTime=ago(60)),)},
            ),
            SetMessage("its Pod has not started: no reason given", 540.0),
        ),
        (running(), pod(deletionTimestamp=ago(10)), NoAction(20.0)),
        (running(), pod(deletionTimestamp=ago(31)), Retry("its Pod was deleted but does not terminate")),
        (running(), pod("Pending", creationTimestamp=ago(10)), NoAction(20.0)),
        (running({"activeDeadlineSeconds": 65}), pod("Pending", creationTimestamp=ago(10)), NoAction(5.0)),
        (running(), pod("Pending"), SetMessage("its Pod has not started: no reason given", 570.0)),
        (running(message="its Pod has not started"), pod("Pending"), NoAction(570.0)),
        (running({"activeDeadlineSeconds": 100}, message="not started"), pod("Pending"), NoAction(40.0)),
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
def test_a_job_that_runs_as_a_pod_takes_the_step_for_its_pod(job: JobView, found: PodView | None, step: Step) -> None:
    assert step_for(job, found) == step


def node(
    runtime: Any = "Agent", *, healthy: bool | None = True, ready: Condition | None = None, observed: float = 75
) -> NodeView:
    """`observed`: the age of the heartbeat for which the Ready condition was written."""
    status = NodeStatusView(
        healthy=healthy,
        lastHeartbeat=ago(75),
        observedHeartbeat=ago(observed) if ready is not None and ready.status == "False" else None,
        conditions=(ready,) if ready else (),
    )
    return NodeView(MetaView("n", "x"), VmafxNodeSpec("cpu", runtime=runtime), status)


def with_agent(spec: dict[str, Any] | None = None, since: float = 30, **status: Any) -> JobView:
    placed = Condition("Scheduled", "True", ago(since), PLACED["Agent"], "on n")
    return running(spec, **{"conditions": (placed,), "claimedAt": ago(since - 10)} | status)


def as_pod(spec: dict[str, Any] | None = None, **status: Any) -> JobView:
    return running(spec, conditions=(Condition("Scheduled", "True", ago(30), PLACED["Pod"], "on n"),), **status)


def ready_since(since: float) -> Condition:
    return Condition("Ready", "True", ago(since), "Healthy", "the controller answers")


LAST_HEARTBEAT = "2026-11-15T11:58:45Z"
LOST = Condition(
    "Ready", "False", ago(1), "AgentLost", f"no heartbeat since {LAST_HEARTBEAT}; its jobs move to other nodes"
)
NO_HEARTBEAT = Retry(f"its node n has sent no heartbeat since {LAST_HEARTBEAT}")
NOT_CLAIMED = Retry("agent n did not claim it within 60 s")


@pytest.mark.parametrize(
    ("job", "its_node", "step"),
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
        # Not claimed yet.
        (with_agent(claimedAt=None), node(), NoAction(30.0)),
        (with_agent({"activeDeadlineSeconds": 70}, claimedAt=None), node(), NoAction(10.0)),
        (with_agent(since=60, claimedAt=None), node(), NOT_CLAIMED),
        (with_agent(since=3600), node(), NoAction()),
        (with_agent({"retryLimit": 0}, 60, claimedAt=None), node(), Fail("RetriesExhausted", NOT_CLAIMED.message)),
        (with_agent(since=3600, claimedAt=None), node(ready=ready_since(59)), NoAction(1.0)),
        (with_agent(since=3600, claimedAt=None), node(ready=ready_since(60)), NOT_CLAIMED),
        (with_agent(since=60, claimedAt=None), node(ready=ready_since(3600)), NOT_CLAIMED),
        (with_agent(since=3600, claimedAt=None), node(healthy=False), NoAction()),
        (with_agent(since=3600, claimedAt=None), node(healthy=None), NoAction()),
        (running(claimedAt=None), node(), NOT_CLAIMED),  # set by hand, with startedAt only
        (running(claimedAt=None, startedAt=ago(20)), node(), NoAction(40.0)),
        (running(claimedAt=None, startedAt=None), node(), NoAction()),
        # The node.
        (with_agent(), node(healthy=False), NoAction()),
        (with_agent(), node(healthy=False, ready=LOST), NO_HEARTBEAT),
        (
            with_agent(failures=3),
            node(healthy=False, ready=LOST),
            Fail("RetriesExhausted", f"failed 4 times, last error: {NO_HEARTBEAT.message}"),
        ),
        (with_agent({"cancel": True}), node(ready=LOST), Fail("Cancelled", "cancelled while it ran")),
        (
            with_agent(claimedAt=None),  # AgentLost, for an earlier heartbeat
            node(healthy=False, ready=LOST, observed=85),
            NoAction(),
        ),
        (with_agent(), None, Retry("its node n was deleted", failed=False)),
        (with_agent(), node("Pod"), Retry("spec.runtime of its node n changed to Pod", failed=False)),
        (with_agent(claimedAt=None), node("Pod"), Retry("spec.runtime of its node n changed to Pod", failed=False)),
        (as_pod(), node("Agent"), Retry("spec.runtime of its node n changed to Agent", failed=False)),
        (as_pod(), node("Pod"), CreatePod()),
        (as_pod({"activeDeadlineSeconds": 100}), node("Pod"), CreatePod(40.0)),
        (as_pod(), None, Retry("its node n was deleted", failed=False)),
        (with_agent(controllerJobID=None), node(), PlaceOn("n")),
    ],
)  # fmt: skip
def test_a_job_that_an_agent_runs_takes_the_step_for_its_node(
    job: JobView, its_node: NodeView | None, step: Step
) -> None:
    assert step_for(job, pod_seen=False, node=its_node) == step


def test_the_claim_timeout_counts_only_time_that_was_watched() -> None:
    job = with_agent(since=3600, claimedAt=None)
    assert step_for(job, pod_seen=False, node=node(), watched_for=20.0) == NoAction(40.0)
    assert step_for(job, pod_seen=False, node=node(), watched_for=60.0) == NOT_CLAIMED
    assert step_for(with_agent(since=3600), pod_seen=False, node=node(), watched_for=3600.0) == NoAction()


def test_a_pod_attempt_is_retried_when_its_node_changes_to_an_agent() -> None:
    changed = Retry("spec.runtime of its node n changed to Agent", failed=False)
    for job in (as_pod(), running()):
        assert step_for(job, pod(), node=node("Agent")) == changed
        assert step_for(job, None, node=node("Agent")) == changed
        assert step_for(job, finished_pod(SCORED), node=node("Agent")) == Succeed(SCORED)
        assert step_for(job, pod(), node=node("Pod")) == NoAction()
        assert step_for(job, pod(), node=None) == NoAction()
        assert step_for(job, pod(), node=node("Pod", healthy=False, ready=LOST)) == NoAction()


def test_a_placement_records_its_runtime_and_time() -> None:
    placed_by_other = running(
        controllerJobID=None, conditions=(Condition("Scheduled", "True", ago(900), "Placed", "by another scheduler"),)
    )
    for runtime, reason in PLACED.items():
        for job in (pending(), placed_by_other):
            (written,) = status.placed_status(job, node(runtime), NOW)["conditions"]
            assert (written.reason, written.lastTransitionTime) == (reason, NOW)


CANCELLED = ExternalIntent(Fail("Cancelled", "cancelled while an external controller was running it"))
LATE = ExternalIntent(Fail("DeadlineExceeded", "not finished within 60 s of its start"), 0.0)


@pytest.mark.parametrize("phase", ["Pending", "Running"])
@pytest.mark.parametrize("assigned", [None, "n"])
@pytest.mark.parametrize("external_id", ["theirs", "u2-0", "u1", "u1-", "u1-x", "u1-0-0", "-0"])
def test_an_external_job_is_mirrored_and_never_run(phase: str, assigned: str | None, external_id: str) -> None:
    status: dict[str, Any] = {"phase": phase, "assignedNode": assigned, "controllerJobID": external_id}
    plain, cancelled, suspended = (pending(spec, **status) for spec in ({}, {"cancel": True}, {"suspend": True}))
    assert is_external(plain)
    for job, wanted in ((plain, ExternalIntent()), (suspended, ExternalIntent()), (cancelled, CANCELLED)):
        assert external_intent(job, age_at(NOW)) == wanted
        external = ExternalState(wanted, "c:1", PollResult(ExternalReply("COMPLETED", score=50.0)))
        for seen in (True, False):
            for found in (None, pod(), finished_pod(SCORED)):
                step = step_for(job, found, pod_seen=seen, external=external)
                assert isinstance(step, Succeed if phase == "Running" else MirrorExternal)
    late = {"activeDeadlineSeconds": 60}
    assert external_intent(pending(late, startedAt=ago(60), **status), age_at(NOW)) == LATE
    assert external_intent(pending(late, startedAt=ago(50), **status), age_at(NOW)) == ExternalIntent(
        deadline_left=10.0
    )
    assert external_intent(pending(late, **status), age_at(NOW)) == ExternalIntent()


@pytest.mark.parametrize("own_id", [None, "", "u1-0", "u1-12"])
def test_a_job_with_an_attempt_id_of_the_operator_is_not_external(own_id: str | None) -> None:
    assert not is_external(pending(controllerJobID=own_id))


def test_a_job_set_to_running_by_another_scheduler_is_placed_on_its_node_or_queued() -> None:
    assert step_for(running(controllerJobID=None), pod_seen=False, node=node("Pod")) == PlaceOn("n")
    assert step_for(running(attempts=0), pod(), node=node("Pod")) == PlaceOn(
        "n"
    )  # an attempt id that the operator has not given
    assert step_for(running(controllerJobID=None), pod_seen=False) == RejectPlacement(
        "NoNodes", "there is no VmafxNode n"
    )
    assert step_for(running({"cancel": True}, controllerJobID=None)) == Fail("Cancelled", "cancelled while it ran")
    queued = Retry("its phase was Running, but it had neither a node nor an attempt", failed=False)
    assert step_for(running(controllerJobID=None, assignedNode=None), pod_seen=False) == queued
    gone = pod("Failed", ended=ContainerTerminated(1, "Error"))  # of the attempt before
    assert step_for(running(controllerJobID=None), None, node=node("Pod"), gone_pod=gone) == PlaceOn("n")


@pytest.mark.parametrize(
    ("gone", "step"),
    [
        (finished_pod(AttemptResult("u1-0", 90.0, 6)), Succeed(AttemptResult("u1-0", 90.0, 6))),
        (
            pod("Failed", ended=ContainerTerminated(137, "Error")),
            Retry("the worker exited with code 137 (Error) and left no result"),
        ),
        (disrupted("EvictionByEvictionAPI"), DISRUPTED),
        (disrupted("DeletionByTaintManager", phase="Running", deletionTimestamp=ago(1)), DISRUPTED),
        (pod(), Retry("its Pod disappeared")),
    ],
)
def test_the_last_state_of_a_deleted_pod_counts(gone: PodView, step: Step) -> None:
    """It ended and was deleted before the job was reconciled."""
    assert step_for(running(), None, gone_pod=gone) == step


def test_a_created_pod_may_take_some_seconds_to_appear() -> None:
    here: dict[str, Any] = {"pod_seen": False, "node": node("Pod")}
    assert step_for(as_pod(), None, **here) == CreatePod()
    assert step_for(as_pod(), None, pod_created_ago=0.1, **here) == NoAction(RECHECK_INTERVAL)
    assert step_for(as_pod({"activeDeadlineSeconds": 61}), None, pod_created_ago=0.1, **here) == NoAction(1.0)
    assert step_for(as_pod(), None, pod_created_ago=RECHECK_INTERVAL, **here) == Retry("its Pod disappeared")
    assert step_for(as_pod(), pod(ownerReferences=()), pod_created_ago=RECHECK_INTERVAL, **here) == Retry(
        "its Pod disappeared"
    )
    assert step_for(as_pod(), pod(), pod_created_ago=RECHECK_INTERVAL, **here) == NoAction()
    deleted = Retry("its node n was deleted", failed=False)
    for created_ago in (None, 0.1, RECHECK_INTERVAL):
        assert step_for(as_pod(), None, pod_seen=False, pod_created_ago=created_ago) == deleted
        assert step_for(as_pod(), pod(ownerReferences=()), pod_seen=False, pod_created_ago=created_ago) == deleted


@pytest.mark.parametrize("other_pod", [pod(ownerReferences=()), pod(labels=PodLabels(attempt="3"))])
def test_an_attempt_waits_while_another_pod_has_its_name(other_pod: PodView) -> None:
    for seen in (True, False):
        assert step_for(running(), other_pod, pod_seen=seen, node=node("Pod")) == WaitForPodName()


def test_a_placement_is_used_unless_the_job_is_held_back() -> None:
    given: dict[str, Any] = {"placement": "n", "node": node("Pod"), "pod_seen": False}
    assert step_for(pending(), **given) == PlaceOn("n")
    assert step_for(pending(), placement="n", pod_seen=False) == RejectPlacement("NoNodes", "there is no VmafxNode n")
    assert step_for(pending({"suspend": True}), **given) == SUSPENDED
    assert step_for(pending({"cancel": True}), **given) == Fail("Cancelled", "cancelled before it ran")


def test_a_job_with_credentials_is_not_placed_on_an_agent() -> None:
    secret = {"credentialsSecretRef": LocalSecretRef("s3")}
    for job in (pending(secret), pending(secret, assignedNode="n"), running(secret, controllerJobID=None)):
        assert step_for(job, placement="n", node=node("Agent"), pod_seen=False) == RejectPlacement(*POD_ONLY)
        assert step_for(job, placement="n", node=node("Pod"), pod_seen=False) == PlaceOn("n")


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    for job in (pending(), running()):
        deleted = msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, deletionTimestamp=NOW))
        assert step_for(deleted, pod()) == NoAction()
