"""The Kubernetes manifests of a training's children: Deployment, Service, ServiceAccount, volume claim. Pure.

Values have the form in which the server stores them, so that an applied child equals its manifest.
"""

import hashlib
from typing import Any

import msgspec

from vmafx.api.restricted import (
    SCRATCH_ENVIRONMENT,
    env_entries,
    restricted_container,
    restricted_pod,
    scratch_mount,
    scratch_volume,
)
from vmafx.api.training import TrainingView
from vmafx.api.units import nanoseconds, quantity
from vmafx.auth.signing_key import KEY_FIELD
from vmafx.jobs.sample_keys import SAMPLES_SECRET
from vmafx.training.config import CONFIG_VARIABLE, FOLDER_VARIABLE, KEY_VARIABLE, TrainingConfig
from vmafx.training.status import STATUS_PORT

TRAINING_LABEL = "vmafx.dev/training"
KEY_ANNOTATION = "vmafx.dev/samples-key"  # of the Pod: a trainer reads the key only when it starts
CONTAINER, PORT_NAME = "trainer", "http"
DATA_DIR = "/var/lib/vmafx"
CREDENTIALS_DIR = "/etc/vmafx/registry"
STARTUP_SECONDS = 600  # for reading what is on the volume, and for learning the base model
PROGRESS_DEADLINE = 2 * STARTUP_SECONDS  # for a rollout: the volume may have to be provisioned first
TERMINATION_GRACE = 60  # seconds
RESOURCES = {"limits": {"memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "256Mi"}}
Manifest = dict[str, Any]


class TrainerOptions(msgspec.Struct, frozen=True):
    """What all trainers have in common: image, variables such as VMAFX_INSECURE_REGISTRIES, Secrets to pull with."""

    image: str
    environment: dict[str, str] = {}
    pull_secrets: tuple[str, ...] = ()


def child_name(training: str) -> str:
    """The name of all children of a training."""
    return f"vmafx-trainer-{training}"


def labels(training: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "vmafx-trainer", TRAINING_LABEL: training}


def children(training: TrainingView, options: TrainerOptions, storage: int, key: bytes) -> list[Manifest]:
    """All children except the volume claim, which has `storage` bytes. Samples are signed with `key`."""
    name = training.metadata.name
    account = _manifest("v1", "ServiceAccount", name)
    account["automountServiceAccountToken"] = False
    return [account, _service(name), _deployment(training, options, storage, key)]


def key_digest(key: bytes) -> str:
    """Tells keys apart without revealing them."""
    return hashlib.sha256(key).hexdigest()[:16]


def claim_manifest(training: TrainingView) -> Manifest:
    storage = training.spec.storage
    spec: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(storage.size)}},
    }
    if storage.className is not None:
        spec["storageClassName"] = storage.className
    return {**_manifest("v1", "PersistentVolumeClaim", training.metadata.name), "spec": spec}


def training_config(training: TrainingView, storage: int) -> TrainingConfig:
    meta, spec = training.metadata, training.spec
    return TrainingConfig(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        base_model=spec.baseModel,
        learning_rate=spec.learningRate,
        ema_decay=spec.emaDecay,
        batch_size=spec.batchSize,
        checkpoint_interval=nanoseconds(spec.checkpoint.interval) / 1e9,
        min_samples=spec.checkpoint.minSamples,
        output_registry=spec.outputRegistry or "",
        paused=spec.paused,
        storage=min(storage, int(quantity(spec.storage.size))),
    )


def _service(name: str) -> Manifest:
    spec = {
        "selector": {TRAINING_LABEL: name},
        "ports": [{"name": PORT_NAME, "port": STATUS_PORT, "protocol": "TCP", "targetPort": PORT_NAME}],
        "publishNotReadyAddresses": True,  # the status of a trainer that is not ready says why
    }
    return {**_manifest("v1", "Service", name), "spec": spec}


def _deployment(training: TrainingView, options: TrainerOptions, storage: int, key: bytes) -> Manifest:
    name = training.metadata.name
    metadata = {"labels": labels(name), "annotations": {KEY_ANNOTATION: key_digest(key)}}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": {TRAINING_LABEL: name}},
        "strategy": {"type": "Recreate"},  # the volume has one writer
        "progressDeadlineSeconds": PROGRESS_DEADLINE,
        "template": {"metadata": metadata, "spec": _pod_spec(training, options, storage)},
    }
    return {**_manifest("apps/v1", "Deployment", name), "spec": spec}


def _pod_spec(training: TrainingView, options: TrainerOptions, storage: int) -> Manifest:
    name = child_name(training.metadata.name)
    volumes = [scratch_volume(), {"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    if (credentials := training.spec.credentialsSecretRef) is not None:
        items = [{"key": ".dockerconfigjson", "path": "config.json"}]
        volumes.append({"name": "registry", "secret": {"secretName": credentials.name, "items": items}})
    return {
        **restricted_pod(options.pull_secrets),
        "serviceAccountName": name,
        "terminationGracePeriodSeconds": TERMINATION_GRACE,
        "volumes": volumes,
        "containers": [_container(training, options, storage)],
    }


def _container(training: TrainingView, options: TrainerOptions, storage: int) -> Manifest:
    environment = {**options.environment, FOLDER_VARIABLE: DATA_DIR, **SCRATCH_ENVIRONMENT}
    mounts: list[Manifest] = [scratch_mount(), {"name": "data", "mountPath": DATA_DIR}]
    if training.spec.credentialsSecretRef is not None:
        environment["DOCKER_CONFIG"] = CREDENTIALS_DIR
        mounts.append({"name": "registry", "mountPath": CREDENTIALS_DIR, "readOnly": True})
    # Escape $: the kubelet expands $(NAME), which would let a field of the spec read other variables, such as the key.
    config = msgspec.json.encode(training_config(training, storage)).decode().replace("$", "\\u0024")
    key = {"secretKeyRef": {"name": SAMPLES_SECRET, "key": KEY_FIELD}}
    return {
        "name": CONTAINER,
        "image": options.image,
        "command": ["vmafx", "trainer"],
        "env": [
            {"name": CONFIG_VARIABLE, "value": config},
            {"name": KEY_VARIABLE, "valueFrom": key},
            *env_entries(environment),
        ],
        "ports": [{"name": PORT_NAME, "containerPort": STATUS_PORT, "protocol": "TCP"}],
        "resources": RESOURCES,
        "volumeMounts": mounts,
        **_probes(),
        **restricted_container(),
    }


def _probes() -> Manifest:
    alive, ready = (
        {"httpGet": {"path": path, "port": PORT_NAME, "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 5}
        for path in ("/healthz", "/readyz")
    )
    startup = {**alive, "failureThreshold": STARTUP_SECONDS // 10}
    return {"readinessProbe": ready, "livenessProbe": alive, "startupProbe": startup}


def _manifest(api_version: str, kind: str, training: str) -> Manifest:
    metadata = {"name": child_name(training), "labels": labels(training)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
