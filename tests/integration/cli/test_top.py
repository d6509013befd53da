"""`vmafx top` on a real API server: printed once, and live on a terminal."""

import json
import os
import re
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from tests.support.commands import Terminal, Vmafx
from tests.support.faults import kill, start
from tests.support.fleet import add_node, submit
from vmafx.devcluster import ClusterOptions, DevCluster, crds
from vmafx.kube import JOBS, NODES, Client, ObjectKey, load_config

PROGRESS = {"frames": 30, "totalFrames": 120, "fps": 60.5}


async def create_fleet(client: Client, namespace: str, clips: Path) -> None:
    """Two nodes, one of them cordoned; one running job, two waiting, two ended."""
    await add_node(client, namespace, "busy")
    await client.patch_status(NODES, ObjectKey(namespace, "busy"), {"detectedDevice": "A100", "throughput": 812.3})
    await add_node(client, namespace, "idle", unschedulable=True)
    keys = {name: await submit(client, namespace, name, clips) for name in ("runs", "first", "good", "bad")}
    await submit(client, namespace, "urgent", clips, priority=9)
    now = datetime.now(UTC)
    running = {"phase": "Running", "assignedNode": "busy", "startedAt": now, "attempts": 2, "progress": PROGRESS}
    await client.patch_status(JOBS, keys["runs"], running)
    ended = {"startedAt": now - timedelta(seconds=9), "finishedAt": now, "assignedNode": "busy", "frames": 6}
    await client.patch_status(JOBS, keys["good"], {"phase": "Succeeded", "score": 93.5, **ended})
    await client.patch_status(JOBS, keys["bad"], {"phase": "Failed", "message": "no such clip", **ended})


