"""The library's Reconciler with a cluster in memory: the life of a service, and clients that can do less."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.inference import (
    HPA,
    AlreadyExists,
    CanarySpec,
    DeletingKubeClient,
    Deployment,
    InvalidSpec,
    KubeClient,
    MemoryKubeClient,
    NotFound,
    ObjectMeta,
    Reconciler,
    ResourceSpec,
    Service,
    WeightedTarget,
    ZerfooInferenceService,
    ZerfooInferenceServiceSpec,
    ZerfooInferenceServiceStatus,
)

OLD, NEW = "model:1", "model:2"
OBJECTS = ("deployment", "service", "hpa")
CALLS = [f"{verb}_{kind}" for kind in OBJECTS for verb in ("get", "create", "update", "delete")]


def service(**spec: Any) -> ZerfooInferenceService:
    wanted = ZerfooInferenceServiceSpec(**{"modelRef": OLD, "replicas": 3, **spec})
    return ZerfooInferenceService(metadata=ObjectMeta(name="m", namespace="media", generation=7), spec=wanted)


class RecordingClient(MemoryKubeClient):
    """Remembers every call, as its name and the name of the object."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return self._recorded(name, found) if name in CALLS else found

    def _recorded(self, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def recorded(*arguments: Any) -> Any:
            target = arguments[-1] if isinstance(arguments[-1], str) else arguments[-1].name
            self.calls.append(f"{name} {target}")
            return await call(*arguments)

        return recorded

    def writes(self) -> list[str]:
        """The calls since the last time, other than reads."""
        made, self.calls = [call for call in self.calls if not call.startswith("get_")], []
        return made


class TenCallClient:
    """A KubeClient that can delete neither Services nor autoscalers."""

    def __init__(self, memory: MemoryKubeClient) -> None:
        self.get_deployment, self.create_deployment = memory.get_deployment, memory.create_deployment
        self.update_deployment, self.delete_deployment = memory.update_deployment, memory.delete_deployment
        self.get_service, self.create_service = memory.get_service, memory.create_service
        self.update_service = memory.update_service
        self.get_hpa, self.create_hpa, self.update_hpa = memory.get_hpa, memory.create_hpa, memory.update_hpa


class UnreadyClient(MemoryKubeClient):
    """A client that does not report ready replicas."""

    async def get_deployment(self, namespace: str, name: str) -> Deployment:
        return self.deployments.get(namespace, name)


@pytest.fixture
def client() -> RecordingClient:
    return RecordingClient()


async def settle(client: KubeClient, wanted: ZerfooInferenceService) -> ZerfooInferenceServiceStatus:
    """Reconcile until the service is ready."""
    for _ in range(5):
        status = await Reconciler(client).reconcile(wanted)
        if status.ready:
            return status
    raise AssertionError(status)


def replicas(client: MemoryKubeClient) -> dict[str, tuple[str, int]]:
    found = [client.deployments.get("media", name) for name in client.deployments.names()]
    return {one.name: (one.modelRef, one.replicas) for one in found}


def weights(client: MemoryKubeClient) -> dict[str, int]:
    return {target.deploymentName: target.weight for target in client.services.get("media", "m-svc").weights}


def selector(client: MemoryKubeClient) -> str | None:
    """The track that the called Service selects; None for both."""
    return client.services.get("media", "m-svc").selector.get("vmafx.dev/track")


async def test_a_service_is_created(client: RecordingClient) -> None:
    status = await Reconciler(client).reconcile(service())
    assert replicas(client) == {"m-primary": (OLD, 3)}
    assert client.services.names() == ["m-primary", "m-svc"]
    assert client.hpas.names() == []
    assert status == ZerfooInferenceServiceStatus(
        ready=True,
        replicas=3,
        message="3 of 3 replicas of the primary are ready",
        url="http://m-svc.media.svc",
        selector="vmafx.dev/service=m",
        observedGeneration=7,
    )


async def test_the_default_namespace_is_used(client: RecordingClient) -> None:
    nowhere = ZerfooInferenceService(metadata=ObjectMeta(name="m"), spec=ZerfooInferenceServiceSpec(OLD))
    assert (await Reconciler(client).reconcile(nowhere)).url == "http://m-svc.default.svc"
    assert (await client.get_deployment("default", "m-primary")).replicas == 1


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"canary": CanarySpec(NEW, 25)},
        {"canary": CanarySpec(NEW, 100)},
        {"minReplicas": 2, "maxReplicas": 5, "resources": ResourceSpec(cpu="1")},
        {"minReplicas": 2, "maxReplicas": 5, "canary": CanarySpec(NEW, 10)},
    ],
)
async def test_a_service_that_is_ready_is_not_written_again(client: RecordingClient, spec: dict[str, Any]) -> None:
    first = await settle(client, service(**spec))
    assert client.writes() != []
    assert await Reconciler(client).reconcile(service(**spec)) == first
    assert client.writes() == []


