"""`vmafx queue`, `vmafx jobs` and `vmafx nodes`, on the real API server, as processes of their own."""

import asyncio
import json
import os
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Kubectl
from tests.support.commands import Terminal, Vmafx, line_with
from tests.support.fleet import ScoringFleet, add_node, known_to_take, phase, reaches, submit
from tests.support.project import ROOT
from tests.support.tokens import create_account, service_account_token
from tests.support.waiting import eventually
from vmafx.api.meta import ObjectMeta
from vmafx.api.node import VmafxNode, VmafxNodeSpec
from vmafx.devcluster import ClusterOptions, DevCluster
from vmafx.generate.files import OPERATOR_ROLES
from vmafx.kube import JOBS, NODES, Client, ObjectKey

TIMES = ("created", "started", "finished")
HOSTILE = "\x1b]0;owned\x07 \x9b31mred\u202e"


async def seen(vmafx: Vmafx, command: str, *arguments: str) -> Any:
    done = await vmafx.run(command, *arguments, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


async def test_a_queue_before_nodes_that_take_no_jobs(
    vmafx: Vmafx, client: Client, namespace: str, clips: Path
) -> None:
    await add_node(client, namespace, "pool", capacity=2, unschedulable=True)
    for number, priority in enumerate((0, 5, 9, 5)):
        await submit(client, namespace, f"job-{number}", clips, priority=priority)
    await submit(client, namespace, "asleep", clips, suspend=True, priority=7)
    await submit(client, namespace, "gpu", clips, backend="cuda", priority=8)
    versions = {job.metadata.name: job.metadata.resourceVersion for job in (await client.list(JOBS, namespace)).items}
    found = await seen(vmafx, "queue")
    assert [(row["name"], row["position"], row["reason"]) for row in found["jobs"]] == [
        ("job-2", None, "NoHealthyNode"),
        ("gpu", None, "BackendUnavailable"),
        ("asleep", None, "Suspended"),
        ("job-1", None, "NoHealthyNode"),
        ("job-3", None, "NoHealthyNode"),
        ("job-0", None, "NoHealthyNode"),
    ]
    assert {row["startsIn"] for row in found["jobs"]} == {None}
    assert found["summary"] == {"waiting": 6, "held": 1, "running": 0, "slots": 0, "free": 0, "vendors": {}}
    shown = table((await vmafx.run("queue")).stdout)
    assert shown[0] == ["POSITION", "NAME", "PRIORITY", "WAITED", "STARTS", "ETA", "REASON"]
    assert [row[:3] for row in shown[1:3]] == [["-", "job-2", "9"], ["-", "gpu", "8"]]
    assert " ".join(shown[-1]) == "6 waiting (1 held back), 0 running; no node takes jobs"
    now = {job.metadata.name: job.metadata.resourceVersion for job in (await client.list(JOBS, namespace)).items}
    assert now == versions  # looking writes nothing
    await client.merge_patch(NODES, ObjectKey(namespace, "pool"), {"spec": {"unschedulable": False}})
    two = (await vmafx.run("queue", "gpu", "job-0", "-o", "yaml")).stdout
    assert [row["position"] for row in yaml.safe_load(two)["jobs"]] == [4, None]
    shown = table((await vmafx.run("queue")).stdout)
    assert [row[:2] for row in shown[1:7]] == [
        ["1", "job-2"], ["2", "job-1"], ["3", "job-3"], ["4", "job-0"], ["-", "gpu"], ["-", "asleep"],
    ]  # fmt: skip
    assert (await vmafx.run("queue", "over")).stdout.startswith("over is not waiting; see: vmafx jobs over\n6 waiting")
    everywhere = table((await vmafx.run("queue", "-A")).stdout)
    assert everywhere[0][0] == "NAMESPACE"
    assert [namespace, "4", "job-0"] in [row[:3] for row in everywhere]


async def test_when_is_unknown_until_a_job_has_ended_and_then_it_is_told(
    fleet: ScoringFleet, vmafx: Vmafx, client: Client, namespace: str, clips: Path
) -> None:
    async def hand_in(count: int, name: str) -> list[ObjectKey]:
        """While no Pod starts: two have a place, and the others wait."""
        fleet.kubelet.hold.clear()
        keys = [await submit(client, namespace, f"{name}-{number}", clips) for number in range(count)]
        for key in keys[:2]:
            await reaches(client, key, phase("Running"), "two have a place")
        return keys

    first = await hand_in(4, "first")
    shown = (await vmafx.run("queue")).stdout.splitlines()
    assert [line.split()[4:6] for line in shown[1:3]] == [["unknown", "unknown"]] * 2
    assert shown[3:] == [
        "2 waiting, 2 running; 0 of 2 slots free (cpu 0 of 2)",
        "ETAs are unknown until a similar job has finished here",
    ]
    fleet.kubelet.hold.set()
    for key in first:
        await reaches(client, key, phase("Succeeded"), "it is known how long one takes")
    await known_to_take(client, namespace, "pool", 3600, clips)  # so that those which run are not overdue
    last = await hand_in(7, "last")
    found = await seen(vmafx, "queue")
    rows = found["jobs"]
    assert [(row["position"], row["name"]) for row in rows] == [(n, f"last-{n + 1}") for n in range(1, 6)]
    starts = [row["startsIn"] for row in rows]
    assert starts == sorted(starts)
    assert all(row["doneIn"] > row["startsIn"] >= 0 for row in rows)
    assert found["summary"]["vendors"] == {"cpu": {"nodes": 1, "slots": 2, "free": 0}}
    fleet.kubelet.hold.set()
    for key in last:
        await reaches(client, key, phase("Succeeded"), "all are scored")
    assert (await seen(vmafx, "queue"))["jobs"] == []


async def test_jobs_and_what_became_of_them(
    fleet: ScoringFleet, vmafx: Vmafx, client: Client, namespace: str, clips: Path
) -> None:
    good = await submit(client, namespace, "good", clips)
    bad = await submit(client, namespace, "bad", clips, "none.mp4")
    gpu = await submit(client, namespace, "gpu", clips, backend="cuda")
    await reaches(client, gpu, lambda job: bool(job.status.conditions), "it says why it waits")
    await reaches(client, bad, phase("Failed"), "it fails")
    done = await reaches(client, good, phase("Succeeded"), "it is scored")
    rows = {row["name"]: row for row in await seen(vmafx, "jobs")}
    assert rows.keys() == {"good", "bad", "gpu"}
    assert (rows["good"]["score"], rows["good"]["node"], rows["good"]["attempts"]) == (done.status.score, "pool", 1)
    assert (rows["bad"]["reason"], rows["gpu"]["reason"]) == ("BadInput", "BackendUnavailable")
    created, started, finished = (datetime.fromisoformat(rows["good"][when]) for when in TIMES)
    assert created <= started < finished
    shown = (await vmafx.run("jobs")).stdout
    assert table(shown)[0] == ["NAME", "PHASE", "SCORE", "NODE", "ATTEMPTS", "AGE", "TIME", "MESSAGE"]
    assert f"{done.status.score:.3f}" in shown
    assert "BadInput: distorted: there is no file" in shown
    assert [row["name"] for row in await seen(vmafx, "jobs", "--phase", "failed,pending")] in (
        ["bad", "gpu"], ["gpu", "bad"],
    )  # fmt: skip
    assert [row["name"] for row in await seen(vmafx, "jobs", "gpu", "good")] == ["good", "gpu"]
    assert yaml.safe_load((await vmafx.run("jobs", "good", "-o", "yaml")).stdout) == [rows["good"]]
    await client.merge_patch(JOBS, good, {"metadata": {"labels": {"team": "a"}}})
    assert [row["name"] for row in await seen(vmafx, "jobs", "-l", "team=a")] == ["good"]
    none = await vmafx.run("jobs", "-l", "team=b")
    assert (none.returncode, none.stdout) == (0, f"no matching jobs found in namespace {namespace}\n")
    missing = await vmafx.run("jobs", "good", "none")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == f"error: there is no job none in namespace {namespace}\n"


async def test_nodes_and_why_they_take_no_jobs(vmafx: Vmafx, client: Client, namespace: str, clips: Path) -> None:
    await add_node(client, namespace, "busy", capacity=3)
    await add_node(client, namespace, "cordoned", unschedulable=True)
    agent = VmafxNode(metadata=ObjectMeta(name="agent"), spec=VmafxNodeSpec("nvidia", runtime="Agent"))
    await client.create(NODES, agent, namespace)
    stale = {"type": "Ready", "status": "False", "reason": "HeartbeatStale", "message": "no heartbeat since noon"}
    stale["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    told = {"healthy": False, "conditions": [stale], "detectedDevice": "A100", "throughput": 812.34}
    told["lastHeartbeat"] = "2026-01-01T00:00:00Z"
    await client.patch_status(NODES, ObjectKey(namespace, "agent"), told)
    for number in range(2):
        key = await submit(client, namespace, f"job-{number}", clips)
        await client.patch_status(JOBS, key, {"phase": "Running", "assignedNode": "busy"})
    await add_node(client, namespace, "leaving", runtime="Agent")
    await client.patch_status(NODES, ObjectKey(namespace, "leaving"), {"agentSession": "s", "draining": True})
    rows = {row["name"]: row for row in await seen(vmafx, "nodes")}
    assert {name: (row["used"], row["free"], row["reason"]) for name, row in rows.items()} == {
        "agent": (0, 0, "HeartbeatStale"), "busy": (2, 1, None), "cordoned": (0, 0, "Cordoned"),
        "leaving": (0, 0, "Draining"),
    }  # fmt: skip
    shown = table((await vmafx.run("nodes")).stdout)
    assert shown[1][:8] == ["agent", "nvidia", "Agent", "no", "0/1", "0", "A100", "812.3"]
    assert " ".join(shown[1][8:]).endswith("ago HeartbeatStale: no heartbeat since noon")
    assert shown[2] == ["busy", "cpu", "Pod", "yes", "2/3", "1", "-", "-", "-", "-"]
    assert " ".join(shown[4]).endswith("Draining: the agent is draining: it takes no new jobs")
    assert [row["draining"] for row in rows.values()] == [False, False, False, True]
    assert [row["name"] for row in await seen(vmafx, "nodes", "busy", "agent", "busy")] == ["agent", "busy"]
    for watch in ((), ("-w",)):
        missing = await vmafx.run("nodes", "busy", "none", *watch)
        assert (missing.returncode, missing.stdout) == (1, "")
        assert missing.stderr == f"error: there is no node none in namespace {namespace}\n"
    assert (await vmafx.run("nodes", "busy", "-A")).returncode == 2
    async with vmafx.running("nodes", "busy", "-w", "-o", "json") as process:
        assert json.loads(await line_with(process.stdout, "name"))["name"] == "busy"
        for name in ("cordoned", "busy"):
            await client.merge_patch(NODES, ObjectKey(namespace, name), {"spec": {"capacity": 7}})
        changed = json.loads(await line_with(process.stdout, "name"))
        assert (changed["name"], changed["capacity"]) == ("busy", 7)


async def test_a_namespace_that_is_not_there_is_noted(
    vmafx: Vmafx, client: Client, cluster: DevCluster, namespace: str, tmp_path: Path, kubectl: Kubectl
) -> None:
    note = "note: namespace nons does not exist\n"
    for command, told in {
        ("jobs",): "no jobs found in namespace nons\n",
        ("jobs", "--phase", "failed"): "no matching jobs found in namespace nons\n",
        ("jobs", "-o", "json"): "[]\n",
        ("queue",): "0 waiting, 0 running; no node takes jobs\n",
        ("nodes",): "no nodes found in namespace nons\n",
        ("top", "--once"): "no ended jobs\n",
    }.items():
        done = await vmafx.run(*command, "-n", "nons")
        assert (done.returncode, done.stderr) == (0, note), command
        assert done.stdout.endswith(told)
        assert (await vmafx.run(*command, "-n", namespace)).stderr == ""
    async with vmafx.running("nodes", "-w", "-n", "nons") as process:
        assert await line_with(process.stderr, "namespace") == note
    assert kubectl("apply", "-f", str(ROOT / OPERATOR_ROLES)).returncode == 0
    await create_account(client, ObjectKey(namespace, "eve"))
    binding = f"eve-{namespace}"
    subject = f"--serviceaccount={namespace}:eve"
    assert kubectl("create", "clusterrolebinding", binding, "--clusterrole=vmafx-view", subject).returncode == 0
    whole = yaml.safe_load(cluster.kubeconfig.read_text())
    whole["users"][0]["user"] = {"token": await service_account_token(client, ObjectKey(namespace, "eve"))}
    kubeconfig = tmp_path / "eve"
    kubeconfig.write_text(json.dumps(whole))

    async def says_nothing() -> bool:
        done = await vmafx.run("jobs", "-n", "nons", "--kubeconfig", str(kubeconfig))
        return (done.returncode, done.stderr) == (0, "")

    await eventually(says_nothing, "who may not read namespaces is not told of them")
    assert kubectl("delete", "clusterrolebinding", binding).returncode == 0


@pytest.mark.parametrize("command", ["jobs", "queue", "nodes"])
async def test_changes_on_a_pipe_are_a_line_each(
    vmafx: Vmafx, client: Client, namespace: str, clips: Path, command: str
) -> None:
    await add_node(client, namespace, "pool", unschedulable=True)
    first = await submit(client, namespace, "first", clips)
    thing = "pool" if command == "nodes" else "first"
    async with vmafx.running(command, "--watch", "-o", "json") as process:
        assert json.loads(await line_with(process.stdout, thing))["name"] == thing
        if command == "nodes":
            await client.merge_patch(NODES, ObjectKey(namespace, "pool"), {"spec": {"unschedulable": False}})
            assert json.loads(await line_with(process.stdout, "pool"))["free"] == 1
            await client.patch_status(JOBS, first, {"phase": "Running", "assignedNode": "pool"})
            assert json.loads(await line_with(process.stdout, "pool"))["used"] == 1
            await client.delete(NODES, ObjectKey(namespace, "pool"))
            assert json.loads(await line_with(process.stdout, "pool"))["reason"] == "Deleted"
        else:
            await submit(client, namespace, "second", clips, priority=5)
            assert json.loads(await line_with(process.stdout, "second"))["name"] == "second"
            await client.patch_status(JOBS, first, {"phase": "Running", "assignedNode": "pool"})
            row = json.loads(await line_with(process.stdout, '"Running"' if command == "jobs" else "Left"))
            assert row["name"] == "first"
            await client.delete(JOBS, first)
            await client.delete(JOBS, ObjectKey(namespace, "second"))
            gone = "Deleted" if command == "jobs" else "Left"
            assert json.loads(await line_with(process.stdout, gone))["name"] in {"first", "second"}
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130


@pytest.mark.parametrize("command", ["jobs", "queue", "nodes"])
async def test_who_reads_no_further_ends_it_though_nothing_changes(
    vmafx: Vmafx, client: Client, namespace: str, clips: Path, command: str
) -> None:
    await add_node(client, namespace, "pool", unschedulable=True)
    await submit(client, namespace, "first", clips)
    theirs, ours = os.pipe()
    with os.fdopen(theirs) as lines:
        async with vmafx.running(command, "--watch", output=ours) as process:
            os.close(ours)
            assert "NAME" in await asyncio.to_thread(lines.readline)
            lines.close()
            async with asyncio.timeout(60):
                _, told = await process.communicate()
            assert (process.returncode, told) == (1, b"")


async def test_jobs_are_watched_by_phase_and_name(vmafx: Vmafx, client: Client, namespace: str, clips: Path) -> None:
    keys = [await submit(client, namespace, f"job-{number}", clips) for number in range(3)]
    async with (
        vmafx.running("jobs", "-w", "--phase", "Running") as phased,
        vmafx.running("jobs", "-w", "job-1") as named,
        vmafx.running("jobs", "-w", "job-1", "job-2", "-o", "yaml") as both,
    ):
        assert (await line_with(named.stdout, "job")).split()[:2] == ["job-1", "Pending"]
        await line_with(both.stdout, "name: job-2")
        await line_with(phased.stdout, "NAME")
        for key in keys:
            await client.patch_status(JOBS, key, {"phase": "Running"})
            await client.patch_status(JOBS, key, {"phase": "Failed", "message": "so be it"})
        for name in ("job-0", "job-1", "job-2"):  # how it ended is told as well
            assert (await line_with(phased.stdout, name)).split()[1] == "Running"
            assert (await line_with(phased.stdout, name)).split()[1] == "Failed"
        assert (await line_with(named.stdout, "job")).split()[:2] == ["job-1", "Running"]
        assert (await line_with(named.stdout, "job")).split()[:2] == ["job-1", "Failed"]
        assert await line_with(both.stdout, "job-") == "name: job-1\n"


async def test_a_live_table_on_a_terminal(vmafx: Vmafx, client: Client, namespace: str, clips: Path) -> None:
    key = await submit(client, namespace, "first", clips)
    await client.patch_status(JOBS, key, {"message": HOSTILE})
    async with Terminal() as terminal, vmafx.running("jobs", "--watch", terminal=terminal.theirs) as process:
        await terminal.shows("Pending")
        await client.patch_status(JOBS, key, {"phase": "Failed", "message": "so be it"})
        await terminal.shows("so be it")
        assert "owned\x07" not in terminal.shown
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
async def test_hostile_objects_do_no_harm(
    vmafx: Vmafx, client: Client, namespace: str, clips: Path, output: str
) -> None:
    key = await submit(client, namespace, "evil", clips)
    waits = {"type": "Scheduled", "status": "False", "reason": f"Bad{HOSTILE}", "message": HOSTILE}
    waits["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    await client.patch_status(JOBS, key, {"message": HOSTILE, "conditions": [waits], "assignedNode": HOSTILE})
    await add_node(client, namespace, "evil")
    await client.patch_status(NODES, ObjectKey(namespace, "evil"), {"detectedDevice": HOSTILE})
    for command in ("jobs", "queue", "nodes"):
        done = await vmafx.run(command, "-o", output)
        assert done.returncode == 0
        assert all(one.isprintable() or one == "\n" for one in done.stdout), done.stdout
        assert "owned" in done.stdout


async def test_no_cluster_no_kinds_and_no_permission(
    vmafx: Vmafx, client: Client, cluster: DevCluster, namespace: str, tmp_path: Path
) -> None:
    every = (("jobs",), ("queue",), ("nodes", "-w"), ("submit", "s3://b/a", "s3://b/c"))
    whole = yaml.safe_load(cluster.kubeconfig.read_text())
    await create_account(client, ObjectKey(namespace, "nobody"))
    whole["users"][0]["user"] = {"token": await service_account_token(client, ObjectKey(namespace, "nobody"))}
    stranger = tmp_path / "stranger"
    stranger.write_text(json.dumps(whole))
    whole["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    nowhere = tmp_path / "nowhere"
    nowhere.write_text(json.dumps(whole))
    bare_cluster = DevCluster(tmp_path / "bare", ClusterOptions(tethered=True))
    bare_cluster.up()
    try:
        for command, *arguments in every:
            for kubeconfig, told in {
                stranger: f'User "system:serviceaccount:{namespace}:nobody" cannot',
                nowhere: "error: cannot connect to https://127.0.0.1:1",
                bare_cluster.kubeconfig: "error: the CRDs of vmafx are not installed in this cluster; install them:",
                tmp_path / "none": "error: cannot read the kubeconfig",
            }.items():
                done = await vmafx.run(command, *arguments, "--kubeconfig", str(kubeconfig))
                assert (done.returncode, done.stdout) == (1, ""), (command, kubeconfig, done)
                assert told in done.stderr
                assert len(done.stderr.splitlines()) == 1
    finally:
        bare_cluster.down()
    wrong = await vmafx.run("jobs", "--context", "other")
    assert wrong.returncode == 1
    assert "other" in wrong.stderr
    elsewhere = await vmafx.run("submit", "s3://b/a", "s3://b/c", "-n", "none")
    assert (elsewhere.returncode, elsewhere.stderr) == (
        1, "error: namespace none does not exist; create it, or choose another with -n\n",
    )  # fmt: skip
    for watch in ((), ("-w",)):
        odd = await vmafx.run("jobs", "-l", "a=b,,", *watch)
        assert (odd.returncode, odd.stdout) == (1, "")
        assert odd.stderr.startswith("error: found ','")
    for both in (("jobs", "-A", "-n", namespace), ("jobs", "a", "-A"), ("jobs", "--phase", "x"), ("jobs", "-o", "xml")):
        assert (await vmafx.run(*both)).returncode == 2


async def test_roles_are_enough(
    vmafx: Vmafx, client: Client, cluster: DevCluster, namespace: str, tmp_path: Path, kubectl: Kubectl
) -> None:
    assert kubectl("apply", "-f", str(ROOT / OPERATOR_ROLES)).returncode == 0
    await create_account(client, ObjectKey(namespace, "alice"))
    whole = yaml.safe_load(cluster.kubeconfig.read_text())
    whole["users"][0]["user"] = {"token": await service_account_token(client, ObjectKey(namespace, "alice"))}
    kubeconfig = tmp_path / "alice"
    kubeconfig.write_text(json.dumps(whole))
    subject = ("--kubeconfig", str(kubeconfig))

    def grant(role: str) -> None:
        made = kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--serviceaccount={namespace}:alice")
        assert made.returncode == 0, made.stderr

    async def succeeds(*arguments: str) -> bool:
        return (await vmafx.run(*arguments, *subject)).returncode == 0

    grant("vmafx-view")
    await eventually(lambda: succeeds("queue"), "who may look can see the queue")
    assert await succeeds("jobs")
    assert await succeeds("nodes")
    job = ("submit", "s3://b/a", "s3://b/c")
    refused = await vmafx.run(*job, *subject)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "cannot create resource" in refused.stderr
    assert "to submit jobs edit or vmafx-edit" in refused.stderr
    grant("vmafx-edit")
    await eventually(lambda: succeeds(*job), "who may edit can hand in jobs")
