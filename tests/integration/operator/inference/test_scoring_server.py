"""Services without an image: their replicas are scoring servers. The test runs what the Deployment describes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.project import ROOT
from tests.support.serving import IMAGE, Serving, serving
from tests.support.serving_container import ServingContainer
from vmafx.devcluster.cluster import free_port
from vmafx.kube import INFERENCE_SERVICES, Client
from vmafx.kube.core import DEPLOYMENTS
from vmafx.kube.resources import UntypedObject
from vmafx.operator.inference.gateway import GatewayRef
from vmafx.scoring.request import ScoreOptions, Source
from vmafx.scoring.score import Scorer

NAME, DOMAIN = "house-model", "models.example.com"
BASE, CANARY = "vmaf_v0.6.1", "vmaf_v0.6.1neg"


async def create_example(services: Serving, file: str, **spec: Any) -> None:
    """Create the service of an example, on a port that is free on this machine."""
    body = yaml.safe_load((ROOT / "examples" / file).read_text())
    body["spec"] |= {"port": free_port(), **spec}
    await services.client.create(INFERENCE_SERVICES, body, services.namespace)


async def pod_of(services: Serving, deployment: str) -> UntypedObject:
    """The template of the Pods of a Deployment, once it exists."""

    async def exists() -> bool:
        return await services.get(DEPLOYMENTS, deployment) is not None

    await services.eventually(exists, f"{deployment} exists")
    found = await services.get(DEPLOYMENTS, deployment)
    assert found is not None
    template: UntypedObject = found["spec"]["template"]
    return template


async def test_a_replica_of_the_example_scores_uploaded_clips(services: Serving, clips: Path, tmp_path: Path) -> None:
    await create_example(services, "inference.yaml")
    pod = await pod_of(services, f"{NAME}-primary")
    assert pod["spec"]["containers"][0]["image"] == "vmafx:latest"
    reference, distorted = clips / "reference.mkv", clips / "distorted.mp4"
    expected = await Scorer().score(Source(str(reference)), Source(str(distorted)), ScoreOptions(model=BASE))
    async with ServingContainer(pod, tmp_path) as server:
        assert await server.passes("livenessProbe")
        reply = await server.upload(reference, distorted)
        assert (reply.status, reply.json()["score"], reply.json()["model"]) == (200, expected.result.score, BASE)
        page = await server.get(reply.json()["links"]["page"])  # drawn, which needs a folder to write to
        assert page.status == 200
        assert [line for line in server.log_lines() if line["level"] == "error"] == []
        assert await server.stop() == 0
    assert list(server.scratch.glob("vmafx-serve-*")) == []


async def test_primary_and_canary_serve_their_models(services: Serving, clips: Path, tmp_path: Path) -> None:
    await create_example(services, "inference-canary.yaml")
    for track, model in (("primary", BASE), ("canary", CANARY)):
        async with ServingContainer(await pod_of(services, f"{NAME}-{track}"), tmp_path) as server:
            reply = await server.upload(clips / "reference.mkv", clips / "distorted.mp4")
            assert (reply.status, reply.json()["model"]) == (200, model)


@pytest.fixture
async def behind_gateway(client: Client, namespace: str) -> AsyncIterator[Serving]:
    async with serving(client, namespace, gateway=GatewayRef("gateways", "edge"), domain=DOMAIN) as services:
        yield services


async def test_a_replica_answers_to_the_host_at_the_gateway_and_to_the_url_in_the_cluster(
    behind_gateway: Serving, clips: Path, tmp_path: Path
) -> None:
    await create_example(behind_gateway, "inference.yaml")
    namespace = behind_gateway.namespace
    pod = await pod_of(behind_gateway, f"{NAME}-primary")
    async with ServingContainer(pod, tmp_path, host=f"{NAME}.{namespace}.{DOMAIN}") as server:
        reply = await server.upload(clips / "reference.mkv", clips / "distorted.mp4")
        assert reply.status == 200, reply.body
        server.host = f"{NAME}-svc.{namespace}.svc"
        assert (await server.get("/v1/models")).status == 200
        server.host = f"other.{namespace}.{DOMAIN}"
        assert (await server.get("/v1/models")).status == 421


async def test_a_replica_without_its_model_is_alive_and_not_ready(services: Serving, tmp_path: Path) -> None:
    await create_example(services, "inference.yaml", modelRef="http://127.0.0.1:1/model.json")
    pod = await pod_of(services, f"{NAME}-primary")
    async with ServingContainer(pod, tmp_path, ready=False) as server:
        assert await server.passes("livenessProbe")
        assert not await server.passes("readinessProbe")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"modelRef": "house:1"},
            "there is no model 'house:1'; use vmaf_v0.6.1, ",
        ),
    ],
)
async def test_a_replica_that_can_never_serve_ends_and_says_why(
    services: Serving, tmp_path: Path, spec: dict[str, Any], message: str
) -> None:
    await create_example(services, "inference.yaml", **spec)
    server = ServingContainer(await pod_of(services, f"{NAME}-primary"), tmp_path)
    process = await server.spawn()
    assert await process.wait() == 1
    assert message in server.log.read_text().splitlines()[-1]  # which the kubelet takes as the termination message


async def test_a_gpu_without_an_engine_is_refused_before_replicas_hold_it(services: Serving) -> None:
    await services.create(image=None, modelRef=BASE, gpuVendor="nvidia")
    await services.until("Degraded", reason="NoEngine")
    status = (await services.service("m")).status
    assert "no engine for nvidia; set spec.image to one that has, or use gpuVendor cpu" in (status.message or "")
    assert await services.get(DEPLOYMENTS, "m-primary") is None
    await services.change(gpuVendor="cpu")
    await services.until("Degraded", "False")
    assert await services.get(DEPLOYMENTS, "m-primary") is not None


async def test_another_default_image_is_rolled_out_and_the_same_one_is_not(client: Client, namespace: str) -> None:
    async def container(services: Serving) -> tuple[int, UntypedObject]:
        await services.until("Ready", name="m")
        found = await services.get(DEPLOYMENTS, "m-primary")
        assert found is not None
        (only,) = found["spec"]["template"]["spec"]["containers"]
        return found["metadata"]["generation"], only

    async with serving(client, namespace) as services:
        await services.create(image=None, modelRef=BASE)
        first, scoring = await container(services)
    async with serving(client, namespace) as services:
        await services.change(minReplicas=0)  # is reconciled, and changes nothing
        assert await container(services) == (first, scoring)
    async with serving(client, namespace, serving_image=IMAGE) as services:
        await services.eventually(lambda: is_image(services, IMAGE), "the new image is declared")
        generation, other = await container(services)
    assert generation > first
    assert "command" not in other
    assert {one["name"] for one in other["env"]} == {"PORT", "MODEL_REF", "HOME", "TMPDIR"}
    async with serving(client, namespace) as services:
        await services.eventually(lambda: is_image(services, "vmafx:latest"), "the first image is declared again")
        assert (await container(services))[1] == scoring


async def is_image(services: Serving, image: str) -> bool:
    found = await services.get(DEPLOYMENTS, "m-primary")
    return found is not None and found["spec"]["template"]["spec"]["containers"][0]["image"] == image
