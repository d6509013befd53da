"""The whole operator under faults: afterwards every node is assessed, and nothing is lost or leaked."""

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.kube.test_client import SLIM, make
from tests.integration.operator.test_operator import controller, create_node, leader_flags, status_of
from tests.integration.runtime.test_informer import own_cluster, running, settled
from tests.support.faults import kill, start
from tests.support.operator_context import context
from tests.support.operator_process import LEASE, Controller, operator
from tests.support.proxy import FaultyProxy, Refuse
from tests.support.setting_defaults import defaults
from tests.support.waiting import eventually
from vmafx.devcluster import DevCluster, crds
from vmafx.kube import JOBS, NODES, Client, ObjectKey, load_config
from vmafx.kube.core import LEASES
from vmafx.operator.node.reconciler import NodeReconciler
from vmafx.operator.node.settings import NodeSettings
from vmafx.runtime.informer import Informer

__all__ = ["controller", "own_cluster"]

RECONCILED = 'controller_runtime_reconcile_total{controller="vmafxnode",result="success"}'
ACTIVE_WORKERS = 'controller_runtime_active_workers{controller="vmafxnode"}'


async def all_healthy(client: Client, namespace: str) -> bool:
    nodes = (await client.list(NODES, namespace)).items
    return bool(nodes) and all(node.status.healthy for node in nodes)


async def test_the_operator_survives_a_killed_api_server(
    own_cluster: DevCluster, controller: Controller, tmp_path: Path
) -> None:
    async with Client(load_config(own_cluster.kubeconfig)) as client:
        await crds.install_crds(client)
        await create_node(client, "default", "before")
        variables = {"VMAFX_CONTROLLER_HTTP_ADDR": controller.address}
        with operator(own_cluster, "default", tmp_path, **variables) as process:
            await eventually(lambda: all_healthy(client, "default"), "the first node is healthy")
            for round_number in range(2):
                command = kill(own_cluster, "kube-apiserver")
                start(own_cluster, "kube-apiserver", command)
                async with Client(client.config) as fresh:  # with new connections
                    await create_node(fresh, "default", f"after-{round_number}")
                    await eventually(lambda: all_healthy(fresh, "default"), "a node created afterwards is healthy")
            assert process.process.poll() is None
            assert process.ready()


async def test_the_operator_survives_a_storm_of_429(
    cluster: DevCluster, client: Client, namespace: str, controller: Controller, tmp_path: Path
) -> None:
    async with FaultyProxy(client.config) as proxy:
        through = {
            "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": proxy.config.server}}],
            "contexts": [{"name": "x", "context": {"cluster": "x"}}],
        }
        config = tmp_path / "through-the-proxy"
        config.write_bytes(msgspec.yaml.encode(through))
        variables = {"VMAFX_CONTROLLER_HTTP_ADDR": controller.address, "KUBECONFIG": str(config)}
        with operator(cluster, namespace, tmp_path, **variables) as process:
            await eventually(process.ready, "it is ready")
            storm = [Refuse(429, retry_after="0")] * 10_000
            proxy.faults.extend(storm)
            proxy.cut()
            for number in range(20):
                await create_node(client, namespace, f"n-{number}")
            await eventually(lambda: len(storm) - len(proxy.faults) > 5, "it keeps retrying")
            proxy.faults.clear()
            await eventually(lambda: all_healthy(client, namespace), "every node is healthy", within=60)
            assert process.process.poll() is None


async def test_the_operator_stops_cleanly_while_it_is_busy(
    cluster: DevCluster, client: Client, namespace: str, controller: Controller, tmp_path: Path
) -> None:
    keys = [await create_node(client, namespace, f"n-{number}") for number in range(30)]
    flags, variables = leader_flags(namespace), {"VMAFX_CONTROLLER_HTTP_ADDR": controller.address}

    async def send_heartbeats() -> None:
        """Constant heartbeats, half of them old: each changes the health of its node."""
        while True:
            for number, key in enumerate(keys):
                age = timedelta(seconds=100 if number % 2 else 0)
                await client.patch_status(NODES, key, {"lastHeartbeat": (datetime.now(UTC) - age).isoformat()})

    sending = asyncio.create_task(send_heartbeats())
    try:
        with operator(cluster, namespace, tmp_path, *flags, **variables) as process:
            await eventually(process.leads, "it leads")
            await eventually(lambda: (process.metric(RECONCILED) or 0) > len(keys), "it is busy")
            process.process.terminate()
            await eventually(lambda: process.process.poll() is not None, "it ends")
            assert process.process.returncode == 0
            assert [line for line in process.log() if line["level"] == "error"] == []
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    assert (await client.get(LEASES, ObjectKey(namespace, LEASE))).spec.holderIdentity == ""


