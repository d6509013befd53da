"""The children of a service, decided from its spec and what is live."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.api.inference import CanarySpec, HealthCheckSpec, ResourceSpec, ZerfooInferenceServiceSpec
from vmafx.inference.children import (
    HPA,
    Deployment,
    DesiredChildren,
    LiveDeployment,
    LiveState,
    Service,
    ServiceRef,
    Split,
    WeightedTarget,
    desired_children,
)

REF = ServiceRef("media", "m")
OLD, NEW = "model:1", "model:2"
SPLITS: list[Split] = ["replicas", "route"]


def live(model: str = OLD, replicas: int = 3, ready: int | None = None) -> LiveDeployment:
    """A Deployment that is complete, unless `ready` is lower."""
    ready = replicas if ready is None else ready
    return LiveDeployment(model, replicas, ready=ready, current=replicas, updated=replicas, settled=True)


def spec(canary: int | None = None, model: str = OLD, replicas: int = 3, **more: Any) -> ZerfooInferenceServiceSpec:
    """With a weight for the canary, if there is one."""
    made = CanarySpec(NEW, canary) if canary is not None else None
    return ZerfooInferenceServiceSpec(model, replicas=replicas, canary=made, **more)


def replicas(children: DesiredChildren) -> dict[str, tuple[str, int]]:
    return {one.name: (one.modelRef, one.replicas) for one in children.deployments}


def called(children: DesiredChildren) -> Service:
    return next(one for one in children.services if one.name == "m-svc")


def weights(primary: int, canary: int) -> tuple[WeightedTarget, ...]:
    return (WeightedTarget("m-primary", primary), WeightedTarget("m-canary", canary))


def test_a_service_without_a_canary_has_a_deployment_and_two_services() -> None:
    resources, health = ResourceSpec("4", "16Gi", "24Gi"), HealthCheckSpec("/ready", "5s", "1s")
    given_spec = ZerfooInferenceServiceSpec(
        OLD, 3, resources=resources, healthCheck=health, gpuVendor="nvidia", port=9000, image="registry.example.com/s:1"
    )
    children = desired_children(REF, given_spec, LiveState())
    assert children == DesiredChildren(
        deployments=(
            Deployment(
                "m-primary", "media", 3, OLD, resources, health, "registry.example.com/s:1", port=9000,
                gpuVendor="nvidia",
            ),
        ),
        services=(
            Service("m-svc", "media", {"vmafx.dev/service": "m", "vmafx.dev/track": "primary"}),
            Service("m-primary", "media", {"vmafx.dev/service": "m", "vmafx.dev/track": "primary"}),
        ),
        hpas=(),
        canary="none",
        weight=0,
    )  # fmt: skip


def test_names() -> None:
    assert (REF.deployment("primary"), REF.deployment("canary")) == ("m-primary", "m-canary")
    assert (REF.service, REF.track_service("canary"), REF.hpa("primary")) == ("m-svc", "m-canary", "m-primary-hpa")
    assert REF.selector() == {"vmafx.dev/service": "m"}
    assert REF.selector("canary") == {"vmafx.dev/service": "m", "vmafx.dev/track": "canary"}


@pytest.mark.parametrize("split", SPLITS)
def test_a_new_canary_gets_no_requests_until_it_is_ready(split: Split) -> None:
    for canary in (None, live(NEW, 1, ready=0)):
        children = desired_children(REF, spec(canary=25), LiveState(live(), canary), split)
        assert replicas(children) == {"m-primary": (OLD, 3), "m-canary": (NEW, 1)}
        assert (children.canary, children.weight) == ("active", 0)
        assert called(children) == Service("m-svc", "media", REF.selector("primary"), weights(100, 0))
        assert [one.name for one in children.services] == ["m-svc", "m-primary", "m-canary"]


def test_with_replicas_the_called_service_selects_both_tracks_while_both_get_requests() -> None:
    children = desired_children(REF, spec(canary=25), LiveState(live(), live(NEW, 1)))
    assert children.weight == 25
    assert called(children) == Service("m-svc", "media", REF.selector(), weights(75, 25))


def test_with_a_route_the_called_service_bypasses_the_weights() -> None:
    children = desired_children(REF, spec(canary=25), LiveState(live(), live(NEW, 1)), "route")
    assert called(children) == Service("m-svc", "media", REF.selector("primary"), weights(75, 25))


@pytest.mark.parametrize("split", SPLITS)
def test_a_canary_with_all_requests_takes_the_place_of_the_primary(split: Split) -> None:
    children = desired_children(REF, spec(canary=100), LiveState(live(), live(NEW, 3), weight=50), split)
    assert replicas(children) == {"m-primary": (OLD, 3), "m-canary": (NEW, 3)}
    assert called(children) == Service("m-svc", "media", REF.selector("canary"), weights(0, 100))


@pytest.mark.parametrize("split", SPLITS)
def test_the_last_step_waits_for_all_replicas_of_the_canary(split: Split) -> None:
    state = LiveState(live(), live(NEW, 3, ready=2), weight=50)
    assert desired_children(REF, spec(canary=100), state, split).weight == 50


def test_the_number_of_canary_replicas_makes_the_split_or_carries_the_share() -> None:
    state = LiveState(live(replicas=4), live(NEW, 1))
    assert replicas(desired_children(REF, spec(canary=50, replicas=4), state))["m-canary"] == (NEW, 4)
    assert replicas(desired_children(REF, spec(canary=50, replicas=4), state, "route"))["m-canary"] == (NEW, 2)


def test_a_canary_without_weight_is_kept_without_requests() -> None:
    children = desired_children(REF, spec(canary=0), LiveState(live(), live(NEW, 1)))
    assert replicas(children)["m-canary"] == (NEW, 1)
    assert called(children) == Service("m-svc", "media", REF.selector("primary"), weights(100, 0))


ROLLING = [
    live(OLD),  # not changed yet
    live(NEW, 3, ready=2),
    LiveDeployment(NEW, 3, ready=3, current=4, updated=3, settled=True),  # an old replica still exists
    LiveDeployment(NEW, 3, ready=3, current=3, updated=3, settled=False),  # the status is about the old version
    LiveDeployment(NEW, 3, ready=3, current=3, updated=1, settled=True),
    None,
]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("primary", ROLLING)
def test_a_promoted_canary_serves_until_the_primary_has_its_model(primary: LiveDeployment | None, split: Split) -> None:
    promoted = spec(model=NEW)
    children = desired_children(REF, promoted, LiveState(primary, live(NEW, 1), weight=25), split)
    assert (children.canary, children.weight) == ("promoting", 25)
    assert replicas(children) == {"m-primary": (NEW, 3), "m-canary": (NEW, 1)}
    assert called(children).weights == weights(75, 25)


def test_a_promoted_canary_is_removed_when_the_primary_is_complete() -> None:
    children = desired_children(REF, spec(model=NEW), LiveState(live(NEW), live(NEW, 1), weight=25))
    assert (children.canary, children.weight, set(replicas(children))) == ("none", 0, {"m-primary"})
    assert called(children) == Service("m-svc", "media", REF.selector("primary"))


def test_a_canary_without_requests_is_not_waited_for() -> None:
    children = desired_children(REF, spec(model=NEW), LiveState(live(OLD), live(NEW, 1), weight=0))
    assert children.canary == "none"


@pytest.mark.parametrize("weight", [0, 25, 100])
def test_an_aborted_canary_is_removed_at_once_without_a_gateway(weight: int) -> None:
    children = desired_children(REF, spec(), LiveState(live(), live(NEW, 1), weight))
    assert (children.canary, children.weight) == ("none", 0)
    assert replicas(children) == {"m-primary": (OLD, 3)}


@pytest.mark.parametrize("model", [OLD, NEW])
def test_a_canary_retires_while_a_gateway_may_send_requests_to_it(model: str) -> None:
    state = LiveState(live(model), live(NEW, 2), weight=25, routed_to_canary=True)
    children = desired_children(REF, spec(model=model), state, "route")
    assert (children.canary, children.weight) == ("retiring", 0)
    assert replicas(children)["m-canary"] == (NEW, 2)  # not scaled down under load
    assert called(children).weights == ()


def test_autoscaling_starts_within_its_limits_and_keeps_the_live_number() -> None:
    for wanted, started in ((1, 2), (3, 3), (9, 5)):
        scaled = spec(replicas=wanted, minReplicas=2, maxReplicas=5)
        children = desired_children(REF, scaled, LiveState())
        assert replicas(children) == {"m-primary": (OLD, started)}
        assert children.hpas == (HPA("m-primary-hpa", "media", "m-primary", 2, 5),)
        assert children.hpa_of(children.deployments[0]) == children.hpas[0]
    assert replicas(desired_children(REF, scaled, LiveState(live(replicas=4)))) == {"m-primary": (OLD, 4)}


def test_without_autoscaling_the_spec_decides() -> None:
    children = desired_children(REF, spec(replicas=2), LiveState(live(replicas=4)))
    assert replicas(children) == {"m-primary": (OLD, 2)}
    assert children.hpa_of(children.deployments[0]) is None


def test_with_replicas_the_canary_follows_the_autoscaled_primary() -> None:
    scaled = spec(canary=25, minReplicas=2, maxReplicas=20)
    children = desired_children(REF, scaled, LiveState(live(replicas=9), live(NEW, 1)))
    assert replicas(children) == {"m-primary": (OLD, 9), "m-canary": (NEW, 3)}
    assert [hpa.targetRef for hpa in children.hpas] == ["m-primary"]


def minimums(children: DesiredChildren) -> dict[str, int]:
    return {hpa.targetRef: hpa.minReplicas for hpa in children.hpas}


def test_with_a_route_the_canary_scales_by_itself() -> None:
    scaled = spec(canary=25, minReplicas=4, maxReplicas=20)
    children = desired_children(REF, scaled, LiveState(live(replicas=12), live(NEW, 5)), "route")
    assert replicas(children) == {"m-primary": (OLD, 12), "m-canary": (NEW, 5)}
    assert children.hpas[1] == HPA("m-canary-hpa", "media", "m-canary", 3, 20)
    new = desired_children(REF, scaled, LiveState(live(replicas=12)), "route")
    assert replicas(new)["m-canary"] == (NEW, 3)


@pytest.mark.parametrize("split", SPLITS)
def test_an_autoscaled_primary_keeps_its_replicas_while_a_canary_shares_its_requests(split: Split) -> None:
    """An abort sends all requests back at once: to as many replicas as they had."""
    scaled: dict[str, Any] = {"minReplicas": 2, "maxReplicas": 20}
    shared = desired_children(REF, spec(canary=50, **scaled), LiveState(live(replicas=15), live(NEW, 8)), split)
    assert minimums(shared)["m-primary"] == 15
    aborting = desired_children(REF, spec(**scaled), LiveState(live(replicas=15), live(NEW, 8), weight=0), split)
    assert minimums(aborting)["m-primary"] == 2
    warm = desired_children(REF, spec(canary=0, **scaled), LiveState(live(replicas=15), live(NEW, 1)), split)
    assert minimums(warm)["m-primary"] == 2


def test_a_canary_with_all_requests_has_an_autoscaler_even_without_a_route() -> None:
    """The primary's no longer sees any load."""
    scaled = spec(canary=100, minReplicas=2, maxReplicas=20)
    children = desired_children(REF, scaled, LiveState(live(replicas=15), live(NEW, 15), weight=100))
    assert minimums(children) == {"m-primary": 15, "m-canary": 15}


