"""What users do to inference services in a run under faults: determined by a seed, so that a run can be repeated."""

import random
from collections import Counter
from typing import Any, Literal, NamedTuple, get_args

from tests.support.serving import IMAGE

Action = Literal[
    "scale", "model", "canary", "weight", "promote", "abort", "autoscale", "stop autoscaling", "replace", "settle",
    "delete",
]  # fmt: skip
WEIGHTS = (0, 25, 50, 100, 100)
MAX_PAUSE = 1.2  # seconds between two edits: shorter and longer than a rollout


class Edit(NamedTuple):
    """One edit: a patch of the spec, or the whole spec of a service that replaces this one."""

    action: Action
    pause: float  # before it, in seconds
    spec: dict[str, Any] = {}


class PlannedService(NamedTuple):
    name: str
    created: dict[str, Any]  # its spec at first
    edits: tuple[Edit, ...]
    spec: dict[str, Any] | None  # at the end; None if it is deleted


def make_services(seed: int, count: int, edits: int) -> list[PlannedService]:
    """Services with `edits` edits each; every action occurs about equally often, where it is possible.

    The first service is autoscaled all the time, the last one is deleted at the end.
    """
    rng, used = random.Random(seed), Counter[Action]()
    return [_plan(number, rng, used, edits, deleted=number == count - 1) for number in range(count)]


def actions(services: list[PlannedService]) -> set[Action]:
    return {edit.action for service in services for edit in service.edits}


def _plan(number: int, rng: random.Random, used: Counter[Action], edits: int, *, deleted: bool) -> PlannedService:
    model, kept = 1, {"replace", "stop autoscaling"} if number == 0 else set()
    spec = _new_spec(rng, model)
    if number == 0:
        spec |= {"minReplicas": 1, "maxReplicas": 4}
    created, planned = dict(spec), list[Edit]()
    while len(planned) < edits:
        possible = [action for action in get_args(Action) if action not in kept and _possible(action, spec, planned)]
        action = min(possible, key=lambda one: (used[one], rng.random()))
        used[action] += 1
        if action in {"model", "canary", "replace"}:
            model += 1
        patch = _new_spec(rng, model) if action == "replace" else _patch(action, spec, rng, model)
        spec = patch if action == "replace" else _merged(spec, patch)
        planned.append(Edit(action, rng.uniform(0, MAX_PAUSE) if rng.random() < 0.7 else 0.0, patch))
    if deleted:
        planned.append(Edit("delete", rng.uniform(0, MAX_PAUSE)))
    return PlannedService(f"s{number}", created, tuple(planned), None if deleted else spec)


def _new_spec(rng: random.Random, model: int) -> dict[str, Any]:
    resources = {"cpu": "10m"}
    return {"modelRef": f"model:{model}", "image": IMAGE, "replicas": rng.randint(1, 3), "resources": resources}


def _possible(action: Action, spec: dict[str, Any], planned: list[Edit]) -> bool:
    match action:
        case "canary":
            return not spec.get("canary")
        case "weight" | "promote" | "abort":
            return bool(spec.get("canary"))
        case "autoscale":
            return not spec.get("minReplicas")
        case "stop autoscaling":
            return bool(spec.get("minReplicas"))
        case "settle":
            return not planned or planned[-1].action != "settle"
        case "delete":
            return False  # only at the end
    return True


def _patch(action: Action, spec: dict[str, Any], rng: random.Random, model: int) -> dict[str, Any]:
    match action:
        case "scale":
            return {"replicas": rng.choice([count for count in (1, 2, 3, 4) if count != spec["replicas"]])}
        case "model":
            return {"modelRef": f"model:{model}"}
        case "canary":
            return {"canary": {"modelRef": f"model:{model}", "weight": rng.choice(WEIGHTS)}}
        case "weight":
            return {"canary": {"weight": rng.choice([one for one in WEIGHTS if one != spec["canary"]["weight"]])}}
        case "promote":
            return {"modelRef": spec["canary"]["modelRef"], "canary": None}
        case "abort":
            return {"canary": None}
        case "autoscale":
            return {"minReplicas": rng.randint(1, 2), "maxReplicas": 4}
        case "stop autoscaling":
            return {"minReplicas": 0, "maxReplicas": 0}
    return {}


def _merged(spec: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The spec after a merge patch."""
    merged = {**spec, **patch}
    if patch.get("canary") and spec.get("canary"):
        merged["canary"] = {**spec["canary"], **patch["canary"]}
    return {name: value for name, value in merged.items() if value is not None}