@pytest.fixture
async def in_process(client: Client, namespace: str, controller: Controller) -> AsyncIterator["InProcess"]:
    reconciling = InProcess(client, namespace, controller)
    tasks = [asyncio.create_task(work) for work in reconciling.parts()]
    yield reconciling
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class InProcess:
    """The node reconciler in this process, with a clock that can be set."""

    def __init__(self, client: Client, namespace: str, controller: Controller) -> None:
        self.ahead = timedelta()
        operator_context = context(client, namespace, now=self._now)
        self._client, self._namespace, self._nodes = client, namespace, operator_context.nodes
        self._reconciler = NodeReconciler(
            operator_context, defaults(NodeSettings, controller_address=controller.address)
        )
        self._loop = self._reconciler.loop

    def parts(self) -> tuple[Coroutine[Any, Any, None], ...]:
        return self._nodes.run(), self._loop.run(), self._reconciler.prober.run()

    def probed(self) -> bool:
        return self._reconciler.prober.latest(self._namespace) is not None

    async def reconciled(self, key: ObjectKey) -> None:
        """Wait until the latest version of the node was reconciled without another write."""
        queue = self._loop.queue
        while True:
            version = (await self._client.get(NODES, key)).metadata.resourceVersion
            await eventually(lambda: self._version(key) >= int(version), "the cache is up to date", every=0.005)  # noqa: B023
            queue.add(key)
            await eventually(lambda: not len(queue) and not queue._working, "it was reconciled", every=0.005)
            if (await self._client.get(NODES, key)).metadata.resourceVersion == version:
                return

    def _version(self, key: ObjectKey) -> int:
        node = self._nodes.store.get(key)
        return int(node.metadata.resourceVersion) if node is not None else 0

    def _now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


async def test_a_jump_of_the_clock_does_not_affect_observed_heartbeats(
    client: Client, namespace: str, in_process: InProcess
) -> None:
    key = await create_node(client, namespace, "n", datetime.now(UTC).isoformat())

    async def stays_healthy() -> None:
        await in_process.reconciled(key)
        assert (await status_of(client, key))["healthy"] is True

    await eventually(in_process.probed, "the controller is probed")
    await stays_healthy()  # its heartbeat is recent
    for hours in (1, -1):
        in_process.ahead = timedelta(hours=hours)
        await stays_healthy()
    in_process.ahead = timedelta(hours=1)
    heartbeat = datetime.now(UTC).isoformat()
    await client.patch_status(NODES, key, {"lastHeartbeat": heartbeat})
    await stays_healthy()  # an hour old by this clock, but seen to arrive
    assert (await status_of(client, key))["lastHeartbeat"] == heartbeat
    in_process.ahead = timedelta()
    await stays_healthy()


def open_sockets() -> int:
    return sum(1 for one in Path("/proc/self/fd").iterdir() if "socket" in _target(one))


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@pytest.mark.timeout(300)
async def test_a_thousand_broken_watches_leak_no_tasks_sockets_or_memory(client: Client, namespace: str) -> None:
    key, _ = await make(client, namespace)
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        informer = Informer(through, SLIM, namespace=namespace)
        async with running(informer) as listener:

            async def break_once(number: int) -> None:
                seen = len(proxy.seen)
                proxy.cut()
                await client.merge_patch(JOBS, key, {"spec": {"priority": number}})
                await proxy.saw(seen + 1)
                await listener.until(lambda: listener.known[key].spec.priority == number)

            async with asyncio.timeout(280):
                for number in range(1, 101):
                    await break_once(number)
                gc.collect()
                before = (len(asyncio.all_tasks()), open_sockets(), resident_mib())
                for number in range(101, 1101):
                    await break_once(number)
            gc.collect()
            after = (len(asyncio.all_tasks()), open_sockets(), resident_mib())
            await settled(informer, listener, client, namespace)
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 4
    assert after[2] <= before[2] + 8


async def test_the_operator_waits_for_a_stopped_api_server(
    cluster: DevCluster, client: Client, namespace: str, controller: Controller, tmp_path: Path
) -> None:
    state = cluster.state()
    assert state is not None
    apiserver = next(one for one in state.processes if one.name == "kube-apiserver")
    controller.answering.clear()
    with operator(cluster, namespace, tmp_path, VMAFX_CONTROLLER_HTTP_ADDR=controller.address) as process:
        await create_node(client, namespace, "before")
        await eventually(lambda: controller.asked, "it is about to assess the node")
        os.kill(apiserver.pid, signal.SIGSTOP)
        try:
            controller.answering.set()
            await eventually(lambda: process.metric(ACTIVE_WORKERS), "a write is not answered")
            after = asyncio.create_task(create_node(client, namespace, "after"))
        finally:
            os.kill(apiserver.pid, signal.SIGCONT)
        await after
        await eventually(lambda: all_healthy(client, namespace), "every node is healthy", within=60)
        assert process.process.poll() is None
