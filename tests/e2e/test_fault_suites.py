"""The fault suites of Pods and agents in short form: every job ends once and as it should, and leaves nothing.

`make soak` runs hundreds of jobs on processes; here the faults are those of a real cluster.
FAULT_SEED=7 selects another plan.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.e2e.chaos_cluster import REPLICAS, ChaosCluster
from tests.e2e.clips import ClipServer
from tests.e2e.cluster import Cluster
from tests.e2e.cluster_faults import AGENT, AGENTS_POOL, PODS_POOL
from tests.e2e.product import PRIVATE, SMALL, START, Product
from tests.support.chaos_plan import Fault, make_plan
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

JOBS = 60
FAULTS: Counter[Fault] = Counter({
    "delete leader's Pod": 1, "kill leader": 2, "delete controller's Pod": 1, "kill controller": 2,
    "delete worker's Pod": 2, "kill worker": 3, "delete agent's Pod": 1, "kill agent": 2,
    "kill kubelet": 1, "drain Kubernetes node": 1, "unplug Kubernetes node": 1,
})  # fmt: skip
# Each on a node of its own: the other one goes on if a node is lost.
APART = {
    "labelSelector": {"matchLabels": {"app.kubernetes.io/component": AGENT}},
    "topologyKey": "kubernetes.io/hostname",
}
AGENT_POOL = {
    "replicas": REPLICAS[AGENT], "capacity": 2, "labels": {"pool": AGENTS_POOL}, "env": PRIVATE, "resources": SMALL,
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [APART]}},
}  # fmt: skip
VALUES = {
    "operator": {"replicas": REPLICAS["operator"], "leaderElect": True},
    "controller": {"replicas": REPLICAS["controller"]},
    "deployment": {"replicaCount": 0},
    "agents": {"pools": {AGENTS_POOL: AGENT_POOL}, "drainSeconds": 5},
}


@pytest.fixture(scope="module")
def product(product_cluster: Cluster) -> Iterator[Product]:
    product = Product(product_cluster, "fault-suites")
    product.install(values=VALUES)
    product.pool(PODS_POOL, capacity=4)
    for number in range(REPLICAS[AGENT]):
        product.wait_for_node(f"vmafx-agent-{AGENTS_POOL}-{number}")
    yield product
    product.remove()


async def test_every_job_ends_once_and_as_it_should(product: Product, clips: ClipServer, score: float) -> None:
    seed, started = int(os.environ.get("FAULT_SEED", "1")), time.monotonic()

    def log(text: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {text}", flush=True)  # noqa: T201 - progress, and the seed of a failure

    log(f"FAULT_SEED={seed}: {JOBS} jobs, {FAULTS.total()} faults")
    chaos = ChaosCluster(product, clips, make_plan(seed, JOBS, FAULTS, of_each=2), seed, log)
    await chaos.run(within=600, score=score)
    log(f"{dict(chaos.done)}; no violation in {chaos.changes} changes of jobs, Pods and nodes")
    log(f"attempts that were repeated: {dict(chaos.repeated)}")
    assert chaos.fleet.injected == FAULTS
    assert chaos.done.total() == JOBS


def test_deleted_jobs_leave_no_pods(product: Product) -> None:
    product.kubectl("delete", "vmafxjobs", "--all", f"--timeout={START}")
    until(lambda: not product.get("pods", "--selector=vmafx.dev/job")["items"], "the Pods of jobs are gone", 60)
