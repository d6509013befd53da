"""The manifest of a worker Pod: one attempt at a job on a node. Pure."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from vmafx.api.hardware import AUTO, BACKEND_VARIABLE, INTEL_DEVICE, gpu_resource
from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.api.pod import PodOverlay, ResourceRequirements
from vmafx.api.restricted import (
    SCRATCH_ENVIRONMENT,
    SCRATCH_LIMIT_VARIABLE,
    SCRATCH_VOLUME,
    env_entries,
    restricted_container,
    restricted_pod,
    scratch_mount,
    scratch_volume,
)
from vmafx.api.scoring import AUTO_THREADS_VARIABLE, CORES_PER_JOB, MAX_THREADS
from vmafx.api.units import quantity
from vmafx.jobs.attempt import (
    CREDENTIAL_PREFIX,
    CREDENTIAL_VARIABLES,
    SAMPLES_TOKEN_VARIABLE,
    SAMPLES_URL_VARIABLE,
    SPEC_VARIABLE,
)
from vmafx.jobs.state import attempt_spec
from vmafx.kube import JOBS
from vmafx.operator.context import FIELD_MANAGER
from vmafx.operator.job.pod_cache import ATTEMPT_LABEL, JOB_LABEL, WORKER_CONTAINER
from vmafx.runtime.child import MANAGED_BY, owner_reference

NODE_LABEL = "vmafx.dev/node"
# Isolated: variables such as PYTHONPATH and PYTHONWARNINGS, which can run code at the start, have no effect.
COMMAND = ("python3", "-I", "-m", "vmafx.worker.main")
# Set in any case: else variables of the node could set them.
NO_SAMPLES = {SAMPLES_URL_VARIABLE: "", SAMPLES_TOKEN_VARIABLE: ""}
KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
TERMINATION_GRACE = 30  # seconds
MAX_SCRATCH_LIMIT = 1 << 59  # bytes; more is no limit
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
# Jobs leave an unreachable Kubernetes node after one minute instead of the default five.
TOLERATIONS = [
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    for taint in ("not-ready", "unreachable")
]


class PodSettings(msgspec.Struct, frozen=True):
    """What all worker Pods of an operator have in common, unless their node sets it. An empty quantity is none."""

    image: str
    intel_device: str = INTEL_DEVICE
    cpu_request: str = ""
    memory_request: str = ""
    memory_limit: str = ""
    scratch_limit: str = ""
    pull_secrets: tuple[str, ...] = ()


def without_resources(settings: PodSettings) -> PodSettings:
    """The settings for a namespace whose LimitRange contradicts them, and has resources of its own."""
    return msgspec.structs.replace(settings, cpu_request="", memory_request="", memory_limit="")


def pod_name(job: JobView, attempt: int) -> str:
    return f"{job.metadata.name}-{attempt}"


def make_pod(
    job: JobView,
    node: NodeView,
    attempt: int,
    settings: PodSettings,
    avoid: frozenset[str] = frozenset(),
    variables: Mapping[str, str] = {},
) -> dict[str, Any]:
    """The Pod of an attempt. `avoid` names Kubernetes nodes on which earlier attempts ended.

    `variables` are further environment variables of the worker.
    """
    overlay = node.spec.podTemplate or PodOverlay()
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        **restricted_pod(settings.pull_secrets),
        "terminationGracePeriodSeconds": TERMINATION_GRACE,
        "tolerations": [*TOLERATIONS, *_gpu_tolerations(job, node, settings), *_plain(overlay.tolerations)],
        "volumes": _volumes(settings, overlay),
        "containers": [_container(job, node, attempt, settings, overlay, variables)],
    }
    for name in ("imagePullSecrets", "nodeSelector", "runtimeClassName", "priorityClassName"):
        if value := getattr(overlay, name):
            spec[name] = _plain(value)
    if affinity := _affinity(overlay, avoid):
        spec["affinity"] = affinity
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(job, node, attempt), "spec": spec}


def _metadata(job: JobView, node: NodeView, attempt: int) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/name": "vmafx-worker",
        MANAGED_BY: FIELD_MANAGER,
        JOB_LABEL: job.metadata.name,
        ATTEMPT_LABEL: str(attempt),
    }
    if len(node.metadata.name) <= 63:  # the maximum length of a label value
        labels[NODE_LABEL] = node.metadata.name
    if queue := job.metadata.labels.get(KUEUE_LABEL):
        labels[KUEUE_LABEL] = queue
    return {
        "name": pod_name(job, attempt),
        "namespace": job.metadata.namespace,
        "labels": labels,
        "ownerReferences": [owner_reference(JOBS, job.metadata.name, job.metadata.uid)],
    }


def _container(
    job: JobView,
    node: NodeView,
    attempt: int,
    settings: PodSettings,
    overlay: PodOverlay,
    variables: Mapping[str, str],
) -> dict[str, Any]:
    # Escape $: the kubelet expands $(NAME), which would let a URI read other variables, such as secrets.
    work = msgspec.json.encode(attempt_spec(job, attempt)).decode().replace("$", "\\u0024")
    resources = _resources(job, node, settings, overlay)
    limits = {**_scratch_limit(settings, overlay), AUTO_THREADS_VARIABLE: str(_threads(resources))}
    env = [
        {"name": SPEC_VARIABLE, "value": work},
        {"name": BACKEND_VARIABLE, "value": job.spec.backend or AUTO},
        *env_entries({**SCRATCH_ENVIRONMENT, **limits, **NO_SAMPLES, **variables}),
        *_credentials(job),
    ]
    container: dict[str, Any] = {
        "name": WORKER_CONTAINER,
        "image": node.spec.image or settings.image,
        "command": list(COMMAND),
        "env": [*_plain(overlay.env), *env],  # the last one wins: the operator's
        "resources": resources,
        "terminationMessagePolicy": "File",
        "volumeMounts": [scratch_mount(), *_plain(overlay.volumeMounts)],
        **restricted_container(),
    }
    return container | ({"envFrom": _plain(overlay.envFrom)} if overlay.envFrom else {})


def _credentials(job: JobView) -> list[dict[str, Any]]:
    """The credentials of the job, under names of their own: variables in `env` would override `envFrom` of the node."""
    if (secret := job.spec.credentialsSecretRef) is None:
        return []
    return [
        {
            "name": f"{CREDENTIAL_PREFIX}{key}",
            "valueFrom": {"secretKeyRef": {"name": secret.name, "key": key, "optional": True}},
        }
        for key in CREDENTIAL_VARIABLES
    ]


def _volumes(settings: PodSettings, overlay: PodOverlay) -> list[dict[str, Any]]:
    """The scratch volume and those of the node, which may set fields of the scratch volume's emptyDir."""
    others = [volume for volume in _plain(overlay.volumes) if not _is_scratch(volume)]
    return [scratch_volume(**_scratch_fields(settings, overlay)), *others]


