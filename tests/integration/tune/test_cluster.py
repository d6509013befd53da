"""`vmaf-tune --cluster` as a process, with a real API server, the operator's reconciler and the real worker in Pods.

One test has all roles as processes.
"""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.agent_process import VMAFX, agent
from tests.support.cut_clips import BARS, CLOCK, cut_clip
from tests.support.fleet import ScoringFleet, add_node, allow_pods, has_seen, operating, phase, reaches
from tests.support.kubelet import SECRETS, Kubelet
from tests.support.object_stores import SECRET, s3_gateway, s3_variables
from tests.support.pod_runner import key_of_pod
from tests.support.process_fleet import process_fleet
from tests.support.proxy import FaultyProxy, Refuse
from tests.support.tiny_disk import TinyDisk
from tests.support.tokens import create_account, service_account_token
from tests.support.tune import Tune, encodes
from tests.support.waiting import eventually
from vmafx.api.job import VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.api.pod import EnvVar, PodOverlay
from vmafx.devcluster import DevCluster
from vmafx.jobs.attempt import AttemptResult, encode_result
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.kube.core import PODS

TWO = ("--encoders", "libx264:ultrafast", "--quality", "24,36")
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
ONE = ("--encoders", "libx264:ultrafast", "--quality", "30")


class ClusterTune:
    """`vmaf-tune --cluster` for one namespace, with a folder that Pods have at the same path."""

    def __init__(self, tune: Tune, client: Client, namespace: str, cluster: DevCluster, shared: Path) -> None:
        self.tune, self.client, self.namespace, self.shared = tune, client, namespace, shared
        self.cluster, self.kubeconfig = cluster, cluster.kubeconfig
        shared.mkdir()

    @property
    def where(self) -> tuple[str, ...]:
        return "--namespace", self.namespace, "--kubeconfig", str(self.kubeconfig)

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--cluster", "--upload", str(self.shared), *self.where)

    async def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(self.tune.compare, *arguments, "--json", *self.flags)

    async def json(self, *arguments: str | Path) -> Any:
        done = await self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @asynccontextmanager
    async def running(self, *arguments: str | Path) -> AsyncIterator[asyncio.subprocess.Process]:
        async with self.tune.comparing(*arguments, "--json", *self.flags) as process:
            yield process

    async def jobs(self) -> dict[str, VmafxJob]:
        found = await self.client.list(JOBS, self.namespace)
        return {job.metadata.name: job for job in found.items}

    async def submitted(self, count: int) -> dict[str, VmafxJob]:
        async def look() -> bool:
            return len(await self.jobs()) == count

        await eventually(look, f"{count} jobs were submitted")
        return await self.jobs()

    async def forget(self, name: str) -> None:
        """Delete a job."""
        await self.client.delete(JOBS, ObjectKey(self.namespace, name))


@pytest.fixture
def remote(tune: Tune, client: Client, namespace: str, cluster: DevCluster, tmp_path: Path) -> ClusterTune:
    return ClusterTune(tune, client, namespace, cluster, tmp_path / "shared")


@pytest.fixture
async def pool(remote: ClusterTune, tmp_path: Path) -> AsyncIterator[ScoringFleet]:
    """A node with two slots, whose Pods may write into the shared folder."""
    client, namespace = remote.client, remote.namespace
    await allow_pods(client, namespace)
    allowed = PodOverlay(env=(EnvVar("VMAFX_OUTPUT_DIR", str(remote.shared)),))
    await add_node(client, namespace, "pool", capacity=2, podTemplate=allowed)
    async with Kubelet(client, namespace, tmp_path) as kubelet, operating(client, namespace) as operator:
        yield ScoringFleet(kubelet, operator)


def figures(result: Any) -> dict[str, Any]:
    """What does not depend on who has scored."""
    names = ("score", "lowest", "p5", "frames", "bitrate", "error")
    return {name: {field: one.get(field) for field in names} for name, one in encodes(result).items()}


