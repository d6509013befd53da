"""`vmafx top` on the real API server: once, and live on a terminal."""

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


async def a_fleet(client: Client, namespace: str, clips: Path) -> None:
    """Two nodes, of which one takes no jobs; one job runs, two wait, two are over."""
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
    await client.patch_status(JOBS, keys["bad"], {"phase": "Failed", "message": "so be it", **ended})


async def test_one_frame(vmafx: Vmafx, client: Client, namespace: str, clips: Path) -> None:
    await a_fleet(client, namespace, clips)
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
    for arguments in ((), ("--once",)):  # where there is no terminal, once is all there is
        shown = (await vmafx.run("top", *arguments)).stdout
        assert re.search(r"^busy +cpu +A100 +healthy +█{10} 1/1 +812.3 +runs 25%$", shown, re.MULTILINE)
        assert re.search(r"^good +Succeeded +93.50 +6 +busy +9s", shown, re.MULTILINE)
        assert re.search(r"^ +1 +urgent +9 ", shown, re.MULTILINE)
        assert "\x1b" not in shown
    everywhere = (await vmafx.run("top", "-A")).stdout
    assert f"{namespace}/runs" in everywhere
    assert (await vmafx.run("top", "-A", "-n", namespace)).returncode == 2


async def test_a_dumb_terminal_and_a_narrow_one_show_it_once(
    vmafx: Vmafx, client: Client, namespace: str, clips: Path
) -> None:
    await a_fleet(client, namespace, clips)
    vmafx.environment.update(COLUMNS="80", LINES="24", TERM="dumb")
    async with Terminal() as terminal, vmafx.running("top", terminal=terminal.theirs) as process:
        await terminal.shows("good  Succeeded  93.50       6  busy    9s")
        assert await process.wait() == 0
    async with Terminal() as terminal, vmafx.running("jobs", "--watch", terminal=terminal.theirs) as process:
        await terminal.shows("so be it")
        await client.patch_status(JOBS, ObjectKey(namespace, "first"), {"phase": "Failed", "message": "and so it is"})
        await terminal.shows("and so it is")
        assert "\x1b" not in terminal.shown


async def test_a_live_screen_and_its_keys(vmafx: Vmafx, client: Client, namespace: str, clips: Path) -> None:
    vmafx.environment["LINES"] = "40"
    await a_fleet(client, namespace, clips)
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
        await terminal.shows("\x1b[?1049l")  # the screen is as it was before
        assert await process.wait() == 0


async def test_ctrl_c_and_hostile_objects(vmafx: Vmafx, client: Client, namespace: str, clips: Path) -> None:
    key = await submit(client, namespace, "evil", clips)
    failed = {"phase": "Failed", "message": "\x1b]0;owned\x07", "finishedAt": datetime.now(UTC)}
    await client.patch_status(JOBS, key, failed)
    async with Terminal() as terminal, vmafx.running("top", terminal=terminal.theirs) as process:
        await terminal.shows("owned")
        assert "owned\x07" not in terminal.shown
        process.send_signal(signal.SIGINT)
        await terminal.shows("\x1b[?1049l")
        assert await process.wait() == 130


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_server_that_is_away_is_told_and_waited_for(tmp_path: Path, clips: Path, sign: signal.Signals) -> None:
    """Killed and started again, or only silent for a while."""
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
            await away_and_back(own, sign, terminal)
            async with Client(load_config(own.kubeconfig)) as client:
                await submit(client, "default", "after", clips)
            terminal.forget()
            await terminal.shows("after")
            terminal.press("q")
            assert await process.wait() == 0
    finally:
        own.down()


async def away_and_back(own: DevCluster, sign: signal.Signals, terminal: Terminal) -> None:
    told = "the API server does not answer"
    if sign is signal.SIGKILL:
        command = kill(own, "kube-apiserver")
        await terminal.shows(told)
        start(own, "kube-apiserver", command)
        return
    state = own.state()
    assert state is not None
    server = next(one for one in state.processes if one.name == "kube-apiserver")
    os.kill(server.pid, signal.SIGSTOP)
    try:
        await terminal.shows(told)
    finally:
        os.kill(server.pid, signal.SIGCONT)
