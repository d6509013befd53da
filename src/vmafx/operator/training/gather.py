"""What is live of a training: its Deployment, read from the cache or, where that is older, from the last sync."""

from typing import Any

from vmafx.operator.training.decide import LiveTrainer
from vmafx.runtime.child import Child


def live_trainer(deployment: Child | None) -> LiveTrainer | None:
    if deployment is None:
        return None
    status: dict[str, Any] = deployment["status"] or {}
    settled = status.get("observedGeneration", 0) >= deployment.metadata.generation
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    # When the Deployment controller has seen a new generation, its condition is still that of the last rollout.
    available = conditions.get("Progressing", {}).get("reason") == "NewReplicaSetAvailable"
    return LiveTrainer(
        generation=deployment.metadata.generation,
        ready=status.get("readyReplicas", 0),
        rolled_out=settled and available and status.get("updatedReplicas", 0) > 0,
        problem=_problem(conditions) if settled else "",
    )


def _problem(conditions: dict[str, Any]) -> str:
    """Why a Deployment makes no progress."""
    failure, progressing = conditions.get("ReplicaFailure", {}), conditions.get("Progressing", {})
    if failure.get("status") == "True":
        return str(failure.get("message") or failure["reason"])
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return str(progressing.get("message") or progressing["reason"])
    return ""