async def test_scores_are_those_of_this_machine_and_nothing_is_done_twice(
    remote: ClusterTune, pool: ScoringFleet, source: Path
) -> None:
    options = (source, *TWO, "--pool", "harmonic_mean")
    here = await asyncio.to_thread(remote.tune.json, *options)
    there = await remote.json(*options)
    assert figures(there) == figures(here)
    assert there["pooling"] == "harmonic_mean"
    jobs, digest = await remote.jobs(), there["source"]["digest"].removeprefix("sha256:")
    assert len(jobs) == len(pool.kubelet.started) == 2
    for name, job in jobs.items():
        assert name.startswith("tune-")
        assert job.metadata.labels == {"vmafx.dev/created-by": "vmaf-tune", "vmafx.dev/tune-source": digest[:16]}
        assert job.spec.reference == (remote.shared / f"source-{digest}").as_uri()
        assert (job.spec.ttlSecondsAfterFinished, job.spec.options and job.spec.options.pooling) == (
            86400, "harmonic_mean",
        )  # fmt: skip
    uploaded = {path.name: path.stat().st_ino for path in remote.shared.iterdir()}
    assert len(uploaded) == 5, "the source, two encodes and two reports"

    again = await remote.json(*options)
    for name in jobs:
        await remote.forget(name)
    from_reports = await remote.json(*options)
    assert figures(again) == figures(from_reports) == figures(here)
    assert [one["resumed"] for one in encodes(again).values()] == [True, True]
    assert len(pool.kubelet.started) == 2
    assert await remote.jobs() == {}
    assert {path.name: path.stat().st_ino for path in remote.shared.iterdir()} == uploaded


