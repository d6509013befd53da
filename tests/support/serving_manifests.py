"""A Deployment and a Service in the shape of those of an inference service, created by hand."""

from typing import Any

from vmafx.inference.children import SERVICE_LABEL, TRACK_LABEL, Track
from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import ENDPOINT_SLICES

PORT = 9000
PRE_STOP_SECONDS = 5


async def ready_endpoints(client: Client, service: ObjectKey) -> set[str]:
    """The addresses of the Pods to which a Service sends requests."""
    labels = f"kubernetes.io/service-name={service.name}"
    slices = (await client.list(ENDPOINT_SLICES.decoded_as(dict), service.namespace, labels=labels)).items
    endpoints = [one for found in slices for one in found.get("endpoints") or ()]
    return {one["addresses"][0] for one in endpoints if one["conditions"]["ready"]}


def deployment(name: str, track: Track, replicas: int) -> dict[str, Any]:
    labels = {SERVICE_LABEL: name, TRACK_LABEL: track}
    container = {
        "name": "server",
        "image": "model-server",
        "ports": [{"name": "http", "containerPort": PORT}],
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
    }
    return {
        "metadata": {"name": f"{name}-{track}", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def service(name: str, track: Track) -> dict[str, Any]:
    labels = {SERVICE_LABEL: name, TRACK_LABEL: track}
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    return {"metadata": {"name": f"{name}-{track}", "labels": labels}, "spec": {"selector": labels, "ports": ports}}
