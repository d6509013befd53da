"""The three workloads of the chart on a real cluster: scoring server, batch job with a Pushgateway, MCP server."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.e2e.clips import REFERENCE, ClipServer
from tests.e2e.cluster import Cluster
from tests.e2e.cluster.images import pack
from tests.e2e.product import PRIVATE, RELEASE, START, WORKLOAD, Product
from tests.support.project import ROOT
from tests.support.pushgateway import PROGRAM, Pushgateway
from tests.support.tune import encodes

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

SUBCHART = ROOT / "deploy/helm/vmafx/charts/prometheus-pushgateway"


@contextmanager
def installed(cluster: Cluster, namespace: str, values: dict[str, Any]) -> Iterator[Product]:
    """A workload without the operator; its clips come from addresses of the cluster."""
    product = Product(cluster, namespace)
    try:
        product.install(values={"env": PRIVATE, **values}, options=WORKLOAD)
        yield product
    finally:
        product.remove()


async def test_the_scoring_server_scores_uploads_behind_its_service(
    product_cluster: Cluster, clips: ClipServer, score: float
) -> None:
    with installed(product_cluster, "serving", {"deployment": {"replicaCount": 2}}) as product:
        assert len(product.pods("server")) == 2
        host = f"{RELEASE}.{product.namespace}.svc.cluster.local"
        with product.cluster.forward(host, 80) as address:
            for _ in range(4):
                assert await upload(f"http://{address}", clips) == pytest.approx(score, abs=1e-6)


async def upload(url: str, clips: ClipServer) -> float:
    """Score the clips as a browser or curl sends them."""
    form = aiohttp.FormData()
    form.add_field("reference", clips.reference.read_bytes(), filename=clips.reference.name)
    form.add_field("distorted", clips.distorted.read_bytes(), filename=clips.distorted.name)
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=90)) as session,
        session.post(f"{url}/v1/score", data=form, headers={"Prefer": "wait=60"}) as response,
    ):
        body = await response.json()
        assert response.status == 200, body
        return float(body["score"])


@pytest.fixture
def pushgateway_image(product_cluster: Cluster, tmp_path: Path) -> None:
    """Debian's Pushgateway under the name of the subchart's default image."""
    program = shutil.which(PROGRAM)
    assert program is not None, f"{PROGRAM} is missing; on Debian: apt-get install {PROGRAM}"
    values = yaml.safe_load((SUBCHART / "values.yaml").read_text())
    tag = yaml.safe_load((SUBCHART / "Chart.yaml").read_text())["appVersion"]
    shown = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=30, check=False).stdout
    libraries = [Path(path) for path in re.findall(r"(/\S+) \(0x", shown)]
    name = f"{values['image']['repository']}:{tag}"
    product_cluster.load_image(pack(tmp_path / "pushgateway.tar", name, Path(program), libraries=libraries))


@pytest.mark.usefixtures("pushgateway_image")
def test_a_batch_job_pushes_its_figures_to_the_pushgateway(product_cluster: Cluster, clips: ClipServer) -> None:
    source = clips.urls()["reference"]
    arguments = ["compare", source, "--encoders", "libx264:ultrafast", "--quality", "30", "--json"]
    values = {"workload": "Job", "pushgateway": {"enabled": True}, "job": {"args": arguments}}
    with installed(product_cluster, "batch", values) as product:
        (job,) = product.get("jobs")["items"]
        product.kubectl("wait", "--for=condition=Complete", f"job/{job['metadata']['name']}", f"--timeout={START}")
        printed = json.loads(product.kubectl("logs", f"job/{job['metadata']['name']}"))
        with product.cluster.forward(f"{RELEASE}-pushgateway.{product.namespace}.svc.cluster.local", 9091) as address:
            figures = Pushgateway(f"http://{address}").figures()
    (pushed,) = [one for one in figures if one.name == "vmaf_tune_score"]
    assert pushed.labels["source"].endswith(REFERENCE)
    assert (pushed.labels["encoder"], pushed.labels["quality"]) == ("libx264", "30")
    assert pushed.value == pytest.approx(encodes(printed)["libx264:ultrafast 30"]["score"])


def test_the_mcp_server_is_reached_by_its_stable_name_and_keeps_its_jobs(
    product_cluster: Cluster, clips: ClipServer, score: float
) -> None:
    volume = {"size": "100Mi"}
    volumes = {"enabled": True, "corpus": volume, "output": volume, "state": {**volume, "whenDeleted": "Delete"}}
    values = {"workload": "StatefulSet", "statefulSet": {"replicaCount": 2}, "persistence": volumes}
    with installed(product_cluster, "assistants", values) as product:
        assert sorted(pod["metadata"]["name"] for pod in product.pods("mcp")) == [f"{RELEASE}-0", f"{RELEASE}-1"]
        answers = [ask_as_assistant(product, number, clips) for number in (0, 1)]
        for answer in answers:
            assert {"score", "compare"} <= set(answer["tools"])
            assert answer["score"] == pytest.approx(score, abs=1e-6)
            assert len(answer["jobs"]) == 1
        product.kubectl("delete", "pod", f"{RELEASE}-0", f"--timeout={START}")
        product.kubectl("rollout", "status", f"statefulset/{RELEASE}", f"--timeout={START}")
        answer = ask_as_assistant(product, 0, clips)  # the same name and volume, a new Pod
        assert answer["score"] == pytest.approx(score, abs=1e-6)
        assert set(answer["jobs"]) > set(answers[0]["jobs"])


def ask_as_assistant(product: Product, number: int, clips: ClipServer) -> Any:
    """Run the official MCP client where names of the cluster resolve."""
    url = f"http://{RELEASE}-{number}.{RELEASE}-headless.{product.namespace}.svc.cluster.local:8080/mcp"
    command = [sys.executable, "-m", "tests.e2e.mcp_client", url, *clips.urls().values()]
    done = subprocess.run(
        product.cluster.command(command), cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
