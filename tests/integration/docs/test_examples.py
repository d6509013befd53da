"""The manifests of examples/, and the commands of docs/jobs.md, nodes.md and kinds.md, run with a real operator."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support.fleet import allow_pods, condition, phase, reaches
from tests.support.kubelet import Kubelet
from tests.support.project import ROOT
from tests.support.shell import run_shell, write_kubeconfig
from tests.support.video import ffmpeg, lossless, scene
from tests.support.waiting import eventually
from vmafx.devcluster import DevCluster
from vmafx.devcluster.cluster import free_port
from vmafx.kube import JOBS, NODES, Client, ObjectKey, Resource
from vmafx.kube.core import PODS
from vmafx.kube.errors import AlreadyExists
from vmafx.kube.resources import UntypedObject

pytestmark = pytest.mark.timeout(400)  # the pages wait for up to 300 s
RUNTIMES: Resource[UntypedObject] = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", dict)
RAW_SIZE = (576, 324)  # of examples/job-raw.yaml
STOP_TIMEOUT = 30.0


def commands(page: str) -> list[str]:
    """The commands of a page: its indented lines, and kubectl commands in its sentences."""
    found = re.finditer(r"^ {4}(\S.*)$|`(kubectl [^`]+)`", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    return [one[1] or one[2] for one in found]


class Site(NamedTuple):
    """A namespace with an operator and a kubelet, and a folder and environment for shell commands."""

    namespace: str
    client: Client
    kubelet: Kubelet
    folder: Path
    environment: dict[str, str]

    async def run(self, command: str) -> str:
        return await run_shell(command, self.folder, self.environment)

    async def until(self, name: str, wanted: str) -> Any:
        """Wait until a job is in this phase."""
        return await reaches(self.client, ObjectKey(self.namespace, name), phase(wanted), f"{name} is {wanted}")

    async def has_a_pod(self) -> bool:
        return bool((await self.client.list(PODS, self.namespace)).items)


@pytest.fixture(scope="module")
def example_clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    for kind, size in (("mp4", (256, 144)), ("yuv", RAW_SIZE)):
        reference = lossless(scene(frames=6, size=size), folder / "lossless.mkv", rate="23.976")
        raw = ("-f", "rawvideo") if kind == "yuv" else ("-c:v", "libx264", "-qp", "0")
        ffmpeg("-i", reference, *raw, folder / f"reference.{kind}")
        ffmpeg("-i", reference, "-vf", "gblur=sigma=1", *raw, folder / f"distorted.{kind}")
    return folder


def with_clips(example: Path, example_clips: Path, folder: Path) -> dict[str, Any]:
    """An example with its URIs replaced by local clips of the same kind."""
    made: dict[str, Any] = yaml.safe_load(example.read_text())
    if made["kind"] == "VmafxJob":
        for part in ("reference", "distorted"):
            kind = "yuv" if made["spec"][part].endswith(".yuv") else "mp4"
            made["spec"][part] = (example_clips / f"{part}.{kind}").as_uri()
        if "output" in made["spec"]:
            made["spec"]["output"] = (folder / Path(made["spec"]["output"]).name).as_uri()
    if made["kind"] == "VmafxNode" and "podTemplate" in made["spec"]:
        variables = made["spec"]["podTemplate"].setdefault("env", [])
        variables.append({"name": "VMAFX_OUTPUT_DIR", "value": str(folder)})
    return made


def write_examples(folder: Path, example_clips: Path, cluster: DevCluster, namespace: str) -> None:
    """Write the examples, and a kubeconfig for this namespace, to a folder."""
    (folder / "examples").mkdir(parents=True)
    for example in (ROOT / "examples").glob("*.yaml"):
        (folder / "examples" / example.name).write_text(yaml.safe_dump(with_clips(example, example_clips, folder)))
    write_kubeconfig(cluster, namespace, folder / "kubeconfig")


@asynccontextmanager
async def operator(folder: Path, environment: dict[str, str]) -> AsyncIterator[None]:
    """Start the operator with the command of docs/nodes.md, on a free port."""
    (line,) = (one for one in commands("nodes.md") if one.endswith("vmafx-operator"))
    port = free_port()
    addresses = {"VMAFX_OPERATOR_PROBE_ADDR": f"127.0.0.1:{port}", "VMAFX_OPERATOR_METRICS_ADDR": "0"}
    assert ":8082" in line
    with (folder / "operator.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", line.replace(":8082", f":{port}"),
            env=environment | addresses, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_TIMEOUT):
                    await process.wait()
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
async def site(
    client: Client, cluster: DevCluster, namespace: str, kubectl_path: Path, example_clips: Path, tmp_path: Path
) -> AsyncIterator[Site]:
    folder = tmp_path / "project"
    write_examples(folder, example_clips, cluster, namespace)
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{kubectl_path.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(folder / "kubeconfig"),
        "VMAFX_OPERATOR_NAMESPACE": namespace,
    }
    await allow_pods(client, namespace)
    async with Kubelet(client, namespace, tmp_path) as kubelet, operator(folder, environment):
        yield Site(namespace, client, kubelet, folder, environment)


async def test_all_example_jobs_are_scored_on_the_example_nodes(site: Site) -> None:
    with suppress(AlreadyExists):
        await site.client.create(RUNTIMES, {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    for node in ("cpu", "nvidia", "agent"):
        await site.run(f"kubectl apply -f examples/node-{node}.yaml")
    await site.run("kubectl wait --for=condition=Ready --timeout=300s vmnode --all")
    await site.run("for job in examples/job*.yaml; do kubectl apply -f $job; done")
    await site.run("""kubectl patch vmjob limited-job --type merge -p '{"spec":{"suspend":false}}'""")
    placement = """'{"status":{"assignedNode":"cpu-pool"}}'"""
    await site.run(f"kubectl patch vmjob externally-placed-job --subresource=status --type merge -p {placement}")
    await site.run("kubectl wait --for=condition=Complete --timeout=300s vmjob --all")
    jobs = {job.metadata.name: job for job in (await site.client.list(JOBS, site.namespace)).items}
    assert jobs.keys() == {yaml.safe_load(path.read_text())["metadata"]["name"] for path in examples("VmafxJob")}
    assert all(job.status.score is not None and job.status.attempts == 1 for job in jobs.values())
    assert jobs["externally-placed-job"].status.assignedNode == "cpu-pool"
    assert (jobs["first-job"].status.frames, jobs["limited-job"].status.frames) == (6, 2)
    gpu = jobs["gpu-job"]
    assert gpu.status.assignedNode == "nvidia-rack-a"
    assert gpu.status.metrics.keys() >= {"vmaf", "psnr_y", "ssim"}
    assert gpu.status.reportURI == (site.folder / "av1-1mbit.json").as_uri()
    assert (site.folder / "av1-1mbit.json").stat().st_size > 0
    assert len(site.kubelet.started) == len(jobs)


def examples(kind: str) -> list[Path]:
    return [path for path in (ROOT / "examples").glob("*.yaml") if f"kind: {kind}\n" in path.read_text()]


def test_all_example_nodes_are_tested() -> None:
    assert {path.name for path in examples("VmafxNode")} == {f"node-{name}.yaml" for name in ("cpu", "nvidia", "agent")}


async def test_the_commands_of_the_jobs_page(site: Site) -> None:
    apply, wait, score, submit, queue, jobs, nodes, top, describe, suspend = commands("jobs.md")
    await site.run("kubectl apply -f examples/node-cpu.yaml")
    assert await site.run(apply) == "vmafxjob.vmafx.dev/first-job created\n"
    assert "condition met" in await site.run(wait)
    job = await site.until("first-job", "Succeeded")
    assert float(await site.run(score)) == job.status.score
    clips = zip(
        ("s3://clips/master.mp4", "s3://clips/encode.mp4"), (job.spec.reference, job.spec.distorted), strict=True
    )
    for shown, real in clips:
        assert shown in submit
        submit = submit.replace(shown, real)
    assert f"{job.status.score:.3f}" in await site.run(submit)
    assert "0 waiting, 0 running" in await site.run(queue)
    assert "first-job" in await site.run(jobs)
    assert "cpu-pool" in await site.run(nodes)
    overview = await site.run(top)  # without a terminal, printed once
    assert "cpu-pool" in overview
    assert "first-job" in overview
    described = await site.run(describe.replace("NAME", "first-job"))
    assert re.search(r"Reason: +Placed\n +Status: +True\n +Type: +Scheduled", described)
    assert re.search(r"Reason: +Scored\n +Status: +True\n +Type: +Complete", described)

    await site.run("kubectl delete vmjob first-job")
    site.kubelet.hold.clear()
    await site.run(apply)
    await site.until("first-job", "Running")
    await site.run(suspend.replace("NAME", "first-job"))
    job = await site.until("first-job", "Pending")
    assert condition(job, "Scheduled") == ("False", "Suspended")
    assert "true" in suspend
    await site.run(suspend.replace("NAME", "first-job").replace("true", "false"))
    site.kubelet.hold.set()
    job = await site.until("first-job", "Succeeded")
    assert (job.status.attempts, job.status.failures) == (2, 0)


async def test_the_commands_of_the_nodes_page(site: Site) -> None:
    apply, wait, get, label, describe, _start, cordon, running, delete = commands("nodes.md")
    await site.run(apply)
    assert "condition met" in await site.run(wait)
    head, row = (line.split() for line in (await site.run(get)).splitlines())
    assert head == ["NAME", "VENDOR", "HEALTHY", "REASON", "CORDONED", "JOBS", "DEVICE", "AGE"]
    assert row[:5] == ["cpu-pool", "cpu", "true", "Healthy", "false"]
    await site.run(label)
    assert (await site.client.get(NODES, ObjectKey(site.namespace, "cpu-pool"))).metadata.labels == {"rack": "a"}
    described = await site.run(describe.replace("NAME", "cpu-pool"))
    assert re.search(r"Reason: +Healthy\n +Status: +True\n +Type: +Ready", described)

    site.kubelet.hold.clear()
    await site.run("kubectl apply -f examples/job.yaml")
    await site.until("first-job", "Running")
    await eventually(site.has_a_pod, "the Pod of the job exists")  # creating it needs the VmafxNode
    await site.run(cordon.replace("NAME", "cpu-pool"))
    assert re.search(r"first-job +Running +cpu-pool", await site.run(running.replace("NAME", "cpu-pool")))
    await site.run(delete.replace("NAME", "cpu-pool"))
    site.kubelet.hold.set()
    job = await site.until("first-job", "Succeeded")
    assert (job.status.assignedNode, job.status.attempts) == ("cpu-pool", 1)
    assert await site.run(running.replace("NAME", "cpu-pool")) == ""


async def test_the_validation_error_of_the_kinds_page(site: Site) -> None:
    text = (ROOT / "docs" / "kinds.md").read_text()
    found = re.search(r"^ {4}\$ (kubectl apply .*?}}')\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    output = await site.run(f"({found[1]}) 2>&1 || true")
    assert output.split() == found[2].split()
