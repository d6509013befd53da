"""The Pod of one attempt at a job. Pure."""

from typing import Any

import msgspec

from vmafx.api.hardware import HARDWARE
from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.api.pod import PodOverlay
from vmafx.jobs.attempt import SPEC_VARIABLE
from vmafx.jobs.state import attempt_spec
from vmafx.kube import JOBS
from vmafx.operator.context import FIELD_MANAGER
from vmafx.operator.job.pod_cache import ATTEMPT_LABEL, JOB_LABEL, WORKER
from vmafx.runtime.children import MANAGED_BY, owner_reference

NODE_LABEL = "vmafx.dev/node"
KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
TERMINATION_GRACE = 30  # seconds
WORKER_UID = 65532
AVOID_WEIGHT = "preferredDuringSchedulingIgnoredDuringExecution"
SCRATCH = "/scratch"  # for clips that are fetched: the container's own files cannot be written
# A machine that falls silent gives its jobs up sooner than the usual five minutes.
TOLERATIONS = [
    {"key": f"node.kubernetes.io/{trouble}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    for trouble in ("not-ready", "unreachable")
]


class PodSettings(msgspec.Struct, frozen=True):
    """What is the same for all worker Pods of an operator."""

    image: str
    intel_device: str = HARDWARE["intel"].resource or ""  # gpu.intel.com/xe for the newer driver


def pod_name(job: JobView, attempt: int) -> str:
    return f"{job.metadata.name}-{attempt}"


def make_pod(
    job: JobView, node: NodeView, attempt: int, settings: PodSettings, avoid: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The whole object; `avoid` names Kubernetes nodes on which an earlier attempt failed."""
    overlay = node.spec.podTemplate or PodOverlay()
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": TERMINATION_GRACE,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": WORKER_UID,
            "runAsGroup": WORKER_UID,
            "fsGroup": WORKER_UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [*TOLERATIONS, *_plain(overlay.tolerations)],
        "volumes": [{"name": "scratch", "emptyDir": {}}, *_plain(overlay.volumes)],
        "containers": [_container(job, node, attempt, settings, overlay)],
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
    if len(node.metadata.name) <= 63:  # as long as a label may be
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
    job: JobView, node: NodeView, attempt: int, settings: PodSettings, overlay: PodOverlay
) -> dict[str, Any]:
    # A kubelet would put other variables, and so other people's secrets, in the place of $(NAME).
    work = msgspec.json.encode(attempt_spec(job, attempt)).decode().replace("$", "\\u0024")
    env = [
        {"name": SPEC_VARIABLE, "value": work},
        {"name": "VMAFX_BACKEND", "value": job.spec.backend or HARDWARE[node.spec.gpuVendor].backend},
        {"name": "TMPDIR", "value": SCRATCH},
        {"name": "HOME", "value": SCRATCH},
    ]
    env_from = list(_plain(overlay.envFrom))  # the last of a name counts: the node's, whose limits hold for every job
    if job.spec.credentialsSecretRef is not None:
        env_from.insert(0, {"secretRef": {"name": job.spec.credentialsSecretRef.name}})
    container: dict[str, Any] = {
        "name": WORKER,
        "image": node.spec.image or settings.image,
        "command": ["vmafx", "worker"],
        "env": [*_plain(overlay.env), *env],  # the last of a name counts: ours
        "resources": _resources(job, node, settings, overlay),
        "terminationMessagePolicy": "File",
        "volumeMounts": [{"name": "scratch", "mountPath": SCRATCH}, *_plain(overlay.volumeMounts)],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return container | ({"envFrom": env_from} if env_from else {})


def _resources(job: JobView, node: NodeView, settings: PodSettings, overlay: PodOverlay) -> dict[str, Any]:
    """The node's own, and one GPU of its vendor unless the job is for the CPU."""
    resources: dict[str, Any] = _plain(overlay.resources) if overlay.resources else {}
    vendor = node.spec.gpuVendor
    device = settings.intel_device if vendor == "intel" else HARDWARE[vendor].resource
    if device and job.spec.backend != "cpu":
        limits = resources.setdefault("limits", {})
        limits.setdefault(device, "1")
    return resources


def _affinity(overlay: PodOverlay, avoid: frozenset[str]) -> dict[str, Any]:
    affinity: dict[str, Any] = _plain(overlay.affinity) if overlay.affinity else {}
    if avoid:
        elsewhere = {"key": "metadata.name", "operator": "NotIn", "values": sorted(avoid)}
        term = {"weight": 100, "preference": {"matchFields": [elsewhere]}}
        nodes = affinity.setdefault("nodeAffinity", {})
        nodes[AVOID_WEIGHT] = [*nodes.get(AVOID_WEIGHT, ()), term]
    return affinity


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)
