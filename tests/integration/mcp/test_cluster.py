"""The tools with a cluster: VmafxJobs and VmafxNodes of a real API server."""

from pathlib import Path
from typing import Any

from tests.support.fleet import ScoringFleet, add_node
from tests.support.mcp_server import STATELESS, HttpServer, StdioServer, call, failed
from vmafx.devcluster import DevCluster
from vmafx.kube import JOBS, Client, ObjectKey

ANN, BOB = "ann-has-a-long-key-1", "bob-has-a-long-key-2"


def flags(cluster: DevCluster, namespace: str) -> tuple[str, ...]:
    return ("--cluster", "--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace)


def uris(clips: Path) -> dict[str, Any]:
    return {"reference": (clips / "reference.mkv").as_uri(), "distorted": (clips / "distorted.mp4").as_uri()}


async def test_a_job_is_submitted_to_the_cluster_and_scored_there(
    fleet: ScoringFleet, client: Client, cluster: DevCluster, namespace: str, tmp_path: Path, clips: Path
) -> None:
    assert fleet
    async with StdioServer(tmp_path, *flags(cluster, namespace), roots=clips).client() as assistant:
        (node,) = (await call(assistant, "list_nodes"))["nodes"]
        assert (node["name"], node["capacity"]) == ("pool", 2)
        job = await call(assistant, "submit_job", **uris(clips), pooling="min", priority=3)
        assert job["kind"] == "VmafxJob"
        assert job["phase"] in {"Pending", "Running"}  # the operator may have placed it already
        stored = await client.get(JOBS, ObjectKey(namespace, job["id"]))
        assert (stored.spec.priority, stored.spec.options is not None and stored.spec.options.pooling) == (3, "min")
        done = await call(assistant, "get_job", id=job["id"], wait=150)
        assert done["phase"] == "Succeeded"
        local = await call(assistant, "score", **uris(clips), pooling="min", wait=150)
        assert done["clusterJob"]["score"] == local["score"]["clips"][0]["score"]
        listed = (await call(assistant, "list_jobs"))["jobs"]
        assert [(one["kind"], one["id"]) for one in listed] == [("score", local["id"]), ("VmafxJob", job["id"])]
        assert (await call(assistant, "list_jobs", phase="Failed"))["jobs"] == []


async def test_what_the_cluster_refuses_is_said(
    client: Client, cluster: DevCluster, namespace: str, tmp_path: Path, clips: Path
) -> None:
    server = StdioServer(tmp_path, *flags(cluster, namespace), roots=clips, VMAFX_MEDIA_SCHEMES="file")
    async with server.client() as assistant:
        assert (await call(assistant, "list_nodes"))["nodes"] == []
        relative = {"reference": "reference.mkv", "distorted": "distorted.mp4"}
        assert "relative path" in await failed(assistant, "submit_job", **relative)
        web = await failed(assistant, "submit_job", **{**uris(clips), "reference": "https://example.com/a.mkv"})
        assert "VMAFX_MEDIA_SCHEMES allows only" in web
        assert "do not support size" in await failed(assistant, "submit_job", **uris(clips), size="128x72")
        assert "not found in namespace" in await failed(assistant, "get_job", id="none")
        job = await call(assistant, "submit_job", **uris(clips))
        await call(assistant, "cancel_job", id=job["id"])
        assert (await client.get(JOBS, ObjectKey(namespace, job["id"]))).spec.cancel
    async with StdioServer(tmp_path, *flags(cluster, "no-such-namespace"), roots=clips).client() as assistant:
        assert "no-such-namespace" in await failed(assistant, "submit_job", **uris(clips))


async def test_with_keys_callers_see_only_their_own_jobs_of_the_cluster(
    client: Client, cluster: DevCluster, namespace: str, tmp_path: Path, clips: Path
) -> None:
    await add_node(client, namespace, "pool", capacity=1)
    (tmp_path / "keys").write_text(f"ann {ANN}\nbob {BOB}\n")
    keys = ("--auth", "keys", "--keys", str(tmp_path / "keys"))
    async with (
        HttpServer(tmp_path, *flags(cluster, namespace), *keys, roots=clips) as server,
        server.client(STATELESS, ANN) as ann,
        server.client(STATELESS, BOB) as bob,
    ):
        job = await call(ann, "submit_job", **uris(clips))
        assert [one["id"] for one in (await call(ann, "list_jobs"))["jobs"]] == [job["id"]]
        assert (await call(bob, "list_jobs"))["jobs"] == []
        for tool in ("get_job", "cancel_job"):
            assert "not found in namespace" in await failed(bob, tool, id=job["id"])
        assert not (await client.get(JOBS, ObjectKey(namespace, job["id"]))).spec.cancel