async def test_a_source_in_the_shared_folder_is_not_copied(
    remote: ClusterTune, pool: ScoringFleet, source: Path
) -> None:
    shared = remote.shared / "clips" / "source.mkv"
    shared.parent.mkdir()
    shared.write_bytes(source.read_bytes())
    result = await remote.json(shared, *ONE)
    assert encodes(result)["libx264:ultrafast 30"]["score"] > 0
    (job,) = (await remote.jobs()).values()
    assert job.spec.reference == shared.as_uri()
    assert not list(remote.shared.glob("source-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_jobs_of_an_interrupted_run_go_on_and_are_found_again(
    remote: ClusterTune, pool: ScoringFleet, source: Path, number: signal.Signals
) -> None:
    pool.kubelet.hold.clear()
    async with remote.running(source, *TWO) as process:
        before = await remote.submitted(2)
        process.send_signal(number)
        out, err = await process.communicate()
    assert out == b""
    if number is signal.SIGINT:
        assert process.returncode == 130
        assert (
            "jobs that go on in the cluster: 2; run the command again to wait for them, or delete them: kubectl"
            in err.decode()
        )
        assert b"Traceback" not in err
    pool.kubelet.hold.set()
    result = await remote.json(source, *TWO)
    assert all(one["score"] > 0 and one["resumed"] for one in encodes(result).values())
    after = await remote.jobs()
    assert {name: job.metadata.uid for name, job in after.items()} == {
        name: job.metadata.uid for name, job in before.items()
    }
    assert len(pool.kubelet.started) == 2


async def test_a_failed_job_is_reported_and_submitted_again_by_the_next_run(
    remote: ClusterTune, pool: ScoringFleet, source: Path
) -> None:
    key = ObjectKey(remote.namespace, "pool")
    await remote.client.merge_patch(NODES, key, {"spec": {"podTemplate": None}})
    await has_seen(pool.operator, remote.client, key)
    failed = await remote.run(source, *ONE)
    assert failed.returncode == 3, failed.stderr
    assert "set VMAFX_OUTPUT_DIR on the node" in failed.stderr
    (error,) = [one["error"] for one in encodes(json.loads(failed.stdout)).values()]
    ((name, before),) = (await remote.jobs()).items()
    assert error.startswith(f"job {name} failed: BadInput: ")

    for pod in (await remote.client.list(PODS, remote.namespace)).items:  # as Kubernetes does after the job
        await remote.client.delete(PODS, key_of_pod(pod), grace_seconds=0)
    allowed = {"env": [{"name": "VMAFX_OUTPUT_DIR", "value": str(remote.shared)}]}
    await remote.client.merge_patch(NODES, key, {"spec": {"podTemplate": allowed}})
    await has_seen(pool.operator, remote.client, key)
    result = await remote.json(source, *ONE)
    assert encodes(result)["libx264:ultrafast 30"]["score"] > 0
    ((same, after),) = (await remote.jobs()).items()
    assert same == name
    assert after.metadata.uid != before.metadata.uid


async def test_a_job_that_is_deleted_is_an_error_and_the_others_go_on(
    remote: ClusterTune, pool: ScoringFleet, source: Path
) -> None:
    pool.kubelet.hold.clear()
    async with remote.running(source, *TWO) as process:
        deleted, _ = sorted(await remote.submitted(2))
        await remote.forget(deleted)
        pool.kubelet.hold.set()
        out, _ = await process.communicate()
    assert process.returncode == 3
    outcomes = [(one.get("score", 0) > 0, one.get("error", "")) for one in encodes(json.loads(out)).values()]
    assert sorted(outcomes) == [
        (False, f"job {deleted} was deleted before it ended; run the command again to submit it again"),
        (True, ""),
    ]
    result = await remote.json(source, *TWO)
    assert all(one["score"] > 0 for one in encodes(result).values())


async def test_all_roles_as_processes_with_an_agent(
    remote: ClusterTune, source: Path, tmp_path: Path, speed: Path
) -> None:
    remote.namespace = "tune-with-an-agent"
    async with process_fleet(remote.cluster, remote.client, remote.namespace, tmp_path) as fleet:
        flags = ("--namespace", remote.namespace, "--capacity", "2")
        allowed = {"VMAFX_OUTPUT_DIR": str(remote.shared)}
        async with agent(fleet.proxy.address, tmp_path / "state", speed, *flags, variables=allowed):
            there = await remote.json(source, *TWO)
        assert {job.status.assignedNode for job in (await remote.jobs()).values()} == {"machine"}
    assert figures(there) == figures(await asyncio.to_thread(remote.tune.json, source, *TWO))


async def test_a_report_that_is_seen_late_is_waited_for(remote: ClusterTune, pool: ScoringFleet, source: Path) -> None:
    """As on NFS. The job says that it has succeeded, and its report comes later."""
    pool.kubelet.hold.clear()
    async with remote.running(source, *ONE) as process:
        ((name, job),) = (await remote.submitted(1)).items()
        result = AttemptResult(f"{job.metadata.uid}-0", 90.0, 12, reportURI=job.spec.output)
        pool.kubelet.answers[f"{name}-0"] = (0, encode_result(result).decode())
        pool.kubelet.hold.set()
        await reaches(remote.client, ObjectKey(remote.namespace, name), phase("Succeeded"), "the job has ended")
        kept, report = next(remote.tune.work.glob("*.mp4")), remote.tune.folder / "report.json"
        score = [VMAFX, "score", str(source), str(kept), "--report", str(report), "--no-cache"]
        await asyncio.to_thread(subprocess.run, score, check=True, capture_output=True)
        report.rename(remote.shared / Path(job.spec.output or "").name)
        out, err = await process.communicate()
    assert process.returncode == 0, err
    assert encodes(json.loads(out))["libx264:ultrafast 30"]["score"] > 0


async def test_why_jobs_wait_is_shown(remote: ClusterTune, source: Path, tmp_path: Path) -> None:
    async with operating(remote.client, remote.namespace):
        report, limit = tmp_path / "r.json", ("--job-timeout", "20s")
        done = await asyncio.to_thread(remote.tune.compare, source, *ONE, *limit, "--report", report, *remote.flags)
    assert done.returncode == 3
    (error,) = [one["error"] for one in encodes(json.loads(report.read_bytes())).values()]
    (name,) = await remote.jobs()
    assert error.startswith(f"job {name} has not ended within 20 s and is waiting (NoNodes: ")
    assert error.endswith(f"or delete it: kubectl delete vmjob {name} -n {remote.namespace}")
    assert "; cluster: 1 waiting (NoNodes: " in done.stderr, "the progress says so before that"


async def test_damaged_reports_and_jobs_of_others_are_refused(
    remote: ClusterTune, pool: ScoringFleet, source: Path
) -> None:
    await remote.json(source, *ONE)
    (report,) = remote.shared.glob("*.json")
    good, (name,) = report.read_bytes(), await remote.jobs()
    report.write_bytes(b"{}")
    done = await remote.run(source, *ONE)
    assert done.returncode == 3
    assert f"the report {report.as_uri()} is not a report of vmafx" in done.stderr
    assert "delete it, and run the command again" in done.stderr

    report.unlink()
    result = await remote.json(source, *ONE)  # its job is replaced
    assert encodes(result)["libx264:ultrafast 30"]["score"] == json.loads(good)["score"]

    report.unlink()
    await remote.forget(name)
    other = VmafxJob(metadata=ObjectMeta(name=name), spec=VmafxJobSpec(source.as_uri(), source.as_uri(), suspend=True))
    await remote.client.create(JOBS, other, remote.namespace)
    done = await remote.run(source, *ONE)
    assert done.returncode == 3
    assert f"there is a job {name} in namespace {remote.namespace} that scores something else" in done.stderr


async def test_a_comparison_survives_an_api_server_that_is_gone_for_a_while(
    remote: ClusterTune, pool: ScoringFleet, proxy: FaultyProxy, source: Path, tmp_path: Path
) -> None:
    remote.kubeconfig = tmp_path / "kubeconfig"
    remote.kubeconfig.write_text(KUBECONFIG.format(server=proxy.config.server))
    pool.kubelet.hold.clear()
    async with remote.running(source, *ONE) as process:
        await remote.submitted(1)
        await eventually(lambda: proxy.seen.count("GET") > 0, "the job is watched")
        proxy.choose = lambda _: Refuse(503)
        proxy.cut()
        await proxy.saw(len(proxy.seen) + 4)
        pool.kubelet.hold.set()
        proxy.choose = lambda _: None
        out, err = await process.communicate()
    assert process.returncode == 0, err
    assert encodes(json.loads(out))["libx264:ultrafast 30"]["score"] > 0
    assert len(pool.kubelet.started) == 1


KUBECONFIG = """apiVersion: v1
kind: Config
current-context: proxy
contexts: [{{name: proxy, context: {{cluster: proxy, user: nobody}}}}]
clusters: [{{name: proxy, cluster: {{server: "{server}"}}}}]
users: [{{name: nobody, user: {{}}}}]
"""


async def test_a_search_and_a_ladder_are_scored_in_the_cluster(
    remote: ClusterTune, pool: ScoringFleet, source: Path
) -> None:
    search = (source, "--encoders", "libx264:ultrafast", "--target-vmaf", "80", "--tolerance", "8")
    found = await remote.json(*search)
    here = await asyncio.to_thread(remote.tune.json, *search)
    assert figures(found) == figures(here)
    searched = len(pool.kubelet.started)
    assert searched == len(encodes(found)) > 0

    rungs = ("ladder", source, "--encoder", "libx264:ultrafast", "--heights", "90", "--quality", "24,34", "--json")
    run: Callable[..., subprocess.CompletedProcess[str]] = remote.tune.run
    done = await asyncio.to_thread(run, *rungs, "--work", remote.tune.work, *remote.flags)
    assert done.returncode == 0, done.stderr
    ladder = json.loads(done.stdout)
    assert all(one["encode"]["score"] > 0 for one in ladder["encodes"])
    assert len(pool.kubelet.started) == searched + len(ladder["encodes"])


async def test_encodes_are_uploaded_to_a_store_with_the_credentials_of_either_side(
    remote: ClusterTune, tmp_path: Path, source: Path
) -> None:
    """The store is on this machine, which a node has to allow."""
    client, namespace, stored = remote.client, remote.namespace, tmp_path / "s3" / "data" / "bucket"
    stored.mkdir(parents=True)
    await allow_pods(client, namespace)
    near = PodOverlay(env=(EnvVar("VMAFX_MEDIA_ALLOW_PRIVATE", "true"),))
    await add_node(client, namespace, "pool", capacity=2, podTemplate=near)
    for port in s3_gateway(tmp_path / "s3"):
        keys = s3_variables(port, tmp_path)
        remote.tune.environment |= keys
        secret = {name: keys[name] for name in (*CREDENTIALS, "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION")}
        await client.create(SECRETS, {"metadata": {"name": "keys"}, "stringData": secret}, namespace)
        upload = ("--cluster", "--upload", "s3://bucket/tune/", "--credentials-secret", "keys", *remote.where)
        async with Kubelet(client, namespace, tmp_path), operating(client, namespace):
            done = await asyncio.to_thread(remote.tune.compare, source, *ONE, "--json", *upload)
        assert done.returncode == 0, done.stderr
        here = await asyncio.to_thread(remote.tune.json, source, *ONE)
        assert figures(json.loads(done.stdout)) == figures(here)
        assert {path.suffix for path in (stored / "tune").iterdir()} == {"", ".mp4", ".json"}
        assert SECRET not in done.stderr

        remote.tune.environment["AWS_SECRET_ACCESS_KEY"] = "wrong"
        denied = await asyncio.to_thread(remote.tune.compare, source, *ONE, *upload)
        assert denied.returncode == 2
        assert "permission denied; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in denied.stderr


async def test_missing_permissions_and_a_full_disk_are_known_before_anything_is_encoded(
    remote: ClusterTune, source: Path, tmp_path: Path
) -> None:
    account = ObjectKey(remote.namespace, "nobody")
    await create_account(remote.client, account)
    own = yaml.safe_load(remote.kubeconfig.read_text())
    own["users"][0]["user"] = {"token": await service_account_token(remote.client, account)}
    admin, remote.kubeconfig = remote.kubeconfig, tmp_path / "kubeconfig"
    remote.kubeconfig.write_text(yaml.safe_dump(own))
    done = await remote.run(source, *ONE)
    assert done.returncode == 3
    assert "submitting jobs requires edit or vmafx-edit" in done.stderr

    remote.kubeconfig = admin
    with TinyDisk(tmp_path / "disk", size=8192) as disk:
        done = await asyncio.to_thread(
            remote.tune.compare, source, *ONE, "--cluster", "--upload", disk.path, *remote.where
        )
        assert done.returncode == 3
        assert "cannot be written: No space left on device" in done.stderr
        assert list(disk.path.iterdir()) == []
    assert remote.tune.kept() == {}
    assert await remote.jobs() == {}


async def test_what_the_cluster_would_refuse_is_known_before_anything_is_encoded(
    remote: ClusterTune, source: Path, tmp_path: Path
) -> None:
    async def refused(*flags: str, code: int = 2) -> str:
        done = await asyncio.to_thread(remote.tune.compare, source, *ONE, *flags)
        assert done.returncode == code, done.stderr
        return done.stderr

    assert "--cluster requires --upload URI" in await refused("--cluster")
    assert "--upload is for scoring in a cluster: add --cluster" in await refused("--upload", "s3://bucket/a")
    assert "--job-timeout" in await refused(*remote.flags, "--job-timeout", "0s")
    assert "is neither a folder nor in a store" in await refused("--cluster", "--upload", "https://example.com/a")
    missing = str(tmp_path / "missing")
    assert f"--upload {missing} is not a folder; create it" in await refused(*remote.flags, "--upload", missing)
    assert "namespace none does not exist" in await refused(*remote.flags, "--namespace", "none")
    assert "the cluster cannot be used" in await refused(*remote.flags, "--kubeconfig", missing, code=3)
    model = tmp_path / "model.json"
    model.write_text("{}")
    assert "model" in await refused(*remote.flags, "--model", str(model))
    assert not [name for name in remote.tune.kept() if not name.startswith(".")]
    assert await remote.jobs() == {}
    assert list(remote.shared.iterdir()) == []


async def test_a_ladder_by_shots_is_scored_in_the_cluster_as_on_this_machine(
    remote: ClusterTune, pool: ScoringFleet, tmp_path: Path
) -> None:
    source = cut_clip(tmp_path / "cut.mkv", [(BARS, 15), (CLOCK, 15)])
    arguments = (
        "ladder", source, "--encoder", "libx264:ultrafast", "--heights", "72", "--quality", "34", "--rungs", "1",
        "--lowest", "0", "--shots", "--json", "--work", remote.tune.work,
    )  # fmt: skip
    done = await asyncio.to_thread(remote.tune.run, *arguments, *remote.flags)
    assert done.returncode == 0, done.stderr
    (rung,) = json.loads(done.stdout)["rungs"]
    assert len(rung["shots"]) == 2
    here = await asyncio.to_thread(remote.tune.run, *arguments)
    assert json.loads(here.stdout)["rungs"][0]["shots"] == rung["shots"]
    assert json.loads(here.stdout)["rungs"][0]["encode"]["score"] == rung["encode"]["score"]
    assert len(pool.kubelet.started) > 1
