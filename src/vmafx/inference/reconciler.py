"""Reconciles a ZerfooInferenceService through any KubeClient, without the operator.

The children and the status are decided by the same functions that the operator uses; only how children are read and
written differs. Implement KubeClient over your own client, or use one of the adapters.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar, runtime_checkable

import msgspec

from vmafx.api.inference import ZerfooInferenceServiceStatus
from vmafx.api.kinds import ZerfooInferenceService
from vmafx.inference.children import (
    HPA,
    TRACKS,
    Deployment,
    LiveDeployment,
    LiveState,
    Service,
    ServiceRef,
    desired_children,
)
from vmafx.inference.status import Problem, ServiceState, decide_status
from vmafx.kube.errors import AlreadyExists, NotFound

T = TypeVar("T", Deployment, Service, HPA)


class KubeClient(Protocol):
    """The ten calls. Get, update and delete raise NotFound; create raises AlreadyExists."""

    async def get_deployment(self, namespace: str, name: str) -> Deployment: ...
    async def create_deployment(self, deployment: Deployment) -> None: ...
    async def update_deployment(self, deployment: Deployment) -> None: ...
    async def delete_deployment(self, namespace: str, name: str) -> None: ...
    async def get_service(self, namespace: str, name: str) -> Service: ...
    async def create_service(self, service: Service) -> None: ...
    async def update_service(self, service: Service) -> None: ...
    async def get_hpa(self, namespace: str, name: str) -> HPA: ...
    async def create_hpa(self, hpa: HPA) -> None: ...
    async def update_hpa(self, hpa: HPA) -> None: ...


@runtime_checkable
class DeletingKubeClient(Protocol):
    """Two optional calls. Without them, Services and autoscalers that are no longer needed are named in the message."""

    async def delete_service(self, namespace: str, name: str) -> None: ...
    async def delete_hpa(self, namespace: str, name: str) -> None: ...


class Reconciler:
    """Makes the children of services what their specs ask for.

    The split of a canary is made by the numbers of replicas; `Service.weights` states it, for clients that can do
    better.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def reconcile(self, service: ZerfooInferenceService) -> ZerfooInferenceServiceStatus:
        """Create, update and delete children as necessary, and return the status of the service.

        Call it again until the status is ready, and whenever something may have changed: a canary gets its weight once
        it is ready, for example. Raises InvalidSpec, before any call, if the spec is not valid.
        """
        service.spec.validate()
        ref = _ref(service)
        desired = desired_children(ref, service.spec, await self._live(ref))
        # Services first: requests leave a track before its replicas do.
        for wanted in desired.services:
            await self._put(wanted, self._client.get_service, self._client.create_service, self._client.update_service)
        # Unwanted autoscalers before Deployments: they would change replicas that are no longer theirs.
        left = await self._remove_hpas(ref, {hpa.name for hpa in desired.hpas})
        for deployment in desired.deployments:
            await self._put_deployment(deployment)
        for hpa in desired.hpas:
            await self._put(hpa, self._client.get_hpa, self._client.create_hpa, self._client.update_hpa)
        left += await self._remove_tracks(
            ref, {one.name for one in desired.deployments}, {one.name for one in desired.services}
        )
        problems = [Problem("NotRemoved", f"the client cannot remove {name}: remove it yourself") for name in left]
        live = await self._live(ref)
        if any(track is not None and not track.settled for track in (live.primary, live.canary)):
            problems.append(Problem("ReadinessUnknown", "the client does not report ready replicas"))
        state = ServiceState(
            ref=ref,
            spec=service.spec,
            desired=desired,
            live=live,
            problems=tuple(problems),
            pending=desired_children(ref, service.spec, live) != desired,  # the next call has something to do
        )
        status = decide_status(state).status
        return msgspec.structs.replace(status, observedGeneration=service.metadata.generation)

    async def delete(self, service: ZerfooInferenceService) -> list[str]:
        """Delete all children of a service; return the names of those that the client cannot delete."""
        ref = _ref(service)
        return await self._remove_hpas(ref, set()) + await self._remove_tracks(ref, set(), set())

    async def _live(self, ref: ServiceRef) -> LiveState:
        primary, canary = [
            await _find(self._client.get_deployment, ref.namespace, ref.deployment(track)) for track in TRACKS
        ]
        service = await _find(self._client.get_service, ref.namespace, ref.service)
        weights = {target.deploymentName: target.weight for target in service.weights} if service is not None else {}
        return LiveState(_observed(primary), _observed(canary), weights.get(ref.deployment("canary"), 0))

    async def _put_deployment(self, wanted: Deployment) -> None:
        client = self._client
        live = await _find(client.get_deployment, wanted.namespace, wanted.name)
        if live is None:
            await _create(wanted, client.create_deployment, client.update_deployment)
        elif live.wanted != wanted:
            await client.update_deployment(wanted)

    async def _put(
        self,
        wanted: T,
        get: Callable[[str, str], Awaitable[T]],
        create: Callable[[T], Awaitable[None]],
        update: Callable[[T], Awaitable[None]],
    ) -> None:
        live = await _find(get, wanted.namespace, wanted.name)
        if live is None:
            await _create(wanted, create, update)
        elif live != wanted:
            await update(wanted)

    async def _remove_hpas(self, ref: ServiceRef, kept: set[str]) -> list[str]:
        """Remove all autoscalers but `kept`; return those that the client cannot remove."""
        left = []
        for name in {ref.hpa(track) for track in TRACKS} - kept:
            if await _find(self._client.get_hpa, ref.namespace, name) is not None:
                if isinstance(self._client, DeletingKubeClient):
                    await _delete(self._client.delete_hpa, ref.namespace, name)
                else:
                    left.append(f"HPA {name}")
        return sorted(left)

    async def _remove_tracks(self, ref: ServiceRef, deployments: set[str], services: set[str]) -> list[str]:
        """Remove all Deployments and Services but these; return those that the client cannot remove."""
        left = []
        for name in {ref.service, *(ref.track_service(track) for track in TRACKS)} - services:
            if await _find(self._client.get_service, ref.namespace, name) is not None:
                if isinstance(self._client, DeletingKubeClient):
                    await _delete(self._client.delete_service, ref.namespace, name)
                else:
                    left.append(f"Service {name}")
        for name in {ref.deployment(track) for track in TRACKS} - deployments:
            if await _find(self._client.get_deployment, ref.namespace, name) is not None:
                await _delete(self._client.delete_deployment, ref.namespace, name)
        return sorted(left)


def _ref(service: ZerfooInferenceService) -> ServiceRef:
    return ServiceRef(service.metadata.namespace or "default", service.metadata.name)


def _observed(deployment: Deployment | None) -> LiveDeployment | None:
    if deployment is None:
        return None
    ready, replicas = deployment.readyReplicas, deployment.replicas
    return LiveDeployment(
        modelRef=deployment.modelRef,
        replicas=replicas,
        ready=ready or 0,
        current=replicas if deployment.currentReplicas is None else deployment.currentReplicas,
        updated=replicas if deployment.updatedReplicas is None else deployment.updatedReplicas,
        settled=ready is not None,
        problem=deployment.problem,
    )


async def _find(get: Callable[[str, str], Awaitable[T]], namespace: str, name: str) -> T | None:
    try:
        return await get(namespace, name)
    except NotFound:
        return None


async def _create(wanted: T, create: Callable[[T], Awaitable[None]], update: Callable[[T], Awaitable[None]]) -> None:
    try:
        await create(wanted)
    except AlreadyExists:  # created meanwhile
        await update(wanted)


async def _delete(delete: Callable[[str, str], Awaitable[None]], namespace: str, name: str) -> None:
    with suppress(NotFound):  # deleted meanwhile
        await delete(namespace, name)
