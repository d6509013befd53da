"""`vmafx queue`, `vmafx jobs` and `vmafx nodes` on a real API server."""

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


async def listed(vmafx: Vmafx, command: str, *arguments: str) -> Any:
    done = await vmafx.run(command, *arguments, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


async def kubeconfig_for(account: ObjectKey, client: Client, cluster: DevCluster) -> dict[str, Any]:
    """Create the service account, and return a kubeconfig with its token."""
    await create_account(client, account)
    kubeconfig: dict[str, Any] = yaml.safe_load(cluster.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] = {"token": await service_account_token(client, account)}
    return kubeconfig


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


async def test_the_queue_while_no_node_accepts_jobs(vmafx: Vmafx, client: Client, namespace: str, clips: Path) -> None:
    await add_node(client, namespace, "pool", capacity=2, unschedulable=True)
    for number, priority in enumerate((0, 5, 9, 5)):
        await submit(client, namespace, f"job-{number}", clips, priority=priority)
    await submit(client, namespace, "asleep", clips, suspend=True, priority=7)
    await submit(client, namespace, "gpu", clips, backend="cuda", priority=8)
    versions = {job.metadata.name: job.metadata.resourceVersion for job in (await client.list(JOBS, namespace)).items}
    found = await listed(vmafx, "queue")
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
    assert " ".join(shown[-1]) == "6 waiting (1 held), 0 running; no node accepts jobs"
    now = {job.metadata.name: job.metadata.resourceVersion for job in (await client.list(JOBS, namespace)).items}
    assert now == versions  # the command writes nothing
    await client.merge_patch(NODES, ObjectKey(namespace, "pool"), {"spec": {"unschedulable": False}})
    two = (await vmafx.run("queue", "gpu", "job-0", "-o", "yaml")).stdout
    assert [row["position"] for row in yaml.safe_load(two)["jobs"]] == [4, None]
    shown = table((await vmafx.run("queue")).stdout)
    assert [row[:2] for row in shown[1:7]] == [
        ["1", "job-2"], ["2", "job-1"], ["3", "job-3"], ["4", "job-0"], ["-", "gpu"], ["-", "asleep"],
    ]  # fmt: skip
    assert (await vmafx.run("queue", "over")).stdout.startswith("over is not waiting; see: vmafx jobs over\n6 waiting")
    all_namespaces = table((await vmafx.run("queue", "-A")).stdout)
    assert all_namespaces[0][0] == "NAMESPACE"
    assert [namespace, "4", "job-0"] in [row[:3] for row in all_namespaces]


async def test_estimates_are_unknown_until_a_job_has_finished(
    fleet: ScoringFleet, vmafx: Vmafx, client: Client, namespace: str, clips: Path
) -> None:
    async def submit_while_pods_are_held(count: int, name: str) -> list[ObjectKey]:
        """Two jobs are placed, the others wait."""
        fleet.kubelet.hold.clear()
        keys = [await submit(client, namespace, f"{name}-{number}", clips) for number in range(count)]
        for key in keys[:2]:
            await reaches(client, key, phase("Running"), "two are placed")
        return keys

    first = await submit_while_pods_are_held(4, "first")
    shown = (await vmafx.run("queue")).stdout.splitlines()
    assert [line.split()[4:6] for line in shown[1:3]] == [["unknown", "unknown"]] * 2
    assert shown[3:] == [
        "2 waiting, 2 running; 0 of 2 slots free (cpu 0 of 2)",
        "ETAs are unknown until a similar job has finished here",
    ]
    fleet.kubelet.hold.set()
    for key in first:
        await reaches(client, key, phase("Succeeded"), "its duration is known")
    await known_to_take(client, namespace, "pool", 3600, clips)  # so that the running jobs are not overdue
    last = await submit_while_pods_are_held(7, "last")
    found = await listed(vmafx, "queue")
    rows = found["jobs"]
    assert [(row["position"], row["name"]) for row in rows] == [(n, f"last-{n + 1}") for n in range(1, 6)]
    starts = [row["startsIn"] for row in rows]
    assert starts == sorted(starts)
    assert all(row["doneIn"] > row["startsIn"] >= 0 for row in rows)
    assert found["summary"]["vendors"] == {"cpu": {"nodes": 1, "slots": 2, "free": 0}}
    fleet.kubelet.hold.set()
    for key in last:
        await reaches(client, key, phase("Succeeded"), "all are scored")
    assert (await listed(vmafx, "queue"))["jobs"] == []


async def test_jobs_shows_scores_reasons_and_messages(
    fleet: ScoringFleet, vmafx: Vmafx, client: Client, namespace: str, clips: Path
) -> None:
    good = await submit(client, namespace, "good", clips)
    bad = await submit(client, namespace, "bad", clips, "none.mp4")
    gpu = await submit(client, namespace, "gpu", clips, backend="cuda")
    await reaches(client, gpu, lambda job: bool(job.status.conditions), "it has a reason to wait")
    await reaches(client, bad, phase("Failed"), "it fails")
    done = await reaches(client, good, phase("Succeeded"), "it is scored")
    rows = {row["name"]: row for row in await listed(vmafx, "jobs")}
    assert rows.keys() == {"good", "bad", "gpu"}
    assert (rows["good"]["score"], rows["good"]["node"], rows["good"]["attempts"]) == (done.status.score, "pool", 1)
    assert (rows["bad"]["reason"], rows["gpu"]["reason"]) == ("BadInput", "BackendUnavailable")
    created, started, finished = (datetime.fromisoformat(rows["good"][when]) for when in TIMES)
    assert created <= started < finished
    shown = (await vmafx.run("jobs")).stdout
    assert table(shown)[0] == ["NAME", "PHASE", "SCORE", "NODE", "ATTEMPTS", "AGE", "TIME", "MESSAGE"]
    assert f"{done.status.score:.3f}" in shown
    assert "BadInput: distorted: there is no file" in shown
    assert [row["name"] for row in await listed(vmafx, "jobs", "--phase", "failed,pending")] in (
        ["bad", "gpu"], ["gpu", "bad"],
    )  # fmt: skip
    assert [row["name"] for row in await listed(vmafx, "jobs", "gpu", "good")] == ["good", "gpu"]
    assert yaml.safe_load((await vmafx.run("jobs", "good", "-o", "yaml")).stdout) == [rows["good"]]
    await client.merge_patch(JOBS, good, {"metadata": {"labels": {"team": "a"}}})
    assert [row["name"] for row in await listed(vmafx, "jobs", "-l", "team=a")] == ["good"]
    none = await vmafx.run("jobs", "-l", "team=b")
    assert (none.returncode, none.stdout) == (0, f"no matching jobs found in namespace {namespace}\n")
    missing = await vmafx.run("jobs", "good", "none")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == f"error: job none not found in namespace {namespace}\n"


async def test_nodes_shows_why_a_node_gets_no_jobs(vmafx: Vmafx, client: Client, namespace: str, clips: Path) -> None:
    await add_node(client, namespace, "busy", capacity=3)
    await add_node(client, namespace, "cordoned", unschedulable=True)
    agent = VmafxNode(metadata=ObjectMeta(name="agent"), spec=VmafxNodeSpec("nvidia", runtime="Agent"))
    await client.create(NODES, agent, namespace)
    stale = {"type": "Ready", "status": "False", "reason": "HeartbeatStale", "message": "no heartbeat since noon"}
    stale["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    status = {"healthy": False, "conditions": [stale], "detectedDevice": "A100", "throughput": 812.34}
    status["lastHeartbeat"] = "2026-01-01T00:00:00Z"
    await client.patch_status(NODES, ObjectKey(namespace, "agent"), status)
    for number in range(2):
        key = await submit(client, namespace, f"job-{number}", clips)
        await client.patch_status(JOBS, key, {"phase": "Running", "assignedNode": "busy"})
    await add_node(client, namespace, "leaving", runtime="Agent")
    await client.patch_status(NODES, ObjectKey(namespace, "leaving"), {"agentSession": "s", "draining": True})
    rows = {row["name"]: row for row in await listed(vmafx, "nodes")}
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
    assert [row["name"] for row in await listed(vmafx, "nodes", "busy", "agent", "busy")] == ["agent", "busy"]
    for watch in ((), ("-w",)):
        missing = await vmafx.run("nodes", "busy", "none", *watch)
        assert (missing.returncode, missing.stdout) == (1, "")
        assert missing.stderr == f"error: node none not found in namespace {namespace}\n"
    assert (await vmafx.run("nodes", "busy", "-A")).returncode == 2
    async with vmafx.running("nodes", "busy", "-w", "-o", "json") as process:
        assert json.loads(await line_with(process.stdout, "name"))["name"] == "busy"
        for name in ("cordoned", "busy"):
            await client.merge_patch(NODES, ObjectKey(namespace, name), {"spec": {"capacity": 7}})
        changed = json.loads(await line_with(process.stdout, "name"))
        assert (changed["name"], changed["capacity"]) == ("busy", 7)


async def test_a_missing_namespace_is_noted(
    vmafx: Vmafx, client: Client, cluster: DevCluster, namespace: str, tmp_path: Path, kubectl: Kubectl
) -> None:
    note = "note: namespace nons does not exist\n"
    for command, output in {
        ("jobs",): "no jobs found in namespace nons\n",
        ("jobs", "--phase", "failed"): "no matching jobs found in namespace nons\n",
        ("jobs", "-o", "json"): "[]\n",
        ("queue",): "0 waiting, 0 running; no node accepts jobs\n",
        ("nodes",): "no nodes found in namespace nons\n",
        ("top", "--once"): "no finished jobs\n",
    }.items():
        done = await vmafx.run(*command, "-n", "nons")
        assert (done.returncode, done.stderr) == (0, note), command
        assert done.stdout.endswith(output)
        assert (await vmafx.run(*command, "-n", namespace)).stderr == ""
    async with vmafx.running("nodes", "-w", "-n", "nons") as process:
        assert await line_with(process.stderr, "namespace") == note
    assert kubectl("apply", "-f", str(ROOT / OPERATOR_ROLES)).returncode == 0
    kubeconfig = tmp_path / "eve"
    kubeconfig.write_text(json.dumps(await kubeconfig_for(ObjectKey(namespace, "eve"), client, cluster)))
    binding = f"eve-{namespace}"
    subject = f"--serviceaccount={namespace}:eve"
    assert kubectl("create", "clusterrolebinding", binding, "--clusterrole=vmafx-view", subject).returncode == 0

    async def has_no_note() -> bool:
        done = await vmafx.run("jobs", "-n", "nons", "--kubeconfig", str(kubeconfig))
        return (done.returncode, done.stderr) == (0, "")

    await eventually(has_no_note, "no note for a user who may not read namespaces")
    assert kubectl("delete", "clusterrolebinding", binding).returncode == 0


@pytest.mark.parametrize("command", ["jobs", "queue", "nodes"])
async def test_a_watch_on_a_pipe_prints_a_line_per_change(
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
            outcome = "Deleted" if command == "jobs" else "Left"
            assert json.loads(await line_with(process.stdout, outcome))["name"] in {"first", "second"}
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130


@pytest.mark.parametrize("command", ["jobs", "queue", "nodes"])
async def test_a_watch_ends_when_the_reader_closes_the_pipe(
    vmafx: Vmafx, client: Client, namespace: str, clips: Path, command: str
) -> None:
    await add_node(client, namespace, "pool", unschedulable=True)
    await submit(client, namespace, "first", clips)
    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as lines:
        async with vmafx.running(command, "--watch", output=write_end) as process:
            os.close(write_end)
            assert "NAME" in await asyncio.to_thread(lines.readline)
            lines.close()
            async with asyncio.timeout(60):
                _, errors = await process.communicate()
            assert (process.returncode, errors) == (1, b"")


async def test_a_watch_of_jobs_is_filtered_by_phase_and_name(
    vmafx: Vmafx, client: Client, namespace: str, clips: Path
) -> None:
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
            await client.patch_status(JOBS, key, {"phase": "Failed", "message": "no such clip"})
        for name in ("job-0", "job-1", "job-2"):  # also when it leaves the phase
            assert (await line_with(phased.stdout, name)).split()[1] == "Running"
            assert (await line_with(phased.stdout, name)).split()[1] == "Failed"
        assert (await line_with(named.stdout, "job")).split()[:2] == ["job-1", "Running"]
        assert (await line_with(named.stdout, "job")).split()[:2] == ["job-1", "Failed"]
        assert await line_with(both.stdout, "job-") == "name: job-1\n"


async def test_a_watch_on_a_terminal_redraws_the_table(
    vmafx: Vmafx, client: Client, namespace: str, clips: Path
) -> None:
    key = await submit(client, namespace, "first", clips)
    await client.patch_status(JOBS, key, {"message": HOSTILE})
    async with Terminal() as terminal, vmafx.running("jobs", "--watch", terminal=terminal.theirs) as process:
        await terminal.shows("Pending")
        await client.patch_status(JOBS, key, {"phase": "Failed", "message": "no such clip"})
        await terminal.shows("no such clip")
        assert "owned\x07" not in terminal.shown
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
async def test_control_characters_in_objects_are_not_printed(
    vmafx: Vmafx, client: Client, namespace: str, clips: Path, output: str
) -> None:
    key = await submit(client, namespace, "hostile", clips)
    scheduled = {"type": "Scheduled", "status": "False", "reason": f"Bad{HOSTILE}", "message": HOSTILE}
    scheduled["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    await client.patch_status(JOBS, key, {"message": HOSTILE, "conditions": [scheduled], "assignedNode": HOSTILE})
    await add_node(client, namespace, "hostile")
    await client.patch_status(NODES, ObjectKey(namespace, "hostile"), {"detectedDevice": HOSTILE})
    for command in ("jobs", "queue", "nodes"):
        done = await vmafx.run(command, "-o", output)
        assert done.returncode == 0
        assert all(one.isprintable() or one == "\n" for one in done.stdout), done.stdout
        assert "owned" in done.stdout


async def test_missing_permissions_servers_crds_and_kubeconfigs_are_errors_of_one_line(
    vmafx: Vmafx, client: Client, cluster: DevCluster, namespace: str, tmp_path: Path
) -> None:
    commands = (("jobs",), ("queue",), ("nodes", "-w"), ("submit", "s3://b/a", "s3://b/c"))
    config = await kubeconfig_for(ObjectKey(namespace, "nobody"), client, cluster)
    no_permission = tmp_path / "no_permission"
    no_permission.write_text(json.dumps(config))
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    no_server = tmp_path / "no_server"
    no_server.write_text(json.dumps(config))
    bare_cluster = DevCluster(tmp_path / "bare", ClusterOptions(tethered=True))
    bare_cluster.up()
    try:
        for command, *arguments in commands:
            for kubeconfig, message in {
                no_permission: f'User "system:serviceaccount:{namespace}:nobody" cannot',
                no_server: "error: cannot connect to https://127.0.0.1:1",
                bare_cluster.kubeconfig: "error: the CRDs of vmafx are not installed in this cluster; install them:",
                tmp_path / "none": "error: cannot read the kubeconfig",
            }.items():
                done = await vmafx.run(command, *arguments, "--kubeconfig", str(kubeconfig))
                assert (done.returncode, done.stdout) == (1, ""), (command, kubeconfig, done)
                assert message in done.stderr
                assert len(done.stderr.splitlines()) == 1
    finally:
        bare_cluster.down()
    wrong = await vmafx.run("jobs", "--context", "other")
    assert wrong.returncode == 1
    assert "other" in wrong.stderr
    no_namespace = await vmafx.run("submit", "s3://b/a", "s3://b/c", "-n", "none")
    assert (no_namespace.returncode, no_namespace.stderr) == (
        1, "error: namespace none does not exist; create it, or choose another with -n\n",
    )  # fmt: skip
    for watch in ((), ("-w",)):
        invalid = await vmafx.run("jobs", "-l", "a=b,,", *watch)
        assert (invalid.returncode, invalid.stdout) == (1, "")
        assert invalid.stderr.startswith("error: found ','")
    for both in (("jobs", "-A", "-n", namespace), ("jobs", "a", "-A"), ("jobs", "--phase", "x"), ("jobs", "-o", "xml")):
        assert (await vmafx.run(*both)).returncode == 2


async def test_the_generated_roles_are_sufficient(
    vmafx: Vmafx, client: Client, cluster: DevCluster, namespace: str, tmp_path: Path, kubectl: Kubectl
) -> None:
    assert kubectl("apply", "-f", str(ROOT / OPERATOR_ROLES)).returncode == 0
    kubeconfig = tmp_path / "alice"
    kubeconfig.write_text(json.dumps(await kubeconfig_for(ObjectKey(namespace, "alice"), client, cluster)))
    subject = ("--kubeconfig", str(kubeconfig))

    def grant(role: str) -> None:
        made = kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--serviceaccount={namespace}:alice")
        assert made.returncode == 0, made.stderr

    async def succeeds(*arguments: str) -> bool:
        return (await vmafx.run(*arguments, *subject)).returncode == 0

    grant("vmafx-view")
    await eventually(lambda: succeeds("queue"), "vmafx-view allows reading the queue")
    assert await succeeds("jobs")
    assert await succeeds("nodes")
    job = ("submit", "s3://b/a", "s3://b/c")
    refused = await vmafx.run(*job, *subject)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "cannot create resource" in refused.stderr
    assert "submitting jobs requires edit or vmafx-edit" in refused.stderr
    grant("vmafx-edit")
    await eventually(lambda: succeeds(*job), "vmafx-edit allows submitting jobs")