async def test_the_overview_is_printed_once_in_each_format(
    vmafx: Vmafx, client: Client, namespace: str, clips: Path
) -> None:
    await create_fleet(client, namespace, clips)
    done = await vmafx.run("top", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["phases"] == {"Pending": 2, "Running": 1, "Succeeded": 1, "Failed": 1}
    assert (found["whole"], found["slots"], found["used"], found["free"], found["fps"]) == (True, 2, 1, 0, 60.5)
    assert found["jobsPerSecond"] == round(2 / 60, 3)
    assert [(one["name"], one["used"], one["reason"]) for one in found["nodes"]] == [
        ("busy", 1, None), ("idle", 0, "Cordoned"),
    ]  # fmt: skip
    (runs,) = found["running"]
    assert (runs["name"], runs["node"], runs["attempt"], runs["done"]) == ("runs", "busy", 2, 0.25)
    assert found["nodes"][0]["jobs"] == [runs]
    assert [(one["name"], one["position"]) for one in found["queue"]] == [("urgent", 1), ("first", 2)]
    assert {one["name"] for one in found["ended"]} == {"good", "bad"}
    assert yaml.safe_load((await vmafx.run("top", "-o", "yaml")).stdout)["phases"] == found["phases"]
    for arguments in ((), ("--once",)):  # without a terminal, --once is implied
        shown = (await vmafx.run("top", *arguments)).stdout
        assert re.search(r"^busy +cpu +A100 +healthy +█{10} 1/1 +812.3 +runs 25%$", shown, re.MULTILINE)
        assert re.search(r"^good +Succeeded +93.50 +6 +busy +9s", shown, re.MULTILINE)
        assert re.search(r"^ +1 +urgent +9 ", shown, re.MULTILINE)
        assert "\x1b" not in shown
    all_namespaces = (await vmafx.run("top", "-A")).stdout
    assert f"{namespace}/runs" in all_namespaces
    assert (await vmafx.run("top", "-A", "-n", namespace)).returncode == 2


async def test_a_dumb_terminal_is_not_redrawn(vmafx: Vmafx, client: Client, namespace: str, clips: Path) -> None:
    await create_fleet(client, namespace, clips)
    vmafx.environment.update(COLUMNS="80", LINES="24", TERM="dumb")
    async with Terminal() as terminal, vmafx.running("top", terminal=terminal.theirs) as process:
        await terminal.shows("good  Succeeded  93.50       6  busy    9s")
        assert await process.wait() == 0
    async with Terminal() as terminal, vmafx.running("jobs", "--watch", terminal=terminal.theirs) as process:
        await terminal.shows("no such clip")
        await client.patch_status(
            JOBS, ObjectKey(namespace, "first"), {"phase": "Failed", "message": "a later failure"}
        )
        await terminal.shows("a later failure")
        assert "\x1b" not in terminal.shown


async def test_a_live_screen_follows_changes_and_keys(
    vmafx: Vmafx, client: Client, namespace: str, clips: Path
) -> None:
    vmafx.environment["LINES"] = "40"
    await create_fleet(client, namespace, clips)
    async with Terminal() as terminal, vmafx.running("top", terminal=terminal.theirs) as process:
        await terminal.shows("urgent")
        await client.patch_status(JOBS, ObjectKey(namespace, "runs"), {"progress": PROGRESS | {"frames": 90}})
        await terminal.shows("runs 75%")
        over = {"phase": "Succeeded", "score": 41.5, "finishedAt": datetime.now(UTC)}
        await client.patch_status(JOBS, ObjectKey(namespace, "runs"), over)
        await terminal.shows("41.50")
        await terminal.shows("no running jobs")
        for sorting in ("busy", "fps", "name"):
            terminal.forget()
            terminal.press("s")
            await terminal.shows(f"sort: {sorting}")
        terminal.press("q")
        await terminal.shows("\x1b[?1049l")  # the screen is restored
        assert await process.wait() == 0


async def test_control_characters_are_not_printed_and_ctrl_c_restores_the_screen(
    vmafx: Vmafx, client: Client, namespace: str, clips: Path
) -> None:
    key = await submit(client, namespace, "hostile", clips)
    failed = {"phase": "Failed", "message": "\x1b]0;owned\x07", "finishedAt": datetime.now(UTC)}
    await client.patch_status(JOBS, key, failed)
    async with Terminal() as terminal, vmafx.running("top", terminal=terminal.theirs) as process:
        await terminal.shows("owned")
        assert "owned\x07" not in terminal.shown
        process.send_signal(signal.SIGINT)
        await terminal.shows("\x1b[?1049l")
        assert await process.wait() == 130


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
async def test_an_outage_of_the_api_server_is_shown_and_survived(
    tmp_path: Path, clips: Path, sign: signal.Signals
) -> None:
    """SIGKILL: the server is restarted. SIGSTOP: it stops responding for a while."""
    options = ClusterOptions(tethered=True, without=frozenset({"kube-controller-manager", "kube-scheduler"}))
    own = DevCluster(tmp_path / "own", options)
    own.up()
    try:
        async with Client(load_config(own.kubeconfig)) as client:
            await crds.install_crds(client)
            await submit(client, "default", "before", clips)
        vmafx = Vmafx(own.kubeconfig, "default", tmp_path)
        vmafx.environment["LINES"] = "40"
        async with Terminal() as terminal, vmafx.running("top", terminal=terminal.theirs) as process:
            await terminal.shows("before")
            await interrupt_server(own, sign, terminal)
            async with Client(load_config(own.kubeconfig)) as client:
                await submit(client, "default", "after", clips)
            terminal.forget()
            await terminal.shows("after")
            terminal.press("q")
            assert await process.wait() == 0
    finally:
        own.down()


async def interrupt_server(own: DevCluster, sign: signal.Signals, terminal: Terminal) -> None:
    warning = "the API server does not respond"
    if sign is signal.SIGKILL:
        command = kill(own, "kube-apiserver")
        await terminal.shows(warning)
        start(own, "kube-apiserver", command)
        return
    state = own.state()
    assert state is not None
    server = next(one for one in state.processes if one.name == "kube-apiserver")
    os.kill(server.pid, signal.SIGSTOP)
    try:
        await terminal.shows(warning)
    finally:
        os.kill(server.pid, signal.SIGCONT)
