"""The volume claim of a training: kept or deleted with it, grown, and never someone else's."""

import json
from typing import Any

from tests.conftest import Kubectl
from tests.support.scripted_trainer import ScriptedTrainers, running
from tests.support.trainings import Trainings
from tests.support.waiting import eventually
from vmafx.kube import ObjectKey, Resource
from vmafx.kube.core import DEPLOYMENTS, PERSISTENT_VOLUME_CLAIMS
from vmafx.kube.resources import UntypedObject

NAME = "vmafx-trainer-t"
VOLUMES: Resource[UntypedObject] = Resource("", "v1", "persistentvolumes", "PersistentVolume", dict, namespaced=False)
CLASSES: Resource[UntypedObject] = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", dict, namespaced=False
)


async def claim_of(trainings: Trainings) -> UntypedObject:
    claim = await trainings.claim()
    assert claim is not None
    return claim


async def unused(trainings: Trainings) -> None:
    """The garbage collector deletes the Deployment; the Pod's use protects the claim until then."""
    await trainings.gone(DEPLOYMENTS, NAME)


async def test_a_claim_survives_its_training_and_is_used_again(
    trainings: Trainings, trainers: ScriptedTrainers
) -> None:
    trainers.answers["t"] = running()
    await trainings.create(storage={"size": "2Gi", "className": "fast"})
    await trainings.until("Ready")
    claim = await claim_of(trainings)
    assert claim["spec"]["resources"]["requests"] == {"storage": "2Gi"}
    assert (claim["spec"]["storageClassName"], claim["spec"]["accessModes"]) == ("fast", ["ReadWriteOnce"])
    assert "ownerReferences" not in claim["metadata"]
    await trainings.delete()
    await unused(trainings)
    await trainings.create(storage={"size": "2Gi"})
    await trainings.until("Ready")
    assert (await claim_of(trainings))["metadata"]["uid"] == claim["metadata"]["uid"]


async def test_a_claim_is_deleted_with_its_training(trainings: Trainings, trainers: ScriptedTrainers) -> None:
    trainers.answers["t"] = running()
    created = await trainings.create(retainPolicy="Delete")
    await trainings.until("Ready")
    (owner,) = (await claim_of(trainings))["metadata"]["ownerReferences"]
    assert owner["uid"] == created.metadata.uid
    await trainings.delete()
    await trainings.gone(PERSISTENT_VOLUME_CLAIMS, NAME)


async def test_a_new_training_waits_for_the_deletion_of_the_old_claim(
    trainings: Trainings, trainers: ScriptedTrainers
) -> None:
    trainers.answers["t"] = running()
    await trainings.create(retainPolicy="Delete")
    await trainings.until("Ready")
    before = await claim_of(trainings)
    await trainings.delete()
    await trainings.create(retainPolicy="Delete")
    await trainings.until("Ready")
    assert (await claim_of(trainings))["metadata"]["uid"] != before["metadata"]["uid"]


async def test_a_deleted_claim_of_a_running_training_is_reported_and_replaced(
    trainings: Trainings, trainers: ScriptedTrainers, kubectl: Kubectl
) -> None:
    trainers.answers["t"] = running()
    await trainings.create()
    await trainings.until("Ready")
    before = await claim_of(trainings)
    finalizers = {"metadata": {"finalizers": ["example.com/in-use"]}}  # as the API server has it while a Pod runs
    key = ObjectKey(trainings.namespace, NAME)
    await trainings.client.merge_patch(PERSISTENT_VOLUME_CLAIMS, key, finalizers)
    assert kubectl("delete", "pvc", NAME, "--wait=false").returncode == 0
    message = await trainings.until("Degraded", "True", "StorageProblem")
    assert message == f"PersistentVolumeClaim {NAME} is being deleted; a new one is created when no Pod uses it"
    assert message in await trainings.until("Ready", "True")
    await trainings.change(batchSize=64)

    async def synced() -> bool:
        return bool(config(await trainings.get(DEPLOYMENTS, NAME))["batch_size"] == 64)

    await eventually(synced, "the spec is still applied")
    await trainings.client.merge_patch(PERSISTENT_VOLUME_CLAIMS, key, {"metadata": {"finalizers": None}})
    await trainings.until("Degraded", "False")
    assert (await claim_of(trainings))["metadata"]["uid"] != before["metadata"]["uid"]


