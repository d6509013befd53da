"""The status of a ZerfooInferenceService, decided from its children. Pure."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from vmafx.api.inference import CanarySpec, ZerfooInferenceServiceSpec, ZerfooInferenceServiceStatus
from vmafx.inference.children import DesiredChildren, LiveDeployment, LiveState, ServiceRef, Track
from vmafx.inference.manifests import rounding_notes
from vmafx.inference.traffic import MAX_MISS, achieved_weight
from vmafx.runtime.conditions import NewCondition

MAX_STATUS_MESSAGE = 4096  # characters
WAITING = ("CanaryNotReady", "PrimaryNotReady", "RoutePending")  # reasons of CanaryHonoured that pass
NOT_BLOCKING = ("CannotScale", "GatewayNotFound", "NoMatchingNode")  # reasons of Degraded with which a service is ready
CONDITIONS = ("Ready", "Available", "Progressing", "Degraded", "Schedulable", "CanaryHonoured")


class Problem(NamedTuple):
    """Something that needs attention."""

    reason: str
    message: str

    @property
    def blocking(self) -> bool:
        """Whether the service cannot become ready with it."""
        return self.reason not in NOT_BLOCKING


class Route(msgspec.Struct, frozen=True):
    """The route of a service, as the gateway sees it. `accepted` is None until the gateway has answered."""

    url: str
    accepted: bool | None = None
    message: str = ""


class ServiceState(msgspec.Struct, frozen=True):
    """Everything that the status is decided from."""

    ref: ServiceRef
    spec: ZerfooInferenceServiceSpec
    desired: DesiredChildren
    live: LiveState  # after the desired children were applied
    route: Route | None = None
    problems: tuple[Problem, ...] = ()
    pending: bool = False  # a child is not applied yet
    schedulable: NewCondition | None = None  # None if no GPU is needed


class Decision(NamedTuple):
    """The fields of the status, and its conditions."""

    fields: dict[str, Any]
    conditions: tuple[NewCondition, ...]

    @property
    def status(self) -> ZerfooInferenceServiceStatus:
        """The fields as a status, without conditions."""
        return ZerfooInferenceServiceStatus(**self.fields)


def decide_status(state: ServiceState) -> Decision:
    live, canary = state.live, state.spec.canary
    problems = (*state.problems, *_problems(state))
    progress = _progress(state)
    available = _available(state)
    ready = available.status == "True" and progress.status == "False" and not any(one.blocking for one in problems)
    weight = _achieved(state)
    conditions = [
        _ready(ready, available, progress, problems),
        available,
        progress,
        _degraded(problems),
        *([state.schedulable] if state.schedulable is not None else ()),
        *([_canary_honoured(state, canary, weight)] if canary is not None else ()),
    ]
    fields = {
        "ready": ready,
        "replicas": sum(track.current for track in (live.primary, live.canary) if track is not None),
        "canaryReplicas": live.canary.current if live.canary is not None else 0,
        "canaryWeight": weight if state.desired.canary in {"active", "promoting"} else None,
        "url": state.route.url if state.route is not None else f"http://{state.ref.service}.{state.ref.namespace}.svc",
        "selector": ",".join(f"{name}={value}" for name, value in state.ref.selector().items()),
        "message": _message(state, conditions),
    }
    return Decision(fields, tuple(conditions))


def _problems(state: ServiceState) -> Iterable[Problem]:
    """Problems that the spec and the Deployments show by themselves."""
    spec = state.spec
    for name in _tracks(state):
        track = state.live.track(name)
        if track is not None and track.problem:
            yield Problem("RolloutStuck", f"{name}: {track.problem}")
        if track is not None and not track.replicas and spec.minReplicas:
            message = f"{name}: its Deployment was scaled to 0, which turns its autoscaler off: scale it to 1 or more"
            yield Problem("ScaledToZero", message)
    if spec.minReplicas and not (spec.resources and spec.resources.cpu):
        message = "autoscaling needs resources.cpu: utilization is a percentage of the CPU request"
        yield Problem("CannotScale", message)
    if state.route is not None and state.route.accepted is False:
        yield Problem("RouteNotAccepted", f"the gateway rejects the route: {state.route.message}")
    if state.schedulable is not None and state.schedulable.status == "False":
        yield Problem("NoMatchingNode", state.schedulable.message)


def _tracks(state: ServiceState) -> tuple[Track, ...]:
    """The tracks that should exist."""
    return ("primary",) if state.desired.canary == "none" else ("primary", "canary")


def _available(state: ServiceState) -> NewCondition:
    """Whether requests are answered: a track that receives them has a ready replica.

    Where both share a Service, either will do: it sends requests to ready replicas only.
    """
    tracks: tuple[Track, ...] = ("canary",) if state.live.weight == 100 else ("primary",)
    if state.route is None and 0 < state.live.weight < 100:
        tracks = ("primary", "canary")
    for name in tracks:
        track = state.live.track(name)
        if track is not None and track.ready:
            message = f"{track.ready} of {track.replicas} replicas of the {name} are ready"
            return NewCondition("Available", "True", "ReplicasReady", message)
    return NewCondition("Available", "False", "NoReplicaReady", f"no replica of the {' or the '.join(tracks)} is ready")


def _progress(state: ServiceState) -> NewCondition:
    """Whether the children are on the way to what is desired."""
    unfinished = [_describe(name, state.live.track(name)) for name in _tracks(state) if not _finished(state, name)]
    if any(track is not None and track.problem for track in map(state.live.track, _tracks(state))):
        return NewCondition("Progressing", "False", "RolloutStuck", "; ".join(unfinished) or "a rollout is stuck")
    under_way: list[tuple[str, str]] = []
    if state.desired.canary == "promoting":
        under_way.append(("Promoting", "the canary serves until all replicas of the primary have its model"))
    if unfinished:
        under_way.append(("RollingOut", "; ".join(unfinished)))
    if state.desired.canary == "retiring":
        under_way.append(("RetiringCanary", "waiting for the gateway to stop sending requests to the canary"))
    if state.route is not None and state.route.accepted is None:
        under_way.append(("RoutePending", "the gateway has not accepted the route yet"))
    if state.pending:
        under_way.append(("Applying", "not all children are applied yet"))
    if under_way:
        return NewCondition("Progressing", "True", under_way[0][0], "; ".join(message for _, message in under_way))
    return NewCondition("Progressing", "False", "Complete", "all replicas are up to date and ready")


def _finished(state: ServiceState, name: Track) -> bool:
    """Whether a Deployment is complete, with the model and the replicas that are desired now."""
    wanted = next(one for one in state.desired.deployments if one.name == state.ref.deployment(name))
    track = state.live.track(name)
    if track is None or not track.replicas:
        return False
    counted = state.desired.hpa_of(wanted) is not None or track.replicas == wanted.replicas
    return track.complete and counted and track.modelRef == wanted.modelRef


def _describe(name: Track, track: LiveDeployment | None) -> str:
    if track is None:
        return f"{name}: not created yet"
    text = f"{name}: {track.ready} of {track.replicas} replicas are ready"
    if track.updated < track.replicas or track.current > track.updated:
        text += f", {track.updated} up to date"
    return text


def _degraded(problems: tuple[Problem, ...]) -> NewCondition:
    if not problems:
        return NewCondition("Degraded", "False", "AsExpected", "")
    return NewCondition("Degraded", "True", problems[0].reason, "; ".join(one.message for one in problems))


def _ready(ready: bool, available: NewCondition, progress: NewCondition, problems: tuple[Problem, ...]) -> NewCondition:
    if ready:
        return NewCondition("Ready", "True", "Ready", "all replicas are up to date and ready")
    blocking = [one for one in problems if one.blocking]
    if blocking:
        return NewCondition("Ready", "False", blocking[0].reason, blocking[0].message)
    why = progress if progress.status == "True" else available
    return NewCondition("Ready", "False", why.reason, why.message)


def _achieved(state: ServiceState) -> int:
    """The percentage of requests that the canary receives."""
    if state.route is not None:
        return state.live.weight if state.route.accepted else 0
    primary, canary = state.live.primary, state.live.canary
    return achieved_weight(
        state.live.weight, primary.ready if primary is not None else 0, canary.ready if canary is not None else 0
    )


def _canary_honoured(state: ServiceState, canary: CanarySpec, weight: int) -> NewCondition:
    reason, message = _weight_reached(state, canary, weight)
    honoured = not reason
    if canary.steps or canary.gates is not None:
        fields = (("canary.steps", canary.steps), ("canary.gates", canary.gates))
        ignored = " and ".join(name for name, given in fields if given)
        note = f"{ignored} are not supported yet: the canary receives its weight at once"
        return NewCondition("CanaryHonoured", "False", reason or "StepsNotSupported", "; ".join([note, message]))
    return NewCondition("CanaryHonoured", "True" if honoured else "False", reason or "Honoured", message)


def _weight_reached(state: ServiceState, canary: CanarySpec, weight: int) -> tuple[str, str]:
    """The reason why the weight is not honoured, empty if it is, and a message."""
    wanted = canary.weight
    got = f"the canary receives {weight} % of the requests, its weight is {wanted}"
    if state.route is not None and not state.route.accepted:
        if state.route.accepted is None:
            return "RoutePending", f"the gateway has not accepted the route yet; {got}"
        return "RouteNotAccepted", f"the gateway rejects the route; {got}"
    if abs(weight - wanted) <= MAX_MISS and state.live.weight == wanted:
        return "", got
    if state.live.weight != wanted or not _finished(state, "canary"):
        return "CanaryNotReady", f"{_describe('canary', state.live.canary)}; {got}"
    if not _finished(state, "primary"):
        return "PrimaryNotReady", f"{_describe('primary', state.live.primary)}; {got}"
    advice = "without a gateway, requests are split by the number of replicas: use more replicas, or a gateway"
    return "WeightMissed", f"{got}; {advice}"


def _message(state: ServiceState, conditions: list[NewCondition]) -> str:
    """One line for people: what is wrong or under way, else what runs; and what was rounded."""
    by_type = {condition.type: condition for condition in conditions}
    parts = []
    if by_type["Degraded"].status == "True":
        parts.append(by_type["Degraded"].message)
    if by_type["Progressing"].status == "True" or by_type["Available"].status == "False":
        parts.append(by_type["Progressing" if by_type["Progressing"].status == "True" else "Available"].message)
    honoured, progressing = by_type.get("CanaryHonoured"), by_type["Progressing"].status == "True"
    if honoured is not None and honoured.status == "False" and not (progressing and honoured.reason in WAITING):
        parts.append(honoured.message)
    if not parts:
        parts.append(by_type["Available"].message)
        if honoured is not None:
            parts.append(honoured.message)
    return "; ".join([*parts, *rounding_notes(state.spec.healthCheck)])[:MAX_STATUS_MESSAGE]