async def test_only_what_changed_is_written(client: RecordingClient) -> None:
    await settle(client, service())
    client.writes()
    await settle(client, service(replicas=5))
    assert client.writes() == ["update_deployment m-primary"]
    assert replicas(client) == {"m-primary": (OLD, 5)}
    await settle(client, service(replicas=5, port=9000))
    assert client.writes() == ["update_deployment m-primary"]


async def test_a_service_is_not_ready_until_its_replicas_are(client: RecordingClient) -> None:
    client.ready["m-primary"] = 1
    status = await Reconciler(client).reconcile(service())
    assert (status.ready, status.message) == (False, "primary: 1 of 3 replicas are ready")
    client.ready.clear()
    assert (await Reconciler(client).reconcile(service())).ready


async def test_replicas_of_an_older_version_are_a_rollout(client: RecordingClient) -> None:
    class Rolling(RecordingClient):
        async def get_deployment(self, namespace: str, name: str) -> Deployment:
            found = self.deployments.get(namespace, name)
            return msgspec.structs.replace(found, readyReplicas=3, currentReplicas=4, updatedReplicas=2, problem="late")

    status = await Reconciler(Rolling()).reconcile(service())
    assert (status.ready, status.replicas) == (False, 4)
    assert status.message == "primary: late"


async def test_an_autoscaler_owns_the_replicas_while_it_exists(client: RecordingClient) -> None:
    scaled = service(minReplicas=2, maxReplicas=8, resources=ResourceSpec(cpu="1"))
    await settle(client, scaled)
    assert client.hpas.get("media", "m-primary-hpa") == HPA("m-primary-hpa", "media", "m-primary", 2, 8)

    primary = client.deployments.get("media", "m-primary")
    client.deployments.update(msgspec.structs.replace(primary, replicas=6))  # as the autoscaler does
    client.writes()
    assert (await settle(client, scaled)).replicas == 6
    assert client.writes() == []

    await settle(client, service(minReplicas=3, maxReplicas=9, resources=ResourceSpec(cpu="1")))
    assert client.writes() == ["update_hpa m-primary-hpa"]
    assert replicas(client) == {"m-primary": (OLD, 6)}

    await settle(client, service(resources=ResourceSpec(cpu="1")))
    assert client.writes() == ["delete_hpa m-primary-hpa", "update_deployment m-primary"]
    assert replicas(client) == {"m-primary": (OLD, 3)}


async def test_autoscaling_that_is_turned_on_starts_from_the_live_replicas(client: RecordingClient) -> None:
    await settle(client, service(replicas=4))
    client.writes()
    status = await settle(client, service(replicas=4, minReplicas=2, maxReplicas=8))
    assert client.writes() == ["create_hpa m-primary-hpa"]
    assert replicas(client) == {"m-primary": (OLD, 4)}
    assert status.message is not None
    assert "autoscaling needs resources.cpu" in status.message


async def test_a_canary_gets_its_weight_once_it_is_ready(client: RecordingClient) -> None:
    await settle(client, service())
    client.ready["m-canary"] = 0
    with_canary = service(canary=CanarySpec(NEW, 25))
    status = await Reconciler(client).reconcile(with_canary)
    assert (status.ready, status.canaryReplicas, status.canaryWeight) == (False, 1, 0)
    assert (weights(client), selector(client)) == ({"m-primary": 100, "m-canary": 0}, "primary")

    client.ready.clear()
    status = await settle(client, with_canary)
    assert (status.replicas, status.canaryReplicas, status.canaryWeight) == (4, 1, 25)
    assert (weights(client), selector(client)) == ({"m-primary": 75, "m-canary": 25}, None)


