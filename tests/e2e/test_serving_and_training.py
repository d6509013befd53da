"""Inference services and trainings on a real cluster: no request fails during changes, and no sample is lost."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.clips import ClipServer
from tests.e2e.cluster import Cluster
from tests.e2e.product import PRIVATE, SMALL, START, Product, score_here
from tests.support.project import ROOT
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
PRIMARY, CANARY = "vmaf_v0.6.1", "vmaf_v0.6.1neg"
REQUESTS, TOLERANCE = 20_000, 3.0  # percent points, of the canary's requests


@pytest.fixture(scope="module")
def product(product_cluster: Cluster) -> Iterator[Product]:
    product = Product(product_cluster, "models")
    product.install(values=VALUES)
    product.pool(capacity=2)
    product.wait_for_node(product.pods("agent-edge")[0]["metadata"]["name"])
    yield product
    product.remove()


def resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "vmafx.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


# Serving


def command(product: Product, url: str, clips: ClipServer, count: int = 0) -> list[str]:
    return product.cluster.command([sys.executable, "-m", "tests.e2e.load", url, str(clips.folder), str(count)])


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@contextmanager
def scoring(product: Product, url: str, clips: ClipServer) -> Iterator[list[dict[str, Any]]]:
    """Score clips until the end of the block; then the list has what was printed."""
    lines: list[dict[str, Any]] = []
    line = command(product, url, clips)
    with subprocess.Popen(line, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield lines
        finally:
            process.terminate()
            output, _ = process.communicate(timeout=120)
    lines += [json.loads(one) for one in output.splitlines()]


def asked(product: Product, url: str, clips: ClipServer) -> dict[str, int]:
    """How many of REQUESTS each model answered."""
    done = subprocess.run(
        command(product, url, clips, REQUESTS), cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True,
        timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *errors, last = done.stdout.splitlines()
    assert errors == []
    return dict(json.loads(last)["models"])


def test_a_service_scores_through_rollouts_and_canaries(product: Product, clips: ClipServer) -> None:
    spec = {"modelRef": PRIMARY, "replicas": 2, "resources": {"cpu": "100m", "memory": "512Mi"}}

    def change(**fields: Any) -> None:
        product.kubectl("patch", "zis/house", "--type=merge", f"--patch={json.dumps({'spec': fields})}")
        generation = product.get("zis", "house")["metadata"]["generation"]
        until(lambda: current(generation), f"the service is Ready with {fields}", 180)

    def current(generation: int) -> bool:
        status = product.get("zis", "house")["status"]
        ready = [one for one in status.get("conditions", []) if one["type"] == "Ready" and one["status"] == "True"]
        return bool(ready) and ready[0].get("observedGeneration", 0) >= generation

    product.apply(resource("ZerfooInferenceService", "house", spec))
    product.kubectl("wait", "--for=condition=Ready", "zis/house", "--timeout=140s")
    url = product.get("zis", "house")["status"]["url"]
    assert url == f"http://house-svc.{product.namespace}.svc"
    with scoring(product, url, clips) as lines:
        change(canary={"modelRef": CANARY, "weight": 50})
        weight = product.get("zis", "house")["status"]["canaryWeight"]
        answers = asked(product, url, clips)
        change(modelRef=CANARY, canary=None)
        change(modelRef=PRIMARY)
    *scored, total = lines
    assert total["failed"] == 0, [one for one in scored if "error" in one]
    assert set(total["models"]) == {PRIMARY, CANARY}
    expected = pytest.approx(score_here(clips.reference, clips.distorted), abs=1e-6)
    assert any(one["scored"] == expected for one in scored)
    assert sum(answers.values()) == REQUESTS
    assert 100 * answers[CANARY] / REQUESTS == pytest.approx(weight, abs=TOLERANCE)


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

    product.apply(resource("VmafxModelTraining", "house", spec))
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
