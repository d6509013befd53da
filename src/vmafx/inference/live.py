"""Reads Deployments, Services and HPAs as the API server returns them. Pure."""

from vmafx.api.inference import MODEL_VARIABLE
from vmafx.inference.children import LiveDeployment
from vmafx.inference.manifests import CONTAINER, WEIGHTS_ANNOTATION, Manifest, parse_weights


def live_deployment(generation: int, spec: Manifest, status: Manifest | None) -> LiveDeployment:
    """A Deployment as observed, from the parts of the object."""
    status = status or {}
    return LiveDeployment(
        modelRef=env_value(spec, MODEL_VARIABLE),
        replicas=spec.get("replicas", 1),
        ready=status.get("readyReplicas", 0),
        current=status.get("replicas", 0),
        updated=status.get("updatedReplicas", 0),
        settled=status.get("observedGeneration", 0) >= generation,
        problem=_problem(status),
    )


def env_value(spec: Manifest, name: str) -> str:
    """The value of an environment variable of the server; empty if it has none."""
    values = [entry.get("value", "") for entry in server_of(spec).get("env", ()) if entry["name"] == name]
    return values[0].replace("$$", "$") if values else ""


def server_of(spec: Manifest) -> Manifest:
    """The container of the server; empty if somebody removed it."""
    containers: list[Manifest] = spec["template"]["spec"]["containers"]
    return next((container for container in containers if container["name"] == CONTAINER), {})


def canary_weight(annotations: dict[str, str], canary: str) -> int:
    """The weight of the Deployment `canary` that the annotations of a Service state."""
    weights = parse_weights(annotations.get(WEIGHTS_ANNOTATION, ""))
    return next((target.weight for target in weights if target.deploymentName == canary), 0)


def _problem(status: Manifest) -> str:
    """Why a Deployment makes no progress, from its conditions."""
    for condition in status.get("conditions", ()):
        failed = condition["type"] == "ReplicaFailure" and condition["status"] == "True"
        if failed or condition.get("reason") == "ProgressDeadlineExceeded":
            message: str = condition.get("message") or condition["reason"]
            return message
    return ""
