"""Live objects read back: what the API server returns, and what it may leave out."""

from typing import Any

import pytest

from vmafx.inference.children import LiveDeployment
from vmafx.inference.live import canary_weight, env_value, live_deployment


def deployment(env: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "server"} | ({"env": env} if env is not None else {})
    return {"template": {"spec": {"containers": [{"name": "proxy"}, container]}}, **spec}


MODEL = [{"name": "PORT", "value": "8080"}, {"name": "MODEL_REF", "value": "model:1"}]
STATUS = {"observedGeneration": 4, "replicas": 4, "updatedReplicas": 3, "readyReplicas": 2}


def test_a_deployment_is_observed() -> None:
    observed = live_deployment(4, deployment(MODEL, replicas=3), STATUS)
    assert observed == LiveDeployment("model:1", 3, ready=2, current=4, updated=3, settled=True)
    assert not observed.complete


def test_a_deployment_without_status_has_no_replicas_yet() -> None:
    assert live_deployment(1, deployment(MODEL), None) == LiveDeployment("model:1", 1)
    assert live_deployment(1, deployment(MODEL), {}) == LiveDeployment("model:1", 1)


def test_a_status_of_an_older_version_is_not_settled() -> None:
    full = {"observedGeneration": 4, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3}
    assert live_deployment(4, deployment(MODEL, replicas=3), full).complete
    assert not live_deployment(5, deployment(MODEL, replicas=3), full).complete


@pytest.mark.parametrize(
    ("conditions", "problem"),
    [
        ([], ""),
        ([{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}], ""),
        ([{"type": "ReplicaFailure", "status": "False", "reason": "FailedCreate", "message": "was"}], ""),
        ([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}], "quota"),
        ([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}], "FailedCreate"),
        ([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "late"}], "late"),
    ],
)
def test_a_problem_is_found_in_the_conditions(conditions: list[dict[str, str]], problem: str) -> None:
    assert live_deployment(4, deployment(MODEL), {**STATUS, "conditions": conditions}).problem == problem


def test_environment_variables_of_the_server_are_read() -> None:
    assert env_value(deployment(MODEL), "PORT") == "8080"
    assert env_value(deployment([{"name": "MODEL_REF", "value": "a$$(b)"}]), "MODEL_REF") == "a$(b)"
    assert env_value(deployment([{"name": "MODEL_REF", "valueFrom": {}}]), "MODEL_REF") == ""
    assert env_value(deployment(MODEL), "OTHER") == env_value(deployment(), "PORT") == ""
    assert env_value({"template": {"spec": {"containers": [{"name": "proxy"}]}}}, "PORT") == ""


@pytest.mark.parametrize(
    ("text", "weight"),
    [("m-primary=75,m-canary=25", 25), ("m-primary=100", 0), ("", 0), ("m-canary", 0), ("m-canary=x", 0)],
)
def test_the_weight_of_the_canary_is_read(text: str, weight: int) -> None:
    assert canary_weight({"vmafx.dev/weights": text}, "m-canary") == weight
    assert canary_weight({}, "m-canary") == 0
