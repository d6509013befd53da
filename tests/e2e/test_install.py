"""The quick start on a real cluster: installed, a job in a Pod and one by an agent, upgraded, rolled back, uninstalled.

The short form that `.ci/run` runs.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.clips import FRAMES, ClipServer
from tests.e2e.cluster import Cluster
from tests.e2e.image import IMAGE
from tests.e2e.product import CHART, PRIVATE, RELEASE, SMALL, START, Product, is_ready
from tests.support.chart import WORKLOADS, render
from tests.support.project import ROOT
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.quick]

EDGE = {"capacity": 1, "labels": {"pool": "edge"}, "env": PRIVATE, "resources": SMALL}
AGENTS = {"agents": {"pools": {"edge": EDGE}}}
DEBUG = {"operator": {"logLevel": "debug"}, "controller": {"logLevel": "debug"}}


@pytest.fixture(scope="module")
def before(product_cluster: Cluster) -> set[str]:
    """All objects of the cluster, without the product."""
    return Product(product_cluster, "install").everything()


@pytest.fixture(scope="module")
def product(product_cluster: Cluster, before: set[str]) -> Iterator[Product]:
    """The release, installed with the command of the documentation."""
    product = Product(product_cluster, "install")
    product.install()
    yield product
    product.remove()


def agent_of(product: Product) -> str:
    """The VmafxNode of the only agent."""
    (pod,) = product.pods("agent-edge")
    return str(pod["metadata"]["name"])


def test_prometheus_reads_the_alerts_and_the_dashboard(tmp_path: Path) -> None:
    """As its promtool says: the alerts as they are, the queries of the dashboard as rules."""
    rules = []
    for workload in WORKLOADS:
        monitoring = {"enabled": True, "prometheusRule": {"enabled": True}}
        given = {"workload": workload, "operator": {"enabled": True, "leaderElect": True}, "monitoring": monitoring}
        (rendered,) = [one for one in render(given) if one["kind"] == "PrometheusRule"]
        rules += [rule for group in rendered["spec"]["groups"] for rule in group["rules"] if rule not in rules]
    alerts = len(rules)
    dashboard = json.loads((ROOT / CHART / "files" / "dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    rules += [
        {"record": f"panel:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(queries)
    ]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "vmafx", "rules": rules}]}))  # JSON is YAML
    command = ["promtool", "check", "rules", str(tmp_path / "rules.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(rules)} rules found" in done.stdout
    assert (alerts > 8, len(queries) > 20) == (True, True)


def test_the_quick_start_runs_three_pods(product: Product) -> None:
    pods = {component: product.pods(component) for component in ("operator", "controller", "server")}
    assert {component: [is_ready(pod) for pod in found] for component, found in pods.items()} == {
        "operator": [True], "controller": [True], "server": [True],
    }  # fmt: skip
    images = {pod["spec"]["containers"][0]["image"] for found in pods.values() for pod in found}
    assert images == {IMAGE.rpartition("/")[2]}
    assert f"helm test {RELEASE}" in product.notes


def test_a_job_in_a_pod_gets_the_score_of_vmafx_score(product: Product, clips: ClipServer, score: float) -> None:
    product.pool(capacity=2)
    product.submit("in-a-pod", clips.urls())
    status = product.finished("in-a-pod")
    assert status["score"] == pytest.approx(score, abs=1e-6)
    assert (status["assignedNode"], status["frames"], status["attempts"]) == ("pool", FRAMES, 1)
    product.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/in-a-pod-0", f"--timeout={START}")


def test_an_upgrade_adds_an_agent_which_runs_a_job(product: Product, clips: ClipServer, score: float) -> None:
    product.install(values=AGENTS)
    product.wait_for_node(agent_of(product))
    product.submit("by-an-agent", clips.urls(), pool="edge")
    status = product.finished("by-an-agent")
    assert status["score"] == pytest.approx(score, abs=1e-6)
    assert (status["assignedNode"], status["frames"]) == (agent_of(product), FRAMES)


def test_helm_test_is_green(product: Product) -> None:
    shown = product.helm("test", RELEASE, "--logs", f"--timeout={START}")
    for check in ("controller", "operator", "server"):
        assert f"POD LOGS: {RELEASE}-test-{check} " in shown
    assert shown.count("Succeeded") == 3


def test_running_jobs_survive_an_upgrade_with_its_crds_and_a_rollback(
    product: Product, clips: ClipServer, score: float
) -> None:
    product.install(values=AGENTS)
    product.wait_for_node(agent_of(product))
    product.pool(capacity=2)
    product.submit("survives-in-a-pod", clips.urls(held="pod"))
    product.submit("survives-on-an-agent", clips.urls(held="agent"), pool="edge")
    clips.wait_until_asked("pod", "agent")
    pods = [[one["metadata"]["uid"] for one in product.pods(component)] for component in ("operator", "controller")]
    columns = "{.spec.versions[0].additionalPrinterColumns}"
    shown = product.kubectl("get", "crd", "vmafxjobs.vmafx.dev", f"--output=jsonpath={columns}")
    stale = [{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns"}]
    product.kubectl("patch", "crd", "vmafxjobs.vmafx.dev", "--type=json", f"--patch={json.dumps(stale)}")
    product.install(values=AGENTS | DEBUG | {"crds": {"upgrade": True}})
    assert product.kubectl("get", "crd", "vmafxjobs.vmafx.dev", f"--output=jsonpath={columns}") == shown != ""
    product.helm("rollback", RELEASE, "--wait", f"--timeout={START}")
    for component, old in zip(("operator", "controller"), pods, strict=True):
        assert [one["metadata"]["uid"] for one in product.pods(component)] != old  # both were really restarted
    assert "debug" not in product.helm("get", "values", RELEASE)
    clips.release("pod", "agent")
    for name, key in (("survives-in-a-pod", "pod"), ("survives-on-an-agent", "agent")):
        status = product.finished(name)
        assert status["score"] == pytest.approx(score, abs=1e-6)
        assert (status["attempts"], status.get("failures", 0)) == (1, 0)
        assert clips.times_asked(key) == 1


def test_uninstall_leaves_only_the_crds(product: Product, before: set[str]) -> None:
    product.install(values=AGENTS)
    product.pool()
    product.wait_for_node(agent_of(product))
    product.uninstall()
    # Helm deletes neither CRDs nor the objects that people have created: jobs, and one node here.
    product.kubectl("delete", "vmafxjobs", "--all", f"--timeout={START}")
    product.kubectl("delete", "vmafxnode", "pool", f"--timeout={START}")
    until(lambda: not product.get("pods")["items"], "all Pods are gone", 60)
    left = {line for line in product.everything() - before if not line.startswith("CustomResourceDefinition ")}
    assert left == set()