async def test_a_service_is_not_ready_before_its_canary_has_its_weight(client: RecordingClient) -> None:
    with_canary = service(canary=CanarySpec(NEW, 25))
    first = await Reconciler(client).reconcile(with_canary)  # all replicas are ready at once, but came too late
    assert (first.ready, first.canaryWeight) == (False, 0)
    assert first.message is not None
    assert "not all children are applied yet" in first.message
    second = await Reconciler(client).reconcile(with_canary)
    assert (second.ready, second.canaryWeight) == (True, 25)


async def test_a_weight_is_changed_to_all_and_back(client: RecordingClient) -> None:
    await settle(client, service(canary=CanarySpec(NEW, 25)))
    status = await settle(client, service(canary=CanarySpec(NEW, 50)))
    assert (replicas(client)["m-canary"], status.canaryWeight) == ((NEW, 3), 50)
    await settle(client, service(canary=CanarySpec(NEW, 100)))
    assert (weights(client), selector(client)) == ({"m-primary": 0, "m-canary": 100}, "canary")
    await settle(client, service(canary=CanarySpec(NEW, 0)))
    assert (weights(client), selector(client)) == ({"m-primary": 100, "m-canary": 0}, "primary")


@pytest.mark.parametrize("weight", [25, 100])
async def test_a_promoted_canary_serves_until_the_primary_has_its_model(client: RecordingClient, weight: int) -> None:
    await settle(client, service(canary=CanarySpec(NEW, weight)))
    client.ready["m-primary"] = 1
    status = await Reconciler(client).reconcile(service(modelRef=NEW))
    assert replicas(client)["m-primary"] == (NEW, 3)
    assert weights(client)["m-canary"] == weight
    assert not status.ready
    assert status.message is not None
    assert status.message.startswith("the canary serves until all replicas of the primary have its model")

    client.ready.clear()
    status = await settle(client, service(modelRef=NEW))
    assert replicas(client) == {"m-primary": (NEW, 3)}
    assert client.services.names() == ["m-primary", "m-svc"]
    assert (weights(client), selector(client), status.canaryWeight) == ({}, "primary", None)


async def test_requests_leave_a_canary_before_it_is_removed(client: RecordingClient) -> None:
    await settle(client, service(canary=CanarySpec(NEW, 25)))
    client.writes()
    status = await settle(client, service())
    assert client.writes() == ["update_service m-svc", "delete_service m-canary", "delete_deployment m-canary"]
    assert (status.replicas, status.canaryReplicas, status.canaryWeight) == (3, 0, None)


async def test_a_service_is_deleted(client: RecordingClient) -> None:
    full = service(canary=CanarySpec(NEW, 25), minReplicas=1, maxReplicas=5)
    await settle(client, full)
    assert await Reconciler(client).delete(full) == []
    assert client.deployments.names() == client.services.names() == client.hpas.names() == []
    client.writes()
    assert await Reconciler(client).delete(full) == []
    assert client.writes() == []


async def test_another_service_is_left_alone(client: RecordingClient) -> None:
    other = ZerfooInferenceService(metadata=ObjectMeta(name="m-2", namespace="media"), spec=service().spec)
    await settle(client, other)
    await settle(client, service(canary=CanarySpec(NEW, 25)))
    await Reconciler(client).delete(service())
    assert client.deployments.names() == ["m-2-primary"]
    assert client.services.names() == ["m-2-primary", "m-2-svc"]


async def test_what_a_client_cannot_remove_is_named() -> None:
    memory = MemoryKubeClient()
    client = TenCallClient(memory)
    assert not isinstance(client, DeletingKubeClient)
    scaled = {"minReplicas": 1, "maxReplicas": 5, "resources": ResourceSpec(cpu="1")}
    await settle(client, service(canary=CanarySpec(NEW, 25), **scaled))
    status = await Reconciler(client).reconcile(service())
    assert not status.ready
    assert status.message == (
        "the client cannot remove HPA m-primary-hpa: remove it yourself; "
        "the client cannot remove Service m-canary: remove it yourself"
    )
    assert memory.deployments.names() == ["m-primary"]
    memory.hpas.delete("media", "m-primary-hpa")
    memory.services.delete("media", "m-canary")
    assert (await Reconciler(client).reconcile(service())).ready
    assert await Reconciler(client).delete(service()) == ["Service m-primary", "Service m-svc"]