async def test_a_changed_policy_adds_and_removes_the_owner(trainings: Trainings, kubectl: Kubectl) -> None:
    created = await trainings.create()
    await trainings.until("Ready", "False", "TrainerUnreachable")
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "0"}
    assert kubectl("create", "configmap", "other").returncode == 0
    other["uid"] = kubectl("get", "configmap", "other", "-o", "jsonpath={.metadata.uid}").stdout
    key = ObjectKey(trainings.namespace, NAME)
    await trainings.client.merge_patch(PERSISTENT_VOLUME_CLAIMS, key, {"metadata": {"ownerReferences": [other]}})

    async def owners() -> list[str]:
        return [one["uid"] for one in (await claim_of(trainings))["metadata"].get("ownerReferences", ())]

    async def has(*uids: str) -> None:
        async def holds() -> bool:
            return await owners() == list(uids)

        await eventually(holds, f"the owners are {uids}")

    await trainings.change(retainPolicy="Delete")
    await has(other["uid"], created.metadata.uid)
    await trainings.change(retainPolicy="Retain")
    await has(other["uid"])


async def test_a_claim_of_someone_else_is_not_used(trainings: Trainings, trainers: ScriptedTrainers) -> None:
    body = {
        "metadata": {"name": NAME},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await trainings.client.create(PERSISTENT_VOLUME_CLAIMS, body, trainings.namespace)
    trainers.answers["t"] = running()
    await trainings.create(retainPolicy="Delete")
    message = await trainings.until("Ready", "False", "NameTaken")
    assert "PersistentVolumeClaim vmafx-trainer-t already exists" in message
    assert await trainings.get(DEPLOYMENTS, NAME) is None
    assert "ownerReferences" not in (await claim_of(trainings))["metadata"]
    assert (await trainings.training()).status.phase == "Failed"


async def test_a_volume_that_cannot_grow_or_shrink_is_reported(
    trainings: Trainings, trainers: ScriptedTrainers
) -> None:
    trainers.answers["t"] = running()
    await trainings.create(storage={"size": "2Gi"})
    await trainings.until("Ready")
    await trainings.change(storage={"size": "1Gi", "className": "slow"})
    message = await trainings.until("Ready")
    assert "the volume keeps 2Gi: it cannot shrink to 1Gi" in message
    assert "the volume keeps its StorageClass" in message
    assert config(await trainings.get(DEPLOYMENTS, NAME))["storage"] == 1 << 30
    await trainings.change(storage={"size": "3Gi", "className": None})
    message = await trainings.until("Ready", "False", "Refused")
    assert "the volume cannot grow from 2Gi to 3Gi" in message
    assert (await trainings.training()).status.phase == "Running"
    assert (await claim_of(trainings))["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert config(await trainings.get(DEPLOYMENTS, NAME))["storage"] == 2 << 30


async def test_a_volume_grows(trainings: Trainings, trainers: ScriptedTrainers) -> None:
    """The class allows it, and the claim is bound: the real volume controller does that."""
    trainers.answers["t"] = running()
    growing = f"growing-{trainings.namespace}"
    await trainings.client.create(
        CLASSES,
        {"metadata": {"name": growing}, "provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": True},
    )
    volume = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": growing,
        "hostPath": {"path": "/none"},
    }
    await trainings.client.create(VOLUMES, {"metadata": {"name": growing}, "spec": volume})
    try:
        await trainings.create(storage={"size": "1Gi", "className": growing})
        await trainings.until("Ready")

        async def bound() -> bool:
            return bool((await claim_of(trainings)).get("status", {}).get("phase") == "Bound")

        await eventually(bound, "the claim is bound")
        await trainings.change(storage={"size": "2Gi"})

        async def grown() -> bool:
            return bool((await claim_of(trainings))["spec"]["resources"]["requests"]["storage"] == "2Gi")

        await eventually(grown, "the claim has grown")
        await trainings.until("Ready")
    finally:
        await trainings.client.delete(VOLUMES, ObjectKey("", growing))
        await trainings.client.delete(CLASSES, ObjectKey("", growing))


def config(deployment: UntypedObject | None) -> Any:
    """The configuration of a trainer."""
    assert deployment is not None
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return json.loads(next(one["value"] for one in container["env"] if one["name"] == "VMAFX_TRAINING"))
