"""The life of a service, as `kubectl get` shows it: the operator's reconciler and a real kube-controller-manager."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.conftest import Kubectl
from tests.support.proxy import Fault, FaultyProxy, Refuse
from tests.support.serving import IMAGE, Serving, serving
from vmafx.kube import INFERENCE_SERVICES, Client, ObjectKey, Resource
from vmafx.kube.core import DEPLOYMENTS, HPAS, POD_DISRUPTION_BUDGETS, PODS, SERVICES
from vmafx.kube.errors import Forbidden, Invalid
from vmafx.kube.resources import UntypedObject
from vmafx.operator.context import FIELD_MANAGER
from vmafx.runtime.child import MANAGED_BY

CHILDREN = (DEPLOYMENTS, SERVICES, HPAS, POD_DISRUPTION_BUDGETS)
CANARY = {"modelRef": "model:2", "weight": 25}


async def test_a_service_gets_its_children_and_becomes_ready(services: Serving, kubectl: Kubectl) -> None:
    created = await services.create(replicas=2, resources={"cpu": "500m", "memory": "1Gi"})
    await services.until("Ready")
    head, row = [line.split() for line in kubectl("get", "zis").stdout.splitlines()]
    assert head == ["NAME", "READY", "REPLICAS", "CANARY", "URL", "AGE"]
    assert row[:4] == ["m", "true", "2", f"http://m-svc.{services.namespace}.svc"]
    assert kubectl("wait", "zis/m", "--for=condition=Available", "--timeout=10s").returncode == 0
    assert await services.names(DEPLOYMENTS) == ["m-primary"]
    assert await services.names(SERVICES) == ["m-primary", "m-svc"]
    assert await services.names(POD_DISRUPTION_BUDGETS) == ["m-primary"]
    assert await services.names(HPAS) == []
    for kind in CHILDREN:
        for child in (await services.client.list(kind, services.namespace)).items:
            (owner,) = child["metadata"]["ownerReferences"]
            assert (owner["uid"], owner["controller"]) == (created.metadata.uid, True)
            assert child["metadata"]["labels"][MANAGED_BY] == FIELD_MANAGER


async def test_the_pods_get_the_port_the_model_the_probes_and_no_token(services: Serving) -> None:
    await services.create(
        modelRef="oci://models/a$(HOME):1",
        port=9000,
        resources={"cpu": "2", "memory": "4Gi"},
        healthCheck={"path": "/live", "interval": "2500ms", "timeout": 1_000_000_000},
    )
    await services.until("Ready")
    (pod,) = (await services.client.list(PODS, services.namespace)).items
    (container,) = pod["spec"]["containers"]
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    assert (env["PORT"], env["MODEL_REF"]) == ("9000", "oci://models/a$$(HOME):1")
    assert container["image"] == IMAGE
    assert container["resources"]["requests"] == container["resources"]["limits"] == {"cpu": "2", "memory": "4Gi"}
    for name in ("readinessProbe", "livenessProbe", "startupProbe"):
        probe = container[name]
        assert (probe["httpGet"]["path"], probe["periodSeconds"], probe["timeoutSeconds"]) == ("/live", 3, 1)
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert "healthCheck.interval 2500ms is rounded up to 3s" in ((await services.service()).status.message or "")


async def test_scaling_through_the_scale_subresource(services: Serving, kubectl: Kubectl) -> None:
    await services.create(replicas=1)
    await services.until("Ready")
    assert await services.names(POD_DISRUPTION_BUDGETS) == []
    assert kubectl("scale", "zis/m", "--replicas=3").returncode == 0
    await services.until("Ready")
    assert kubectl("get", "zis", "m", "-o", "jsonpath={.status.replicas}").stdout == "3"
    assert await services.replicas("m-primary") == 3
    assert await services.names(POD_DISRUPTION_BUDGETS) == ["m-primary"]
    scale = json.loads(kubectl("get", "--raw", scale_path(services)).stdout)
    assert scale["status"] == {"replicas": 3, "selector": "vmafx.dev/service=m"}


async def test_autoscaling_hands_the_replicas_over_and_takes_them_back(services: Serving, kubectl: Kubectl) -> None:
    await services.create(replicas=3, resources={"cpu": "1"})
    await services.until("Ready")
    await services.change(minReplicas=2, maxReplicas=10)
    await services.until("Ready")
    shown = kubectl("get", "hpa", "m-primary-hpa", "-o", "jsonpath={.spec.minReplicas} {.spec.maxReplicas}").stdout
    assert shown == "2 10"
    assert await services.replicas("m-primary") == 3  # not reset when the operator gave them up
    assert "f:replicas" not in await managed_spec(services, "m-primary")
    await services.scale("m-primary", 7)
    await services.change(modelRef="model:2")  # the Deployment is applied again
    await services.until("Ready")
    assert await services.replicas("m-primary") == 7
    assert (await services.service()).spec.replicas == 3  # the operator never edits the spec
    await services.change(minReplicas=0, maxReplicas=0)
    await services.until("Ready")
    assert await services.names(HPAS) == []
    await services.eventually(lambda: _is(services.replicas("m-primary"), 3), "the replicas are those of the spec")
    await services.until("Ready")
    assert "f:replicas" in await managed_spec(services, "m-primary")


async def test_an_autoscaled_service_starts_with_its_replicas(services: Serving) -> None:
    await services.create(replicas=4, minReplicas=2, maxReplicas=6, resources={"cpu": "1"})
    await services.until("Ready")
    assert await services.replicas("m-primary") == 4
    assert "f:replicas" not in await managed_spec(services, "m-primary")


async def test_autoscaling_without_a_cpu_request_is_reported(services: Serving) -> None:
    await services.create(minReplicas=1, maxReplicas=2)
    await services.until("Degraded", reason="CannotScale")
    service = await services.service()
    assert service.status.message is not None
    assert "autoscaling needs resources.cpu" in service.status.message


async def test_a_canary_gets_its_share_of_the_replicas(services: Serving, kubectl: Kubectl) -> None:
    await services.create(replicas=3)
    await services.until("Ready")
    await services.change(canary=CANARY)
    await services.until("CanaryHonoured")
    await services.until("Ready")
    assert kubectl("get", "zis", "m", "-o", "jsonpath={.status.canaryReplicas} {.status.canaryWeight}").stdout == "1 25"
    assert await services.names(DEPLOYMENTS) == ["m-canary", "m-primary"]
    assert await services.names(SERVICES) == ["m-canary", "m-primary", "m-svc"]
    assert await selector(services, "m-svc") == {"vmafx.dev/service": "m"}
    await services.change(canary={"weight": 50})
    await services.until("Ready")
    assert await services.replicas("m-canary") == 3
    assert kubectl("get", "zis", "m", "-o", "jsonpath={.status.canaryReplicas} {.status.canaryWeight}").stdout == "3 50"


@pytest.mark.parametrize(("weight", "track", "replicas"), [(0, "primary", 1), (100, "canary", 3)])
async def test_weights_of_0_and_100_are_made_by_the_selector(
    services: Serving, weight: int, track: str, replicas: int
) -> None:
    await services.create(replicas=3, canary={"modelRef": "model:2", "weight": weight})
    await services.until("Ready")
    await services.until("CanaryHonoured")
    assert await selector(services, "m-svc") == {"vmafx.dev/service": "m", "vmafx.dev/track": track}
    assert await services.replicas("m-canary") == replicas
    assert (await services.service()).status.canaryWeight == weight


async def test_a_weight_that_replicas_cannot_make_is_reported(services: Serving) -> None:
    await services.create(replicas=1, canary={"modelRef": "model:2", "weight": 10})
    await services.until("CanaryHonoured", "False", reason="WeightMissed")
    status = (await services.service()).status
    assert status.canaryWeight == 50
    assert "50 % of the requests, its weight is 10" in (status.message or "")


async def test_steps_and_gates_are_reported_as_not_supported(services: Serving) -> None:
    steps = [{"weight": 10, "pause": "1m"}]
    await services.create(replicas=1, canary={"modelRef": "model:2", "weight": 50, "steps": steps})
    await services.until("CanaryHonoured", "False", reason="StepsNotSupported")
    message = (services.condition(await services.service(), "CanaryHonoured") or ("", "", ""))[2]
    assert message.startswith("canary.steps are not supported yet")


async def test_the_canary_follows_an_autoscaled_primary(services: Serving) -> None:
    await services.create(replicas=3, minReplicas=3, maxReplicas=20, resources={"cpu": "1"}, canary=CANARY)
    await services.until("Ready")
    assert await services.names(HPAS) == ["m-primary-hpa"]
    await services.scale("m-primary", 9)
    await services.eventually(lambda: _is(services.replicas("m-canary"), 3), "the canary has a third of the primary's")


async def test_a_canary_that_is_not_ready_gets_no_requests(services: Serving) -> None:
    services.kubelet.ready = lambda pod: "canary" not in pod
    await services.create(replicas=1, canary={"modelRef": "model:2", "weight": 100})
    await services.until("Available")
    await services.until("CanaryHonoured", "False", reason="CanaryNotReady")
    assert await selector(services, "m-svc") == {"vmafx.dev/service": "m", "vmafx.dev/track": "primary"}
    services.kubelet.ready = lambda _: True
    await services.kubelet.reevaluate()
    await services.until("CanaryHonoured")
    assert (await selector(services, "m-svc"))["vmafx.dev/track"] == "canary"
    services.kubelet.ready = lambda pod: "canary" not in pod  # it breaks: requests go back to the primary
    await services.kubelet.reevaluate()
    await services.until("CanaryHonoured", "False")
    await services.eventually(lambda: _selects(services, "primary"), "requests go back to the primary")
    assert services.condition(await services.service(), "Available") is not None


async def test_promotion_is_one_edit_and_the_canary_serves_until_it_is_complete(
    services: Serving, kubectl: Kubectl
) -> None:
    await services.create(replicas=2, canary={"modelRef": "model:2", "weight": 50})
    await services.until("CanaryHonoured")
    await services.until("Ready")
    services.kubelet.ready = lambda pod: "canary" in pod or pod in old  # the new primary is slow to start
    old = [pod["metadata"]["name"] for pod in (await services.client.list(PODS, services.namespace)).items]
    await services.change(modelRef="model:2", canary=None)
    await services.until("Progressing", reason="Promoting")
    status = (await services.service()).status
    assert (status.ready, status.canaryWeight) == (False, 50)
    assert await selector(services, "m-svc") == {"vmafx.dev/service": "m"}
    assert services.condition(await services.service(), "Available") is not None
    services.kubelet.ready = lambda _: True
    await services.kubelet.reevaluate()
    await services.until("Ready")
    assert kubectl("get", "deployments", "-o", "name").stdout.split() == ["deployment.apps/m-primary"]
    status = (await services.service()).status
    assert (status.canaryWeight, status.canaryReplicas) == (None, 0)
    assert services.condition(await services.service(), "CanaryHonoured") is None


async def test_removing_the_canary_aborts_it(services: Serving, kubectl: Kubectl) -> None:
    await services.create(replicas=2, canary={"modelRef": "model:2", "weight": 50})
    await services.until("CanaryHonoured")
    await services.change(canary=None)
    await services.until("Ready")
    await services.eventually(lambda: _are(services, DEPLOYMENTS, ["m-primary"]), "the canary is removed")
    assert kubectl("get", "services", "-o", "name").stdout.split() == ["service/m-primary", "service/m-svc"]
    assert await selector(services, "m-svc") == {"vmafx.dev/service": "m", "vmafx.dev/track": "primary"}


async def test_deleting_a_service_deletes_its_children(services: Serving, kubectl: Kubectl) -> None:
    await services.create(replicas=2, minReplicas=2, maxReplicas=3, resources={"cpu": "1"}, canary=CANARY)
    await services.until("Ready")
    assert kubectl("delete", "zis", "m", "--wait=false").returncode == 0
    for kind in (*CHILDREN, PODS):
        await services.eventually(lambda kind=kind: _are(services, kind, []), f"no {kind.plural} are left")
    kinds = "deployments,services,horizontalpodautoscalers,poddisruptionbudgets,zerfooinferenceservices"
    assert kubectl("get", kinds, "-o", "name").stdout == ""


async def test_drift_is_repaired(services: Serving) -> None:
    await services.create(replicas=2)
    await services.until("Ready")
    key = ObjectKey(services.namespace, "m-primary")
    await services.client.merge_patch(DEPLOYMENTS, key, {"spec": {"replicas": 5}})
    await services.eventually(lambda: _is(services.replicas("m-primary"), 2), "the replicas are repaired")
    await services.client.delete(SERVICES, ObjectKey(services.namespace, "m-svc"))
    await services.eventually(lambda: _are(services, SERVICES, ["m-primary", "m-svc"]), "the Service is back")


async def test_an_object_of_somebody_else_is_not_adopted(services: Serving) -> None:
    ports = [{"name": "x", "port": 1}]
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "m-svc"}, "spec": {"ports": ports}}
    await services.client.create(SERVICES, body, services.namespace)
    await services.create()
    await services.until("Degraded", reason="NameTaken")
    assert services.condition(await services.service(), "Ready") is not None
    assert (await services.service()).status.ready is False
    found = await services.get(SERVICES, "m-svc")
    assert found is not None
    assert found["spec"]["ports"][0]["port"] == 1


async def test_ready_is_about_the_latest_generation(services: Serving, kubectl: Kubectl) -> None:
    """A rollout is not ready before its last replica: `kubectl wait` can be trusted."""
    await services.create(replicas=2)
    await services.until("Ready")
    services.kubelet.ready = lambda pod: pod in old
    old = [pod["metadata"]["name"] for pod in (await services.client.list(PODS, services.namespace)).items]
    await services.change(modelRef="model:2")
    await services.until("Ready", "False", reason="RollingOut")
    assert services.condition(await services.service(), "Available") == (
        "True", "ReplicasReady", "2 of 2 replicas of the primary are ready",
    )  # fmt: skip
    assert kubectl("wait", "zis/m", "--for=condition=Ready", "--timeout=1s").returncode != 0
    services.kubelet.ready = lambda _: True
    await services.kubelet.reevaluate()
    await services.until("Ready")


async def test_a_refused_status_is_written_later(client: Client, namespace: str) -> None:
    """Even if no event follows the conflict."""

    def conflict(request: web.Request) -> Fault | None:
        about = f"{INFERENCE_SERVICES.path(ObjectKey(namespace, 'm'))}/status"
        return Refuse(409) if request.path == about else None

    async def complete() -> bool:
        found = await services.get(DEPLOYMENTS, "m-primary")
        return found is not None and found.get("status", {}).get("availableReplicas") == 1

    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        proxy.choose = conflict
        async with serving(through, namespace) as services:
            await services.create()
            await services.eventually(complete, "the Deployment is complete")
            proxy.choose = lambda _: None
            await services.until("Ready")


async def test_a_deployment_scaled_to_zero_is_reported(services: Serving) -> None:
    """Its autoscaler is off then: nobody would scale it up again."""
    await services.create(replicas=2, minReplicas=2, maxReplicas=4, resources={"cpu": "1"})
    await services.until("Ready")
    await services.scale("m-primary", 0)
    await services.until("Degraded", reason="ScaledToZero")
    await services.until("Ready", "False", reason="ScaledToZero")
    await services.scale("m-primary", 2)
    await services.until("Ready")


async def test_the_canary_stays_while_requests_cannot_be_sent_elsewhere(services: Serving) -> None:
    """A policy refuses changes of the Service that selects the canary: removing the canary would be an outage."""
    await services.create(replicas=1, canary={"modelRef": "model:2", "weight": 100})
    await services.until("CanaryHonoured")
    async with refused_changes(services, "m-svc"):
        await services.change(canary=None)
        await services.until("Degraded", reason="Refused")
        assert await services.names(DEPLOYMENTS) == ["m-canary", "m-primary"]
        assert (await selector(services, "m-svc"))["vmafx.dev/track"] == "canary"
        found = services.condition(await services.service(), "Available")
        assert found is not None
        assert found[0] == "True"


@asynccontextmanager
async def refused_changes(services: Serving, name: str) -> AsyncIterator[None]:
    """An admission policy that refuses to change a Service of this namespace."""
    policy = f"frozen-{services.namespace}"
    group, version = "admissionregistration.k8s.io", "v1"
    policies: Resource[UntypedObject] = Resource(
        group, version, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", dict, namespaced=False
    )
    bindings: Resource[UntypedObject] = Resource(
        group, version, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", dict, namespaced=False
    )
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["services"]}
    expression = f"object.metadata.name != '{name}' || object.metadata.namespace != '{services.namespace}'"
    body = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}]}
    await services.client.create(policies, {"metadata": {"name": policy}, "spec": body})
    binding = {"policyName": policy, "validationActions": ["Deny"]}
    await services.client.create(bindings, {"metadata": {"name": policy}, "spec": binding})

    async def in_force() -> bool:
        try:
            labels = {"metadata": {"labels": {"probe": "x"}}}
            await services.client.merge_patch(SERVICES, ObjectKey(services.namespace, name), labels)
        except (Forbidden, Invalid):
            return True
        return False

    await services.eventually(in_force, "the policy is in force")
    try:
        yield
    finally:
        await services.client.delete(bindings, ObjectKey("", policy))
        await services.client.delete(policies, ObjectKey("", policy))


def scale_path(services: Serving) -> str:
    return f"{INFERENCE_SERVICES.path(ObjectKey(services.namespace, 'm'))}/scale"


async def selector(services: Serving, name: str) -> dict[str, str]:
    found = await services.get(SERVICES, name)
    assert found is not None
    selected: dict[str, str] = found["spec"]["selector"]
    return selected


async def managed_spec(services: Serving, name: str) -> dict[str, Any]:
    """The fields of the spec that the operator owns."""
    found = await services.get(DEPLOYMENTS, name)
    assert found is not None
    entries = found["metadata"]["managedFields"]
    (ours,) = [one for one in entries if one["manager"] == FIELD_MANAGER and one["operation"] == "Apply"]
    fields: dict[str, Any] = ours["fieldsV1"]["f:spec"]
    return fields


async def _is(value: Any, expected: object) -> bool:
    return bool(await value == expected)


async def _are(services: Serving, kind: Any, expected: list[str]) -> bool:
    return await services.names(kind) == expected


async def _selects(services: Serving, track: str) -> bool:
    return (await selector(services, "m-svc")).get("vmafx.dev/track") == track
