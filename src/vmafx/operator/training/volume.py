"""The volume claim of a training, which keeps samples and versions of the model.

    retainPolicy Retain   the claim has no owner: it survives the training, and a new one of the same name uses it again
    retainPolicy Delete   the claim has the training as its owner: the garbage collector deletes it with the training

A claim of this name without our labels belongs to someone else and is never used. A claim can grow, if its StorageClass
allows it, but neither shrink nor change its class.
"""

from typing import Any

import msgspec

from vmafx.api.meta import OwnerReference
from vmafx.api.training import TrainingView
from vmafx.api.units import quantity
from vmafx.kube import TRAININGS, Client, ObjectKey
from vmafx.kube.core import PERSISTENT_VOLUME_CLAIMS
from vmafx.kube.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid, NotFound
from vmafx.logs import log
from vmafx.operator.context import FIELD_MANAGER
from vmafx.operator.training.decide import TrainingProblem
from vmafx.operator.training.manifests import TRAINING_LABEL, child_name, claim_manifest
from vmafx.runtime.child import MANAGED_BY, Child, owner_reference
from vmafx.runtime.informer import Informer

CLAIMS = PERSISTENT_VOLUME_CLAIMS.decoded_as(Child)


class VolumeState(msgspec.Struct, frozen=True):
    """The claim after a sync: usable unless there is a problem or it must be waited for."""

    storage: int = 0  # bytes that the claim has
    usable: bool = False
    problem: TrainingProblem | None = None
    note: str = ""
    waiting: str = ""
    deleting: bool = False  # the claim, which a running trainer still uses


class VolumeClaims:
    """Creates and changes the claims of trainings. `cache` has all claims that the operator created."""

    def __init__(self, client: Client, cache: Informer[Child]) -> None:
        self._client, self._cache = client, cache

    async def sync(self, training: TrainingView) -> VolumeState:
        key = ObjectKey(training.metadata.namespace, child_name(training.metadata.name))
        try:
            claim = self._cache.store.get(key) or await self._create(training, key)
        except (BadRequest, Forbidden, Invalid) as error:
            return VolumeState(problem=TrainingProblem("Refused", f"the volume claim cannot be created: {error}"))
        if (state := _unusable(claim, training)) is not None:
            return state
        try:
            return await self._update(training, key, claim)
        except (BadRequest, Forbidden, Invalid) as error:
            problem = TrainingProblem("Refused", f"the owner of the volume claim cannot be changed: {error}")
            return VolumeState(int(quantity(_size(claim))), usable=True, problem=problem)
        except (Conflict, NotFound):  # changed or deleted since it was read
            waiting = f"waiting for a change of PersistentVolumeClaim {key.name}"
            return VolumeState(int(quantity(_size(claim))), waiting=waiting)

    async def _create(self, training: TrainingView, key: ObjectKey) -> Child:
        """Create the claim, or read one that the cache does not have: too new, or without our label."""
        body = claim_manifest(training)
        body["metadata"]["labels"][MANAGED_BY] = FIELD_MANAGER
        if training.spec.retainPolicy == "Delete":
            body["metadata"]["ownerReferences"] = [_reference(training)]
        try:
            claim = await self._client.create(CLAIMS, body, key.namespace)
        except AlreadyExists:
            return await self._client.get(CLAIMS, key)
        log.info("created volume claim", claim=str(key), size=str(training.spec.storage.size))
        return claim

    async def _update(self, training: TrainingView, key: ObjectKey, claim: Child) -> VolumeState:
        references = _references(training, claim)
        if references is not None:
            meta = {"resourceVersion": claim.metadata.resourceVersion, "ownerReferences": references}
            claim = await self._client.merge_patch(CLAIMS, key, {"metadata": meta})
        size, wanted = _size(claim), training.spec.storage
        note = ""
        if quantity(wanted.size) < quantity(size):
            note = f"the volume keeps {size}: it cannot shrink to {wanted.size}"
        elif quantity(wanted.size) > quantity(size):
            try:
                claim = await self._grow(key, claim, str(wanted.size))
            except (BadRequest, Forbidden, Invalid) as error:
                problem = TrainingProblem("Refused", f"the volume cannot grow from {size} to {wanted.size}: {error}")
                return VolumeState(int(quantity(size)), usable=True, problem=problem)
        if wanted.className not in {None, claim["spec"].get("storageClassName")}:
            note = "; ".join(filter(None, (note, "the volume keeps its StorageClass, which cannot be changed")))
        return VolumeState(int(quantity(_size(claim))), usable=True, note=note)

    async def _grow(self, key: ObjectKey, claim: Child, size: str) -> Child:
        meta = {"resourceVersion": claim.metadata.resourceVersion}
        patch = {"metadata": meta, "spec": {"resources": {"requests": {"storage": size}}}}
        grown = await self._client.merge_patch(CLAIMS, key, patch)
        log.info("volume claim grows", claim=str(key), size=size)
        return grown


def _size(claim: Child) -> str:
    size: str = claim["spec"]["resources"]["requests"]["storage"]
    return size


def training_of(claim: Child) -> list[ObjectKey]:
    """The key of the training that a claim was created for."""
    name = claim.metadata.labels.get(TRAINING_LABEL)
    return [ObjectKey(claim.metadata.namespace, name)] if name else []


def _unusable(claim: Child, training: TrainingView) -> VolumeState | None:
    """Why the trainer cannot use a claim of its name; None if it can."""
    name = claim.metadata.name
    if not _is_ours(claim, training.metadata.name):
        message = f"PersistentVolumeClaim {name} already exists and was not created for this training"
        return VolumeState(problem=TrainingProblem("NameTaken", message))
    size = int(quantity(_size(claim)))
    if claim.metadata.deletionTimestamp is not None:
        waiting = f"PersistentVolumeClaim {name} is being deleted; a new one is created when no Pod uses it"
        return VolumeState(size, waiting=waiting, deleting=True)
    if _owned_by_namesake(claim, training):
        return VolumeState(size, waiting=f"waiting for the deletion of the earlier PersistentVolumeClaim {name}")
    return None


def _is_ours(claim: Child, training: str) -> bool:
    labels = claim.metadata.labels
    return labels.get(MANAGED_BY) == FIELD_MANAGER and labels.get(TRAINING_LABEL) == training


def _reference(training: TrainingView) -> dict[str, Any]:
    return owner_reference(TRAININGS, training.metadata.name, training.metadata.uid)


def _owned_by_namesake(claim: Child, training: TrainingView) -> bool:
    """Whether the garbage collector will delete the claim with an earlier training of the same name."""
    return any(_is_training(one) and one.uid != training.metadata.uid for one in claim.metadata.ownerReferences)


def _references(training: TrainingView, claim: Child) -> list[Any] | None:
    """The owners that the claim should have; None if it has them. Other owners are kept."""
    current = claim.metadata.ownerReferences
    owned = any(one.uid == training.metadata.uid for one in current)
    if owned == (training.spec.retainPolicy == "Delete"):
        return None
    others = [msgspec.to_builtins(one) for one in current if one.uid != training.metadata.uid]
    return others if owned else [*others, _reference(training)]


def _is_training(reference: OwnerReference) -> bool:
    return reference.kind == TRAININGS.kind and reference.apiVersion == TRAININGS.api_version
