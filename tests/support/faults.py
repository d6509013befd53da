"""Faults of a real control plane: kill and restart components, compact etcd."""

import base64
import json
import os
import signal
from pathlib import Path

import aiohttp

from tests.support.waiting import until
from vmafx.devcluster import DevCluster, process
from vmafx.devcluster.cluster import ClusterState


def kill(cluster: DevCluster, name: str, sign: signal.Signals = signal.SIGKILL) -> list[str]:
    """Kill a component; returns the command that it was started with."""
    one = next(one for one in _state(cluster).processes if one.name == name)
    command = Path(f"/proc/{one.pid}/cmdline").read_text().split("\0")[:-1]
    os.kill(one.pid, sign)
    until(lambda: not one.alive(), f"{name} has exited")
    one.stop()
    return command


def start(cluster: DevCluster, name: str, command: list[str]) -> None:
    """Start a killed component again, on the same port and data, and wait until the API answers."""
    state = _state(cluster)
    restarted = process.start_component(name, command, cluster.folder, tethered=True)
    running = [restarted if one.name == name else one for one in state.processes]
    cluster._write_state(state.server, running)
    port = int(state.server.rpartition(":")[2])
    cluster._wait_ready(running, [("kube-apiserver", port, "/readyz")])


async def compact_etcd(cluster: DevCluster) -> None:
    """Compact etcd to the current revision, so that watches from earlier versions fail with 410 Gone."""
    socket = cluster.folder / "client:0"
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session:
        key = base64.b64encode(b"/").decode()
        async with session.post("http://etcd/v3/kv/range", data=json.dumps({"key": key})) as response:
            revision = json.loads(await response.read())["header"]["revision"]
        async with session.post(
            "http://etcd/v3/kv/compaction", data=json.dumps({"revision": revision, "physical": True})
        ) as response:
            assert response.status == 200, await response.text()


def _state(cluster: DevCluster) -> ClusterState:
    state = cluster.state()
    assert state is not None
    return state