def test_a_route_raises_the_weight_when_the_canary_can_carry_the_load_of_the_live_primary() -> None:
    """Not when it has its share of minReplicas only."""
    scaled = spec(canary=100, minReplicas=2, maxReplicas=20)
    before = desired_children(REF, scaled, LiveState(live(replicas=15), live(NEW, 2), weight=5), "route")
    assert (before.weight, minimums(before)["m-canary"]) == (5, 15)
    after = desired_children(REF, scaled, LiveState(live(replicas=15), live(NEW, 15), weight=5), "route")
    assert after.weight == 100


deployments = st.builds(
    LiveDeployment,
    modelRef=st.sampled_from([OLD, NEW]),
    replicas=st.integers(1, 9),
    ready=st.integers(0, 9),
    current=st.integers(0, 9),
    updated=st.integers(0, 9),
    settled=st.booleans(),
)
states = st.builds(
    LiveState,
    primary=st.none() | deployments,
    canary=st.none() | deployments,
    weight=st.integers(0, 100),
    routed_to_canary=st.booleans(),
)
specs = st.builds(
    spec,
    canary=st.none() | st.integers(0, 100),
    model=st.sampled_from([OLD, "model:3"]),
    replicas=st.integers(1, 9),
    minReplicas=st.integers(0, 3),
    maxReplicas=st.integers(3, 9),
)


@given(specs, states, st.sampled_from(SPLITS))
def test_requests_go_only_where_replicas_answer(
    wanted: ZerfooInferenceServiceSpec, state: LiveState, split: Split
) -> None:
    children = desired_children(REF, wanted, state, split)
    names = {one.name for one in children.deployments}
    assert "m-primary" in names
    assert {one.name for one in children.services} == names | {"m-svc"}
    assert ("m-canary" in names) == (children.canary != "none")
    assert all(one.replicas >= 1 for one in children.deployments)
    assert {hpa.targetRef for hpa in children.hpas} <= names
    assert all(1 <= hpa.minReplicas <= hpa.maxReplicas for hpa in children.hpas)
    if children.weight:
        assert state.canary is not None
        assert state.canary.ready
    service = called(children)
    assert {target.deploymentName for target in service.weights} <= names
    assert sum(target.weight for target in service.weights) in {0, 100}
    if "m-canary" not in names:
        assert service.selector == REF.selector("primary")