def _scratch_fields(settings: PodSettings, overlay: PodOverlay) -> dict[str, Any]:
    """The fields of the scratch volume's emptyDir."""
    own = [volume["emptyDir"] for volume in _plain(overlay.volumes) if _is_scratch(volume)]
    fields = {key: value for one in own for key, value in one.items()}
    if settings.scratch_limit and _storage_limit(overlay) is None:
        fields.setdefault("sizeLimit", settings.scratch_limit)
    return fields


def _is_scratch(volume: Mapping[str, Any]) -> bool:
    return volume["name"] == SCRATCH_VOLUME and "emptyDir" in volume


def _scratch_limit(settings: PodSettings, overlay: PodOverlay) -> dict[str, str]:
    """The lowest limit on scratch files, as a variable: the kubelet does not count files without a name."""
    given = (_scratch_fields(settings, overlay).get("sizeLimit"), _storage_limit(overlay))
    limits = [int(quantity(limit)) for limit in given if limit is not None]
    lowest = min((limit for limit in limits if limit > 0), default=None)
    return {} if lowest is None or lowest >= MAX_SCRATCH_LIMIT else {SCRATCH_LIMIT_VARIABLE: str(lowest)}


def _storage_limit(overlay: PodOverlay) -> int | str | None:
    return overlay.resources.limits.get("ephemeral-storage") if overlay.resources else None


def _resources(job: JobView, node: NodeView, settings: PodSettings, overlay: PodOverlay) -> dict[str, Any]:
    """The resources of the node's overlay, else of the settings; one GPU unless the job uses the CPU backend."""
    given = overlay.resources or ResourceRequirements()
    # For a resource with a limit and no request, Kubernetes takes the limit as the request.
    defaults = _set({"cpu": settings.cpu_request, "memory": settings.memory_request})
    requests = {name: amount for name, amount in defaults.items() if name not in given.limits} | given.requests
    limits = _set({"memory": settings.memory_limit}) | given.limits
    for name in requests.keys() & limits.keys():
        if quantity(requests[name]) > quantity(limits[name]):  # what the node does not set adapts to what it sets
            if name not in given.requests:
                requests[name] = limits[name]
            elif name not in given.limits:
                limits[name] = requests[name]
    if device := _device(job, node, settings):
        limits.setdefault(device, "1")
    return {name: amounts for name, amounts in (("requests", requests), ("limits", limits)) if amounts}


def _device(job: JobView, node: NodeView, settings: PodSettings) -> str | None:
    """The resource of the GPU that the job gets; none with the CPU backend."""
    return None if job.spec.backend == "cpu" else gpu_resource(node.spec.gpuVendor, settings.intel_device)


def _gpu_tolerations(job: JobView, node: NodeView, settings: PodSettings) -> list[dict[str, str]]:
    """By convention, the taint that keeps other Pods off GPU nodes has the name of their resource."""
    device = _device(job, node, settings)
    return [{"key": device, "operator": "Exists", "effect": "NoSchedule"}] if device else []


def _threads(resources: Mapping[str, Any]) -> int:
    """Threads of a worker without a CPU limit: a request is what it has at least, and idle cores may be used."""
    requested = quantity(resources.get("requests", {}).get("cpu", 0))
    return min(max(CORES_PER_JOB, math.ceil(requested)), MAX_THREADS)


def _set(amounts: Mapping[str, str]) -> dict[str, int | str]:
    return {name: amount for name, amount in amounts.items() if amount}


def _affinity(overlay: PodOverlay, avoid: frozenset[str]) -> dict[str, Any]:
    affinity: dict[str, Any] = _plain(overlay.affinity) if overlay.affinity else {}
    if avoid:
        not_avoided = {"key": "metadata.name", "operator": "NotIn", "values": sorted(avoid)}
        term = {"weight": 100, "preference": {"matchFields": [not_avoided]}}
        nodes = affinity.setdefault("nodeAffinity", {})
        nodes[PREFERRED] = [*nodes.get(PREFERRED, ()), term]
    return affinity


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)
