"""Inference services and trainings on a real cluster: no request fails during changes, and no sample is lost."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.clips import ClipServer
from tests.e2e.cluster import Cluster
from tests.e2e.product import PRIVATE, SMALL, START, Product
from tests.e2e.serving import CANARY, PRIMARY, InferenceService, assert_scored, assert_split
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

TRAINER = {"VMAFX_INSECURE_REGISTRIES": Cluster.registry, **PRIVATE}
VALUES = {
    "deployment": {"replicaCount": 0},
    "agents": {"pools": {"edge": {"capacity": 1, "labels": {"pool": "edge"}, "env": PRIVATE, "resources": SMALL}}},
    "operator": {
        "extraEnv": [
            {"name": "VMAFX_TRAINER_ENV", "value": ";".join(f"{name}={value}" for name, value in TRAINER.items())},
            {"name": "VMAFX_TRAINER_POLL_SECONDS", "value": "1"},
        ],
    },
}
REQUESTS, TOLERANCE = 20_000, 3.0  # percent points, of the canary's requests


@pytest.fixture(scope="module")
def product(product_cluster: Cluster) -> Iterator[Product]:
    product = Product(product_cluster, "models")
    product.install(values=VALUES)
    product.pool(capacity=2)
    product.wait_for_node(product.pods("agent-edge")[0]["metadata"]["name"])
    yield product
    product.remove()


# Serving


def test_a_service_scores_through_rollouts_and_canaries(product: Product, clips: ClipServer, score: float) -> None:
    service = InferenceService(product, "house", clips)
    service.create(modelRef=PRIMARY, replicas=3)
    assert service.status["url"] == f"http://house-svc.{product.namespace}.svc"
    with service.scoring() as scored:
        service.change(canary={"modelRef": CANARY, "weight": 25})
        weight = service.status["canaryWeight"]
        assert weight < 50  # so that it is not that of the primary
        asked = service.ask(REQUESTS)
        service.change(modelRef=CANARY, canary=None)
        service.change(modelRef=PRIMARY)
        scored.wait_for(PRIMARY)
    assert_scored(scored, score)
    assert_split(asked, REQUESTS, weight, TOLERANCE)


# Training


def test_a_training_learns_from_pods_and_agents_and_survives(product: Product, clips: ClipServer) -> None:
    spec = {
        "baseModel": PRIMARY,
        "checkpoint": {"interval": "2s", "minSamples": 1},
        "outputRegistry": f"{product.cluster.registry}/models/house",
        "storage": {"size": "1Gi"},
    }

    def status() -> Any:
        return product.get("vmtrain", "house")["status"]

    def learn(pool: str, what: str) -> None:
        """Score clips until the training has new samples; one clip in ten is held out."""
        before = status().get("currentSamples", 0)
        for number in range(6):
            name = f"{what}-{number}"
            product.submit(name, clips.urls(), pool=pool)
            product.finished(name)
            try:
                until(lambda: status().get("currentSamples", 0) > before, "the samples are used", 20)
            except AssertionError:
                continue
            return
        raise AssertionError(f"no samples of {pool} arrived: {status()}")

    metadata = {"name": "house"}
    product.apply({"apiVersion": "vmafx.dev/v1", "kind": "VmafxModelTraining", "metadata": metadata, "spec": spec})
    product.kubectl("wait", "--for=condition=Ready", "vmtrain/house", "--timeout=140s")
    learn("pool", "sampled-in-a-pod")
    learn("edge", "sampled-by-an-agent")
    until(lambda: str(status().get("modelVersion", "")).startswith("sha256:"), "a version is published", 90)

    product.kubectl("patch", "vmtrain/house", "--type=merge", '--patch={"spec":{"paused":true}}')
    product.kubectl("wait", "--for=jsonpath={.status.phase}=Paused", "vmtrain/house", f"--timeout={START}")
    paused = status()["currentSamples"]
    for number in range(3):  # at least one is not held out, but once in a thousand
        product.submit(f"while-paused-{number}", clips.urls())
        product.finished(f"while-paused-{number}")
    assert status()["currentSamples"] == paused
    product.kubectl("patch", "vmtrain/house", "--type=merge", '--patch={"spec":{"paused":false}}')
    until(lambda: status()["currentSamples"] > paused, "stored samples are used after the pause", 90)

    before = status()["currentSamples"]
    (pod,) = product.get("pods", "--selector=vmafx.dev/training=house")["items"]
    product.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force", f"--timeout={START}")
    product.kubectl("rollout", "status", "deployment/vmafx-trainer-house", f"--timeout={START}")
    learn("pool", "after-a-kill")
    assert status()["currentSamples"] > before
