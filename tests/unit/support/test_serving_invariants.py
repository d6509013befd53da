"""The invariants of inference services find what they are for."""

from typing import Any

from tests.support.job_history import Change, Kind, Object
from tests.support.serving_invariants import violations
from vmafx.inference.children import SERVICE_LABEL, TRACK_LABEL
from vmafx.operator.context import FIELD_MANAGER

PRIMARY = {SERVICE_LABEL: "m", TRACK_LABEL: "primary"}
CANARY = {SERVICE_LABEL: "m", TRACK_LABEL: "canary"}


class History:
    """Builds a history: every change is a creation, an update or a deletion of what is there."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._objects: dict[tuple[Kind, str], Object] = {}

    def put(self, kind: Kind, name: str, uid: str, owner: str = "", **more: Any) -> None:
        meta = {"uid": uid, "generation": 1, **more.pop("metadata", {})}
        if owner:
            meta["ownerReferences"] = [{"uid": owner, "name": "m"}]
        self._add(kind, name, {"metadata": meta, **more})

    def delete(self, kind: Kind, name: str) -> None:
        self._add(kind, name, None)

    def _add(self, kind: Kind, name: str, new: Object | None) -> None:
        self.changes.append(Change(len(self.changes), kind, name, self._objects.pop((kind, name), None), new))
        if new is not None:
            self._objects[kind, name] = new

    def texts(self) -> list[str]:
        return [one.text for one in violations(self.changes)]


def deployment(replicas: int, model: str = "a", ready: int = 0, manager: tuple[str, str] = ("x", "scale")) -> Object:
    container = {"name": "server", "env": [{"name": "MODEL_REF", "value": model}]}
    counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas"), ready)
    entry = {"manager": manager[0], "subresource": manager[1], "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    return {
        "metadata": {"managedFields": [entry]},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
        "status": {**counts, "observedGeneration": 1},
    }


def served() -> History:
    """A service whose primary has a ready Pod."""
    history = History()
    history.put("inference service", "m", "u", spec={"modelRef": "a", "replicas": 1})
    history.put("deployment", "m-primary", "d", "u", **deployment(1, ready=1))
    history.put("replica set", "m-primary-1", "r", "d")
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    history.put("pod", "p", "p", "r", metadata={"labels": PRIMARY}, status=ready)
    history.put("service", "m-svc", "s", "u", spec={"selector": PRIMARY})
    return history


def ready_status(generation: int = 1) -> Object:
    return {"observedGeneration": generation, "conditions": [{"type": "Ready", "status": "True"}]}


def test_a_service_that_serves_has_no_violation() -> None:
    history = served()
    history.put("inference service", "m", "u", spec={"modelRef": "a", "replicas": 1}, status=ready_status())
    assert history.texts() == []


def test_replicas_of_an_autoscaled_deployment_that_the_operator_sets_are_found() -> None:
    history = served()
    history.put("autoscaler", "m-primary-hpa", "h", "u")
    history.put("deployment", "m-primary", "d", "u", **deployment(4))
    assert history.texts() == []
    history.put("deployment", "m-primary", "d", "u", **deployment(1, manager=(FIELD_MANAGER, "")))
    reset, taken = history.texts()
    assert "its replicas went from 4 to 1" in reset
    assert taken == "the operator takes its replicas although it has an autoscaler"


def test_an_autoscaler_that_a_former_leader_creates_too_late_does_not_count() -> None:
    for wanted, found in ((1, 2), (0, 0)):
        history = served()
        spec = {"modelRef": "a", "replicas": 3, "minReplicas": wanted}
        history.put("inference service", "m", "u", spec=spec)
        history.put("autoscaler", "m-primary-hpa", "h", "u")
        history.put("deployment", "m-primary", "d", "u", **deployment(3, manager=(FIELD_MANAGER, "")))
        assert len(history.texts()) == found


def test_a_gap_is_found() -> None:
    history = served()
    history.put("service", "m-svc", "s", "u", spec={"selector": CANARY})
    assert history.texts() == [f"m-svc selects no ready Pod with {CANARY}"]


def test_a_gap_after_an_autoscaler_scaled_a_rollout_is_not_the_operators() -> None:
    history = served()
    history.put("deployment", "m-primary", "d", "u", **deployment(4, ready=1))
    history.put("deployment", "m-primary", "d", "u", **deployment(1, ready=1))
    history.put("deployment", "m-primary", "d", "u", **deployment(4, ready=1))
    rollout = len(history.changes)
    history.put("deployment", "m-primary", "d", "u", **deployment(2, ready=1))
    history.delete("pod", "p")
    assert history.texts() == []
    del history.changes[rollout]
    assert history.texts() == [f"m-svc selects no ready Pod with {PRIMARY}"]


def test_a_deleted_primary_is_found_unless_its_service_is_deleted() -> None:
    history = served()
    history.delete("deployment", "m-primary")
    assert history.texts() == ["was deleted while its owner is live"]
    history = served()
    history.delete("inference service", "m")
    history.delete("deployment", "m-primary")
    assert history.texts() == []


def test_another_owner_is_found() -> None:
    history = served()
    history.put("service", "m-svc", "s", "other", spec={"selector": PRIMARY})
    assert history.texts() == ["its owner m other has never existed", "its owner went from u to other"]


def test_a_generation_that_goes_back_and_an_early_ready_are_found() -> None:
    history, spec = served(), {"modelRef": "b", "replicas": 1}
    later = {"generation": 2}
    history.put("inference service", "m", "u", metadata=later, spec=spec, status=ready_status(2))
    assert history.texts() == ["is ready, but its primary has a, not b"]
    history.put("inference service", "m", "u", metadata=later, spec=spec, status=ready_status(1))
    assert history.texts()[1:] == ["observedGeneration went from 2 to 1"]
