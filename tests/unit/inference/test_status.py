"""The status of a service: each condition with each of its reasons, the message, and the fields."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.inference.test_children import NEW, OLD, REF, SPLITS, live, spec, specs, states
from vmafx.api.inference import (
    CanaryGates,
    CanarySpec,
    CanaryStep,
    HealthCheckSpec,
    ResourceSpec,
    ZerfooInferenceServiceSpec,
)
from vmafx.inference.children import LiveDeployment, LiveState, Split, desired_children
from vmafx.inference.status import CONDITIONS, Decision, Problem, Route, ServiceState, decide_status
from vmafx.operator.inference.kind import REASONS
from vmafx.runtime.conditions import NewCondition

URL = "http://m.media.inference.local"
ROUTED = Route(URL, accepted=True)
NO_NODE = NewCondition("Schedulable", "False", "NoMatchingNode", "no Kubernetes node has an NVIDIA GPU")


def decide(wanted: ZerfooInferenceServiceSpec, state: LiveState, split: Split = "replicas", **more: Any) -> Decision:
    desired = desired_children(REF, wanted, state, split)
    after = msgspec.structs.replace(state, weight=desired.weight)
    return decide_status(ServiceState(ref=REF, spec=wanted, desired=desired, live=after, **more))


def condition(decision: Decision, kind: str) -> tuple[str, str]:
    found = next(one for one in decision.conditions if one.type == kind)
    return found.status, found.reason


def message(decision: Decision) -> str:
    text: str = decision.fields["message"]
    return text


def test_a_service_whose_replicas_are_all_ready_is_ready() -> None:
    decision = decide(spec(), LiveState(live()))
    assert {one.type: (one.status, one.reason) for one in decision.conditions} == {
        "Ready": ("True", "Ready"),
        "Available": ("True", "ReplicasReady"),
        "Progressing": ("False", "Complete"),
        "Degraded": ("False", "AsExpected"),
    }
    assert decision.fields == {
        "ready": True,
        "replicas": 3,
        "canaryReplicas": 0,
        "canaryWeight": None,
        "url": "http://m-svc.media.svc",
        "selector": "vmafx.dev/service=m",
        "message": "3 of 3 replicas of the primary are ready",
    }
    assert decision.status.ready
    assert decision.status.conditions == ()


def test_a_service_without_children_is_not_available() -> None:
    decision = decide(spec(), LiveState())
    assert condition(decision, "Available") == ("False", "NoReplicaReady")
    assert condition(decision, "Progressing") == ("True", "RollingOut")
    assert condition(decision, "Ready") == ("False", "RollingOut")
    assert (decision.fields["replicas"], message(decision)) == (0, "primary: not created yet")


@pytest.mark.parametrize(
    ("primary", "text"),
    [
        (live(ready=1), "primary: 1 of 3 replicas are ready"),
        (live(replicas=2), "primary: 2 of 2 replicas are ready"),  # 3 are wanted
        (live(NEW), "primary: 3 of 3 replicas are ready"),  # another model is wanted
        (LiveDeployment(OLD, 3, 3, 3, 1, settled=True), "primary: 3 of 3 replicas are ready, 1 up to date"),
        (LiveDeployment(OLD, 3, 3, 4, 3, settled=True), "primary: 3 of 3 replicas are ready, 3 up to date"),
        (LiveDeployment(OLD, 3, 3, 3, 3, settled=False), "primary: 3 of 3 replicas are ready"),
    ],
)
def test_a_rollout_that_is_under_way(primary: LiveDeployment, text: str) -> None:
    decision = decide(spec(), LiveState(primary))
    assert condition(decision, "Available") == ("True", "ReplicasReady")
    assert condition(decision, "Progressing") == ("True", "RollingOut")
    assert condition(decision, "Ready") == ("False", "RollingOut")
    assert message(decision) == text


def test_an_autoscaler_decides_how_many_replicas_are_enough() -> None:
    scaled = spec(minReplicas=2, maxReplicas=5)
    desired = desired_children(REF, scaled, LiveState(live(replicas=3)))
    state = ServiceState(ref=REF, spec=scaled, desired=desired, live=LiveState(live(replicas=4)))
    assert decide_status(state).fields["ready"]


def test_a_service_is_not_ready_before_all_children_are_applied() -> None:
    decision = decide(spec(), LiveState(live()), pending=True)
    assert condition(decision, "Progressing") == ("True", "Applying")
    assert condition(decision, "Ready") == ("False", "Applying")
    assert message(decision) == "not all children are applied yet"


def test_a_promotion_is_progress_until_the_primary_is_complete() -> None:
    decision = decide(spec(model=NEW), LiveState(live(NEW, ready=2), live(NEW, 1), weight=25))
    assert condition(decision, "Progressing") == ("True", "Promoting")
    assert condition(decision, "Ready") == ("False", "Promoting")
    assert message(decision).endswith("have its model; primary: 2 of 3 replicas are ready")
    assert decision.fields["canaryWeight"] == 33


def test_a_retiring_canary_is_progress() -> None:
    state = LiveState(live(), live(NEW, 1), weight=25, routed_to_canary=True)
    decision = decide(spec(), state, "route", route=ROUTED)
    assert condition(decision, "Progressing") == ("True", "RetiringCanary")
    assert decision.fields["canaryWeight"] is None
    assert decision.fields["canaryReplicas"] == 1


@pytest.mark.parametrize("track", ["primary", "canary"])
def test_a_stuck_rollout_is_no_progress(track: str) -> None:
    stuck = msgspec.structs.replace(live(NEW, 1, ready=0), problem="quota exceeded")
    state = LiveState(live(), stuck) if track == "canary" else LiveState(stuck, live(NEW, 1))
    decision = decide(spec(canary=25), state)
    assert condition(decision, "Progressing") == ("False", "RolloutStuck")
    assert condition(decision, "Degraded") == ("True", "RolloutStuck")
    assert condition(decision, "Ready") == ("False", "RolloutStuck")
    assert f"{track}: quota exceeded" in message(decision)


def test_a_stuck_deployment_whose_replicas_are_ready_is_not_ready_either() -> None:
    stuck = msgspec.structs.replace(live(), problem="deadline exceeded")
    decision = decide(spec(), LiveState(stuck))
    assert condition(decision, "Progressing") == ("False", "RolloutStuck")
    assert not decision.fields["ready"]


def test_a_problem_blocks_or_is_only_reported() -> None:
    blocked = decide(spec(), LiveState(live()), problems=(Problem("NameTaken", "it is taken"),))
    assert condition(blocked, "Degraded") == ("True", "NameTaken")
    assert condition(blocked, "Ready") == ("False", "NameTaken")
    assert message(blocked) == "it is taken"
    reported = decide(spec(), LiveState(live()), problems=(Problem("GatewayNotFound", "it is not there"),))
    assert condition(reported, "Degraded") == ("True", "GatewayNotFound")
    assert condition(reported, "Ready") == ("True", "Ready")


def test_autoscaling_needs_a_cpu_request() -> None:
    scaled = spec(minReplicas=2, maxReplicas=5)
    decision = decide(scaled, LiveState(live()))
    assert condition(decision, "Degraded") == ("True", "CannotScale")
    assert decision.fields["ready"]
    for resources in (ResourceSpec(), ResourceSpec(cpu="")):
        without = msgspec.structs.replace(scaled, resources=resources)
        assert condition(decide(without, LiveState(live())), "Degraded") == ("True", "CannotScale")
    with_cpu = msgspec.structs.replace(scaled, resources=ResourceSpec(cpu="500m"))
    assert condition(decide(with_cpu, LiveState(live())), "Degraded") == ("False", "AsExpected")


def test_a_missing_gpu_is_reported() -> None:
    decision = decide(spec(), LiveState(live()), schedulable=NO_NODE)
    assert NO_NODE in decision.conditions
    assert condition(decision, "Degraded") == ("True", "NoMatchingNode")
    assert decision.fields["ready"]  # replicas that run already, run


def test_with_all_requests_on_the_canary_only_its_replicas_count_as_available() -> None:
    desired = desired_children(REF, spec(canary=100), LiveState(live(), live(NEW, 3)))
    after = LiveState(live(), live(NEW, 3, ready=0), weight=100)
    decision = decide_status(ServiceState(ref=REF, spec=spec(canary=100), desired=desired, live=after))
    assert condition(decision, "Available") == ("False", "NoReplicaReady")
    assert "no replica of the canary is ready" in next(
        one.message for one in decision.conditions if one.type == "Available"
    )


def honoured(decision: Decision) -> tuple[str, str]:
    return condition(decision, "CanaryHonoured")


def test_a_canary_that_gets_its_weight() -> None:
    decision = decide(spec(canary=25), LiveState(live(), live(NEW, 1), weight=25))
    assert honoured(decision) == ("True", "Honoured")
    assert (decision.fields["canaryWeight"], decision.fields["canaryReplicas"]) == (25, 1)
    assert (decision.fields["ready"], decision.fields["replicas"]) == (True, 4)
    assert message(decision) == (
        "3 of 3 replicas of the primary are ready; the canary receives 25 % of the requests, its weight is 25"
    )


@pytest.mark.parametrize("canary", [None, live(NEW, 1, ready=0)])
def test_a_canary_that_is_not_ready_gets_no_requests(canary: LiveDeployment | None) -> None:
    decision = decide(spec(canary=25), LiveState(live(), canary))
    assert honoured(decision) == ("False", "CanaryNotReady")
    assert decision.fields["canaryWeight"] == 0
    told = next(one.message for one in decision.conditions if one.type == "CanaryHonoured")
    assert "the canary receives 0 % of the requests, its weight is 25" in told


def test_a_small_weight_is_not_honoured_by_no_requests_at_all() -> None:
    decision = decide(spec(canary=3), LiveState(live(), live(NEW, 1, ready=0)))
    assert honoured(decision) == ("False", "CanaryNotReady")


def test_a_canary_whose_weight_waits_for_more_replicas() -> None:
    decision = decide(spec(canary=100), LiveState(live(), live(NEW, 3, ready=2), weight=25))
    assert honoured(decision) == ("False", "CanaryNotReady")


def test_a_primary_that_is_not_ready_distorts_the_split() -> None:
    decision = decide(spec(canary=25), LiveState(live(ready=1), live(NEW, 1), weight=25))
    assert honoured(decision) == ("False", "PrimaryNotReady")
    assert decision.fields["canaryWeight"] == 50


def test_few_replicas_miss_the_weight() -> None:
    decision = decide(spec(canary=10, replicas=1), LiveState(live(replicas=1), live(NEW, 1), weight=10))
    assert honoured(decision) == ("False", "WeightMissed")
    assert decision.fields["ready"]
    assert message(decision).endswith("use more replicas, or a gateway")


@pytest.mark.parametrize(
    ("route", "weight", "expected"),
    [
        (Route(URL), 0, ("False", "RoutePending")),
        (Route(URL, accepted=False, message="no listener"), 0, ("False", "RouteNotAccepted")),
        (ROUTED, 25, ("True", "Honoured")),
    ],
)
def test_a_route_makes_the_split_once_it_is_accepted(route: Route, weight: int, expected: tuple[str, str]) -> None:
    decision = decide(spec(canary=25), LiveState(live(), live(NEW, 1), weight=25), "route", route=route)
    assert honoured(decision) == expected
    assert (decision.fields["url"], decision.fields["canaryWeight"]) == (URL, weight)
    assert route.message in message(decision)


@pytest.mark.parametrize(
    ("canary", "ignored"),
    [
        (CanarySpec(NEW, 25, steps=(CanaryStep(5, "1m"),)), "canary.steps are not supported yet"),
        (CanarySpec(NEW, 25, gates=CanaryGates()), "canary.gates are not supported yet"),
        (CanarySpec(NEW, 25, (CanaryStep(5, "1m"),), CanaryGates()), "canary.steps and canary.gates are not"),
    ],
)
def test_steps_and_gates_are_not_supported(canary: CanarySpec, ignored: str) -> None:
    wanted = msgspec.structs.replace(spec(), canary=canary)
    decision = decide(wanted, LiveState(live(), live(NEW, 1), weight=25))
    assert honoured(decision) == ("False", "StepsNotSupported")
    assert message(decision).startswith(ignored)
    assert honoured(decide(wanted, LiveState(live()))) == ("False", "CanaryNotReady")


def test_rounded_durations_are_named() -> None:
    wanted = ZerfooInferenceServiceSpec(OLD, 3, healthCheck=HealthCheckSpec("/", "2.5s", 1_500_000_000))
    assert message(decide(wanted, LiveState(live()))) == (
        "3 of 3 replicas of the primary are ready; healthCheck.interval 2.5s is rounded up to 3s; "
        "healthCheck.timeout 1500000000ns is rounded up to 2s"
    )


routes = st.none() | st.builds(Route, st.just(URL), st.sampled_from([None, True, False]))
problems = st.lists(
    st.builds(Problem, st.sampled_from(["NameTaken", "GatewayNotFound"]), st.just("it is missing")), max_size=2
).map(tuple)


@given(specs, states, states, st.sampled_from(SPLITS), routes, problems, st.booleans())
def test_any_state_has_a_coherent_status(
    wanted: ZerfooInferenceServiceSpec,
    before: LiveState,
    after: LiveState,
    split: Split,
    route: Route | None,
    problems: tuple[Problem, ...],
    pending: bool,
) -> None:
    desired = desired_children(REF, wanted, before, split)
    decision = decide_status(
        ServiceState(ref=REF, spec=wanted, desired=desired, live=after, route=route, problems=problems, pending=pending)
    )
    found = {one.type: one for one in decision.conditions}
    assert [one for one in CONDITIONS if one in found] == [one.type for one in decision.conditions]
    known = {(reason.condition, reason.status, reason.reason) for reason in REASONS}
    assert {(one.type, one.status, one.reason) for one in decision.conditions} <= known
    assert decision.fields["ready"] == (found["Ready"].status == "True")
    assert message(decision)
    if decision.fields["ready"]:
        assert found["Progressing"].status == "False"
        assert found["Available"].status == "True"
        assert not pending
        assert desired.canary in {"none", "active"}
        for deployment in desired.deployments:
            track = after.canary if deployment.name == "m-canary" else after.primary
            assert track is not None
            assert track.complete
            assert track.modelRef == deployment.modelRef
            assert track.replicas == deployment.replicas or desired.hpa_of(deployment) is not None
