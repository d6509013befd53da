"""Shared by the operator benchmarks: the control plane of a run, and a running contestant."""

import asyncio
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import MappingProxyType

import aiohttp
import yaml
from aiohttp import web
from bench.contestants import HERE, Contestant, contestant
from bench.go_variants import WORKER_IMAGE
from bench.usage import cpu_seconds

from vmafx.api.meta import ObjectMeta
from vmafx.api.node import VmafxNode, VmafxNodeSpec
from vmafx.devcluster import ClusterOptions, DevCluster, crds
from vmafx.devcluster.cluster import free_port
from vmafx.devcluster.components import CONTROLLER_MANAGER, SCHEDULER
from vmafx.kube import NODES, Client

LIGHT_CRDS = HERE / "peer-go" / "crds"  # of the Go operator, without rules
NAMESPACE = "default"
NODE_COUNT, CAPACITY = 50, 100_000  # no job ever waits for a slot
READY_WITHIN = 300.0
# A process is idle if it uses less than this share of a core for IDLE_SECONDS.
IDLE_SHARE, SERVER_IDLE_SHARE = 0.05, 0.15
IDLE_SECONDS = 3.0
_RECONCILES = re.compile(r"^controller_runtime_reconcile_total\{[^}]*\} (\S+)$", re.MULTILINE)


@contextmanager
def control_plane() -> Iterator[DevCluster]:
    """A fresh etcd and API server, which end with this process."""
    options = ClusterOptions(without=frozenset({CONTROLLER_MANAGER, SCHEDULER}), tethered=True)
    with tempfile.TemporaryDirectory() as folder, DevCluster(Path(folder) / "bench", options) as cluster:
        yield cluster


def servers_of(cluster: DevCluster) -> dict[str, int]:
    """The process ids of a control plane, by component."""
    state = cluster.state()
    return {process.name: process.pid for process in state.processes} if state else {}


async def prepare(client: Client, *, light: bool = False) -> None:
    """Install our CRDs or the light ones, and create nodes without a status."""
    if light:
        await crds.apply_crds(client, [yaml.safe_load(path.read_text()) for path in sorted(LIGHT_CRDS.iterdir())])
    else:
        await crds.install_crds(client)
    for name in node_names():
        spec = VmafxNodeSpec(gpuVendor="cpu", capacity=CAPACITY, image=WORKER_IMAGE)
        await client.create(NODES, VmafxNode(metadata=ObjectMeta(name=name), spec=spec), NAMESPACE)


def node_names() -> list[str]:
    return [f"node-{number:02}" for number in range(NODE_COUNT)]


async def all_healthy(client: Client) -> bool:
    """Whether the contestant has written the health of all nodes."""
    return all(node.status.healthy for node in (await client.list(NODES, NAMESPACE)).items)


@asynccontextmanager
async def controller() -> AsyncIterator[str]:
    """A stand-in for the controller that answers /healthz; yields its address."""

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


class Operator:
    """A running contestant."""

    def __init__(self, name: str, started: Contestant, process: asyncio.subprocess.Process, log: Path) -> None:
        self.started = time.perf_counter()
        self.pid, self._name, self._process, self._log = process.pid, name, process, log
        self._port, self._metrics = started.port, started.metrics

    async def ready(self) -> float:
        """Wait for its readiness probe; return the seconds since its start."""
        url = f"http://127.0.0.1:{self._port}/readyz"
        async with aiohttp.ClientSession() as session:
            while not await _answers(session, url):
                if time.perf_counter() - self.started > READY_WITHIN:
                    self.fail(f"was not ready within {READY_WITHIN:.0f} s")
                self.check()
                await asyncio.sleep(0.005)
        return time.perf_counter() - self.started

    async def reconciliations(self) -> int:
        """The number of reconciliations so far, of all kinds, from its metrics."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self._metrics}/metrics") as response,
        ):
            text = await response.text()
        return sum(int(float(count)) for count in _RECONCILES.findall(text))

    async def wait_until(self, done: Callable[[], Awaitable[bool]], within: float) -> None:
        """Wait until `done`, while the operator runs, for at most `within` seconds."""
        deadline = time.perf_counter() + within
        while not await done():
            self.check()
            if time.perf_counter() > deadline:
                self.fail(f"did not finish within {within:.0f} s")
            await asyncio.sleep(0.1)

    def check(self) -> None:
        if self._process.returncode is not None:
            self.fail(f"exited with code {self._process.returncode}")

    def fail(self, problem: str) -> None:
        output = self._log.read_text(errors="replace")[-2000:].strip() or "(empty)"
        raise SystemExit(f"{self._name} {problem}; its log: {output}")


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=1)) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


@asynccontextmanager
async def running(
    name: str, cluster: DevCluster, controller: str, variables: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[Operator]:
    """Run a contestant, with these environment variables besides its own."""
    started = contestant(name)
    settings = {"KUBECONFIG": str(cluster.kubeconfig), "VMAFX_CONTROLLER_HTTP_ADDR": controller}
    environment = {**os.environ, **started.variables, **settings, **variables}
    log = cluster.folder / "operator.log"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(
            *started.command, env=environment, stdout=descriptor, stderr=descriptor
        )
    finally:
        os.close(descriptor)
    try:
        yield Operator(name, started, process, log)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            process.kill()
            await process.wait()


async def wait_until_idle(pid: int, share: float = IDLE_SHARE) -> float:
    """Wait until the process has used less than this share of a core for IDLE_SECONDS; return since when."""
    since, before = time.perf_counter(), cpu_seconds(pid)
    while time.perf_counter() - since < IDLE_SECONDS:
        await asyncio.sleep(0.5)
        now = cpu_seconds(pid)
        if now - before > share * 0.5:
            since = time.perf_counter()
        before = now
    return since
