"""Jobs on a real cluster whose parts fail: leaders, Kubernetes nodes, kubelets, GPUs. Prometheus scrapes it."""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clips import ClipServer
from tests.e2e.cluster import Cluster
from tests.e2e.cluster.network import CONTROL_PLANE
from tests.e2e.product import START, Product, is_ready
from tests.support.waiting import until
from vmafx.api.hardware import HARDWARE, Vendor
from vmafx.devcluster.process import start_component

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

PROMETHEUS_PORT = 9095
VALUES = {
    "operator": {"replicas": 2, "leaderElect": True},
    "controller": {"replicas": 2},
    "deployment": {"replicaCount": 0},
}
GPUS = [vendor for vendor, one in HARDWARE.items() if one.resource]
LOST = 240  # seconds until a job has left a lost node: the cluster notices after 16, and Pods tolerate it for 60


@pytest.fixture(scope="module")
def product(product_cluster: Cluster) -> Iterator[Product]:
    product = Product(product_cluster, "faults")
    product.install(values=VALUES)
    product.pool(capacity=4)
    yield product
    product.remove()


def leader(product: Product) -> str:
    """The name of the operator's Pod that leads; empty if there is none."""
    pod = product.leader()
    return str(pod["metadata"]["name"]) if pod else ""


def attempt_of(product: Product, job: str, attempt: int) -> Any:
    return product.get("pod", f"{job}-{attempt}")


@pytest.mark.parametrize("vendor", GPUS)
def test_a_gpu_job_lands_on_the_node_that_offers_the_device(
    product: Product, clips: ClipServer, vendor: Vendor
) -> None:
    hardware = HARDWARE[vendor]
    assert hardware.resource is not None
    job = f"on-{vendor}"
    product.pool(vendor, gpuVendor=vendor)
    product.submit(job, clips.urls(), pool=vendor, backend=hardware.backend, retryLimit=0)
    unschedulable = '--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable'
    product.kubectl("wait", "--for=create", f"pod/{job}-0", f"--timeout={START}")
    product.kubectl("wait", unschedulable, f"pod/{job}-0", f"--timeout={START}")
    limits = attempt_of(product, job, 0)["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {hardware.resource: "1"}
    with product.cluster.device_plugin("node-2", hardware.resource):
        until(lambda: product.job(job)["phase"] == "Failed", f"{job} has failed, without a real device", 150)
    # The Pod of a failed attempt is deleted.
    events = product.get("events", f"--field-selector=involvedObject.name={job}-0,reason=Scheduled")["items"]
    assert [one["message"].rpartition(" to ")[2] for one in events] == ["node-2"]
    assert f"the backend {hardware.backend} ({hardware.device})" in product.job(job)["message"]


def test_another_leader_takes_over_while_a_job_runs(product: Product, clips: ClipServer, score: float) -> None:
    until(lambda: leader(product) != "", "there is a leader", 60)
    product.submit("led", clips.urls(held="led"))
    clips.wait_until_asked("led")
    old = leader(product)
    product.kubectl("delete", "pod", old, f"--timeout={START}")
    until(lambda: leader(product) not in ("", old), "there is another leader", 90)
    clips.release("led")
    product.submit("led-by-another", clips.urls())
    for name in ("led", "led-by-another"):
        status = product.finished(name)
        assert status["score"] == pytest.approx(score, abs=1e-6)
        assert (status["attempts"], status.get("failures", 0)) == (1, 0)


def test_a_drained_node_hands_its_job_on(product: Product, clips: ClipServer, score: float) -> None:
    product.submit("drained", clips.urls(held="drained"))
    clips.wait_until_asked("drained")
    node = attempt_of(product, "drained", 0)["spec"]["nodeName"]
    product.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={START}")
    try:
        until(lambda: clips.times_asked("drained") == 2, "the next attempt downloads the clip", 120)
        assert attempt_of(product, "drained", 1)["spec"]["nodeName"] != node
        clips.release("drained")
        status = product.finished("drained")
    finally:
        product.kubectl("uncordon", node)
    assert status["score"] == pytest.approx(score, abs=1e-6)
    assert (status["attempts"], status.get("failures", 0)) == (2, 0)  # a drain is no failure
    until(lambda: all(map(is_ready, product.pods("operator"))), "both operators are ready", 120)


def test_a_job_leaves_a_node_whose_kubelet_is_killed(product: Product, clips: ClipServer, score: float) -> None:
    product.submit("lost", clips.urls(held="lost"))
    clips.wait_until_asked("lost")
    node = attempt_of(product, "lost", 0)["spec"]["nodeName"]
    with product.cluster.node_loss(node):
        until(lambda: clips.times_asked("lost") == 2, "the next attempt downloads the clip", LOST)
        assert attempt_of(product, "lost", 1)["spec"]["nodeName"] != node
        clips.release("lost")  # the first one goes on too, and its result comes too late
        status = product.finished("lost")
    assert status["score"] == pytest.approx(score, abs=1e-6)
    assert (status["phase"], status["attempts"], status.get("failures", 0)) == ("Succeeded", 2, 0)
    until(lambda: all(map(is_ready, product.pods("operator"))), "both operators are ready", 120)


class Prometheus:
    """Debian's Prometheus beside the control plane, asked from here."""

    def __init__(self, address: str) -> None:
        self._address = address

    def query(self, expression: str) -> dict[str, float]:
        """The values of an instant query, by job."""
        arguments = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://{self._address}/api/v1/query?{arguments}", timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
        return {one["metric"].get("job", ""): float(one["value"][1]) for one in found}


@pytest.fixture
def prometheus(product: Product, tmp_path: Path) -> Iterator[Prometheus]:
    ports = {"operator": 8081, "controller": 8080}
    targets = {name: [f"{pod['status']['podIP']}:{port}" for pod in product.pods(name)] for name, port in ports.items()}
    assert {name: len(found) for name, found in targets.items()} == {"operator": 2, "controller": 2}
    scrapes = [{"job_name": name, "static_configs": [{"targets": found}]} for name, found in targets.items()]
    configuration = {"global": {"scrape_interval": "2s", "scrape_timeout": "2s"}, "scrape_configs": scrapes}
    (tmp_path / "prometheus.yml").write_text(json.dumps(configuration))  # JSON is YAML
    command = [
        "prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address={CONTROL_PLANE}:{PROMETHEUS_PORT}",
    ]  # fmt: skip
    folder = product.cluster.folder
    process = start_component("prometheus", product.cluster.command(command), folder, tethered=True)
    try:
        log = folder / "logs" / "prometheus.log"
        until(lambda: "ready to receive web requests" in log.read_text(), f"Prometheus is ready: {log}", 60)
        with product.cluster.forward(str(CONTROL_PLANE), PROMETHEUS_PORT) as address:
            yield Prometheus(address)
    finally:
        process.stop()


def test_prometheus_scrapes_the_operators_and_the_controllers(prometheus: Prometheus) -> None:
    up = {"operator": 1.0, "controller": 1.0}
    until(lambda: prometheus.query("min by (job) (up)") == up, "all four are up", 60)
    leaders = "sum by (job) (leader_election_master_status)"
    until(lambda: prometheus.query(leaders) == {"operator": 1.0}, "one operator leads", 60)
    reconciles = "sum by (job) (controller_runtime_reconcile_total)"
    until(lambda: prometheus.query(reconciles).get("operator", 0) > 0, "reconciliations are counted", 60)
