"""A trainer's Deployment, as the Deployment controller reports it."""

from typing import Any

import msgspec
import pytest

from vmafx.operator.training.decide import LiveTrainer
from vmafx.operator.training.gather import live_trainer
from vmafx.runtime.child import Child

AVAILABLE = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
UPDATED = {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"}
TIMED_OUT = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
NO_POD = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}


def deployment(**status: Any) -> Child:
    body = {"metadata": {"name": "d", "generation": 2}, "spec": {}, "status": status}
    return msgspec.json.decode(msgspec.json.encode(body), type=Child)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, LiveTrainer(2, 0)),
        ({"observedGeneration": 1, "conditions": [AVAILABLE]}, LiveTrainer(2, 0)),  # of the version before
        ({"observedGeneration": 1, "conditions": [TIMED_OUT]}, LiveTrainer(2, 0)),
        ({"observedGeneration": 2, "conditions": [UPDATED]}, LiveTrainer(2, 0)),
        # The new generation is seen, but its Pod is not there yet.
        ({"observedGeneration": 2, "readyReplicas": 1, "conditions": [AVAILABLE]}, LiveTrainer(2, 1)),
        (
            {"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 1, "conditions": [AVAILABLE]},
            LiveTrainer(2, 1, rolled_out=True),
        ),
        ({"observedGeneration": 2, "conditions": [TIMED_OUT]}, LiveTrainer(2, 0, problem="timed out")),
        ({"observedGeneration": 2, "conditions": [UPDATED, NO_POD]}, LiveTrainer(2, 0, problem="exceeded quota")),
    ],
)
def test_what_a_deployment_says_about_its_trainer(status: dict[str, Any], expected: LiveTrainer) -> None:
    assert live_trainer(deployment(**status)) == expected
    assert live_trainer(None) is None
