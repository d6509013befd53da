"""Services behind a Gateway. The test writes what a gateway's controller would write: the status of routes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.gateway.build import find_envoy_gateway
from tests.support.serving import Serving, serving
from vmafx.devcluster.crds import apply_crds
from vmafx.devcluster.progress import PlainProgress
from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import DEPLOYMENTS, GATEWAYS, HPAS, HTTP_ROUTES, SERVICES
from vmafx.operator.inference.gateway import GatewayRef

GROUP = "gateway.networking.k8s.io"
CANARY = {"modelRef": "model:2", "weight": 25}


@pytest.fixture
async def services(client: Client, namespace: str) -> AsyncIterator[Serving]:
    definitions = find_envoy_gateway(PlainProgress()).crds()
    await apply_crds(client, [one for one in definitions if one["spec"]["group"] == GROUP])
    async with serving(client, namespace, gateway=GatewayRef(namespace, "edge"), domain="example.com") as services:
        yield services


async def create_gateway(services: Serving, **listener: Any) -> None:
    listeners = [{"name": "web", "port": 80, "protocol": "HTTP", **listener}]
    body = {
        "apiVersion": GATEWAYS.api_version, "kind": GATEWAYS.kind, "metadata": {"name": "edge"},
        "spec": {"gatewayClassName": "test", "listeners": listeners},
    }  # fmt: skip
    await services.client.create(GATEWAYS, body, services.namespace)


async def answer(services: Serving, *, accepted: bool = True, message: str = "") -> None:
    """Accept or reject the latest version of the route, once there is one that is not answered."""
    key = ObjectKey(services.namespace, "m")

    async def unanswered() -> bool:
        route = await services.get(HTTP_ROUTES, "m")
        parents = (route or {}).get("status", {}).get("parents", ())
        seen = [one["observedGeneration"] for parent in parents for one in parent["conditions"]]
        return route is not None and route["metadata"]["generation"] not in seen

    await services.eventually(unanswered, "there is a new version of the route")
    route = await services.client.get(HTTP_ROUTES, key)
    condition = {
        "type": "Accepted", "status": str(accepted), "reason": "Test", "message": message,
        "observedGeneration": route["metadata"]["generation"], "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    parent = {"parentRef": {"name": "edge"}, "controllerName": "example.com/test", "conditions": [condition]}
    await services.client.patch_status(HTTP_ROUTES, key, {"parents": [parent]})


@asynccontextmanager
async def accepting(services: Serving) -> AsyncIterator[None]:
    """Accept every version of the route."""

    async def accept() -> None:
        while True:
            await answer(services)

    task = asyncio.create_task(accept())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def weights(services: Serving) -> dict[str, int]:
    route = await services.get(HTTP_ROUTES, "m")
    assert route is not None
    (rule,) = route["spec"]["rules"]
    return {backend["name"]: backend["weight"] for backend in rule["backendRefs"]}


async def test_a_service_is_ready_when_its_route_is_accepted(services: Serving) -> None:
    await create_gateway(services)
    services.kubelet.ready = lambda _: False
    await services.create(replicas=2)
    await services.until("Ready", "False", reason="RollingOut")
    assert await services.names(HTTP_ROUTES) == []  # a route to a Service without endpoints would reject requests
    services.kubelet.ready = lambda _: True
    await services.kubelet.reevaluate()
    await services.until("Ready", "False", reason="RoutePending")
    await answer(services)
    await services.until("Ready")
    route = await services.get(HTTP_ROUTES, "m")
    assert route is not None
    assert route["spec"]["hostnames"] == [f"m.{services.namespace}.example.com"]
    assert (await services.service()).status.url == f"http://m.{services.namespace}.example.com"
    assert await weights(services) == {"m-primary": 100}


async def test_the_url_has_the_scheme_and_port_of_the_listener(services: Serving) -> None:
    await create_gateway(services, protocol="HTTPS", port=8443, tls={"certificateRefs": [{"name": "tls"}]})
    await services.create()
    await answer(services)
    await services.until("Ready")
    assert (await services.service()).status.url == f"https://m.{services.namespace}.example.com:8443"


async def test_a_rejected_route_is_a_problem(services: Serving) -> None:
    await create_gateway(services)
    await services.create()
    await answer(services, accepted=False, message="no listener allows the namespace")
    await services.until("Degraded", reason="RouteNotAccepted")
    status = (await services.service()).status
    assert status.ready is False
    assert "no listener allows the namespace" in (status.message or "")


async def test_a_missing_gateway_is_reported_and_replicas_make_the_split(services: Serving) -> None:
    await services.create(replicas=3, canary=CANARY)
    await services.until("Degraded", reason="GatewayNotFound")
    await services.until("Ready")
    assert (await services.service()).status.canaryWeight == 25
    assert await services.names(HTTP_ROUTES) == []
    await create_gateway(services)
    async with accepting(services):
        await services.until("Degraded", "False")
        await services.until("CanaryHonoured")
    assert await weights(services) == {"m-primary": 75, "m-canary": 25}


async def test_a_route_stays_when_its_gateway_is_gone(services: Serving) -> None:
    """It may come back: until then, the canary keeps its replicas and its weight."""
    await create_gateway(services)
    await services.create(replicas=2, canary={"modelRef": "model:2", "weight": 50})
    async with accepting(services):
        await services.until("CanaryHonoured")
    await services.client.delete(GATEWAYS, ObjectKey(services.namespace, "edge"))
    await services.until("Degraded", reason="GatewayNotFound")
    assert await weights(services) == {"m-primary": 50, "m-canary": 50}
    assert (await services.service()).status.ready is True
    await create_gateway(services)
    await services.until("Degraded", "False")


async def test_a_canary_has_its_weight_in_the_route_and_an_autoscaler_of_its_own(services: Serving) -> None:
    await create_gateway(services)
    scaling: dict[str, Any] = {"minReplicas": 4, "maxReplicas": 9, "resources": {"cpu": "1"}}
    await services.create(replicas=4, **scaling)
    await answer(services)
    await services.until("Ready")
    await services.change(canary=CANARY)
    await answer(services)
    await services.until("CanaryHonoured")
    assert await weights(services) == {"m-primary": 75, "m-canary": 25}
    assert await services.names(HPAS) == ["m-canary-hpa", "m-primary-hpa"]
    assert (await services.replicas("m-primary"), await services.replicas("m-canary")) == (4, 1)
    found = await services.get(SERVICES, "m-svc")
    assert found is not None
    assert found["spec"]["selector"]["vmafx.dev/track"] == "primary"  # its callers bypass the gateway
    await services.change(canary={"weight": 0})
    await answer(services)
    await services.until("CanaryHonoured")
    assert await weights(services) == {"m-primary": 100}


async def test_a_removed_canary_stays_until_the_gateway_no_longer_uses_it(services: Serving) -> None:
    await create_gateway(services)
    await services.create(replicas=2, canary={"modelRef": "model:2", "weight": 50})
    async with accepting(services):
        await services.until("CanaryHonoured")
    await services.change(canary=None)
    await services.until("Progressing", reason="RetiringCanary")
    assert await weights(services) == {"m-primary": 100}
    assert await services.names(DEPLOYMENTS) == ["m-canary", "m-primary"]
    await answer(services)
    await services.until("Ready")
    await services.eventually(lambda: _canary_gone(services), "the canary is removed")


async def _canary_gone(services: Serving) -> bool:
    return await services.names(DEPLOYMENTS) == ["m-primary"]