async def test_a_client_that_does_not_report_readiness_cannot_say_that_a_service_is_ready() -> None:
    client = UnreadyClient()
    for _ in range(3):
        status = await Reconciler(client).reconcile(service(canary=CanarySpec(NEW, 25)))
    assert (status.ready, status.replicas, status.canaryWeight) == (False, 4, 0)
    assert status.message is not None
    assert "the client does not report ready replicas" in status.message
    assert weights(client) == {"m-primary": 100, "m-canary": 0}


async def test_an_invalid_spec_is_refused_before_any_call(client: RecordingClient) -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.replicas: should be greater than or equal to 1"):
        await Reconciler(client).reconcile(service(replicas=0))
    assert client.calls == []


async def test_an_invalid_service_can_be_deleted(client: RecordingClient) -> None:
    await settle(client, service())
    assert await Reconciler(client).delete(service(replicas=0)) == []
    assert client.deployments.names() == []


async def test_children_that_others_create_or_delete_meanwhile_are_no_errors() -> None:
    class Racing(MemoryKubeClient):
        """Objects seem to be missing when they exist, and to exist when they are gone."""

        async def get_service(self, namespace: str, name: str) -> Service:
            if name == "m-primary":
                raise NotFound("not seen yet")
            return await super().get_service(namespace, name)

        async def delete_deployment(self, namespace: str, name: str) -> None:
            await super().delete_deployment(namespace, name)
            raise NotFound("deleted meanwhile")

    client = Racing()
    await settle(client, service(canary=CanarySpec(NEW, 25)))
    await settle(client, service())
    assert client.services.names() == ["m-primary", "m-svc"]
    assert client.deployments.names() == ["m-primary"]


async def test_the_errors_of_a_cluster_in_memory() -> None:
    client = MemoryKubeClient()
    made = Service("a", "media", {}, (WeightedTarget("b", 1),))
    with pytest.raises(NotFound, match="media/a not found"):
        await client.update_service(made)
    await client.create_service(made)
    with pytest.raises(AlreadyExists, match="media/a already exists"):
        await client.create_service(made)
    with pytest.raises(NotFound):
        await client.get_service("other", "a")
    await client.delete_service("media", "a")
    with pytest.raises(NotFound):
        await client.delete_service("media", "a")


changes = st.fixed_dictionaries(
    {},
    optional={
        "modelRef": st.sampled_from([OLD, NEW, "model:3"]),
        "replicas": st.integers(1, 5),
        "canary": st.none() | st.builds(CanarySpec, st.sampled_from([NEW, "model:4"]), st.integers(0, 100)),
        "scaled": st.booleans(),
    },
)
readiness = st.dictionaries(st.sampled_from(["m-primary", "m-canary"]), st.integers(0, 5))


@given(st.lists(st.tuples(changes, readiness, st.integers(1, 2)), min_size=1, max_size=6))
async def test_any_history_ends_with_the_children_of_the_last_spec(
    history: list[tuple[dict[str, Any], dict[str, int], int]],
) -> None:
    """Whatever a service was before, and however far the cluster came, the last spec decides."""
    client, fresh = MemoryKubeClient(), MemoryKubeClient()
    for spec, ready, rounds in history:
        scaled = {"minReplicas": 2, "maxReplicas": 4} if spec.pop("scaled", False) else {}
        wanted = service(**{**spec, **scaled})
        if wanted.spec.canary is not None and wanted.spec.canary.modelRef == wanted.spec.modelRef:
            wanted = service(replicas=2)
        client.ready = ready
        for _ in range(rounds):
            await Reconciler(client).reconcile(wanted)
    client.ready = {}
    assert (await settle(client, wanted)).ready
    await settle(fresh, wanted)
    assert client.services.names() == fresh.services.names()
    assert client.hpas.names() == fresh.hpas.names()
    assert client.deployments.names() == fresh.deployments.names()
    assert weights(client) == weights(fresh)
    if not wanted.spec.minReplicas:
        assert replicas(client) == replicas(fresh)
