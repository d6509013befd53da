"""Shared by the operator benchmarks: the contestants, their control plane, and how one is started."""

import argparse
import asyncio
import compileall
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import aiohttp
from aiohttp import web
from bench.usage import cpu_seconds

from vmafx.api.meta import ObjectMeta
from vmafx.api.node import VmafxNode, VmafxNodeSpec
from vmafx.devcluster import ClusterOptions, DevCluster, crds, paths, tools
from vmafx.devcluster.cluster import free_port
from vmafx.devcluster.components import CONTROLLER_MANAGER, SCHEDULER
from vmafx.devcluster.progress import PlainProgress
from vmafx.kube import NODES, Client

HERE = Path(__file__).parent
OURS, GO, GO_UNFINISHED, KOPF = "vmafx-operator", "Go", "Go, unfinished only", "kopf"
REVISION = "vmafx-operator of "  # followed by a git revision
NAMESPACE = "default"
NODE_COUNT, CAPACITY = 50, 100_000  # no job ever waits for a slot
READY_WITHIN = 300.0
# A process is idle if it uses less than this share of a core for IDLE_SECONDS.
IDLE_SHARE, SERVER_IDLE_SHARE = 0.05, 0.15
IDLE_SECONDS = 3.0
_RECONCILES = re.compile(r"^controller_runtime_reconcile_total\{[^}]*\} (\S+)$", re.MULTILINE)


class Contestant(NamedTuple):
    """How an operator is started, and the ports of its readiness probe and its metrics."""

    command: list[str]
    variables: dict[str, str]
    port: int
    metrics: int


def contestant(name: str) -> Contestant:
    """A contestant with free ports; start it soon."""
    port, metrics = free_port(), free_port()
    if name == OURS:
        compiled(HERE.parent / "src")
        operator = Path(sys.executable).with_name("vmafx-operator")
        flags = [f"--health-probe-bind-address=127.0.0.1:{port}", f"--metrics-bind-address=127.0.0.1:{metrics}"]
        return Contestant([str(operator), *flags, "--log-level=warn"], {}, port, metrics)
    variables = {"PROBE_ADDR": f"127.0.0.1:{port}", "METRICS_ADDR": f"127.0.0.1:{metrics}"}
    if name.startswith(REVISION):
        code = "from vmafx.operator.start import main; main()"
        flags = [f"--health-probe-bind-address=127.0.0.1:{port}", f"--metrics-bind-address=127.0.0.1:{metrics}"]
        source = compiled(export(name.removeprefix(REVISION)) / "src")
        command = [sys.executable, "-c", code, *flags, "--log-level=warn"]
        return Contestant(command, {"PYTHONPATH": str(source)}, port, metrics)
    if name == KOPF:
        return Contestant([str(build_kopf()), str(HERE / "peer-kopf" / "peer.py")], variables, port, metrics)
    if name == GO_UNFINISHED:
        variables["ONLY_UNFINISHED"] = "1"
    return Contestant([str(build_go())], variables, port, metrics)


def in_turns(names: list[str], number: int) -> list[str]:
    """The order of contestants in a round; each round starts with another one."""
    first = number % len(names)
    return names[first:] + names[:first]


def chosen(only: str, against: str, among: tuple[str, ...]) -> list[str]:
    """The contestants selected with --only (default: all) and --against; built if necessary."""
    named = [name.strip() for name in only.split(";") if name.strip()]
    names = named or ([OURS] if against else list(among))
    if unknown := [name for name in names if name not in among]:
        raise SystemExit(f"unknown contestant {unknown[0]!r}; choose from: {'; '.join(among)}")
    names += [f"{REVISION}{against}"] if against else []
    for name in names:
        contestant(name)
    return names


def add_choice(parser: argparse.ArgumentParser, among: tuple[str, ...]) -> None:
    parser.add_argument("--only", default="", help=f"contestants to run, separated by semicolons: {'; '.join(among)}")
    parser.add_argument(
        "--against", default="", metavar="REVISION",
        help="also run the operator of this git revision, such as HEAD~1 (default for --only: vmafx-operator)",
    )  # fmt: skip


def compiled(source: Path) -> Path:
    """Compile to bytecode, as in an image, so that the start is not slowed down by compilation."""
    compileall.compile_dir(source, quiet=1)
    return source


def export(revision: str) -> Path:
    """The source files of a git revision; they run with the installed dependencies."""
    resolved = subprocess.run(
        ["git", "rev-parse", "--verify", f"{revision}^{{commit}}"],
        cwd=HERE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if resolved.returncode:
        raise SystemExit(f"unknown git revision {revision!r}")
    folder = paths.cache() / "bench" / "revisions" / resolved.stdout.strip()
    if not folder.exists():
        packed = subprocess.run(
            ["git", "archive", folder.name, "src"], cwd=HERE.parent, capture_output=True, check=True
        ).stdout
        with tempfile.TemporaryDirectory() as unpacked, tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(unpacked, filter="data")
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(unpacked, folder)
    return folder


def build_go() -> Path:
    """The binary of the Go contestant, built once per version of its sources and cached."""
    sources = sorted((HERE / "peer-go").iterdir())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    out, built_from = paths.cache() / "bench" / "peer-go", paths.cache() / "bench" / "peer-go.sha256"
    if not out.exists() or not built_from.exists() or built_from.read_text() != digest:
        log("building the Go contestant (once, 1 to 3 minutes)")
        go = tools.go(PlainProgress())
        command = [str(go), "build", "-trimpath", "-ldflags", "-s -w", "-o", str(out), "."]
        subprocess.run(command, cwd=HERE / "peer-go", env={**os.environ, "CGO_ENABLED": "0"}, check=True)
        built_from.write_text(digest)
    return out


def build_kopf() -> Path:
    """The Python of a virtual environment with kopf, created once and cached."""
    folder = paths.cache() / "bench" / "kopf"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        log("installing the kopf contestant (once, under a minute)")
        venv.create(folder, with_pip=True, clear=True)
        constraints = HERE.parent / "constraints.txt"
        packages = ["-q", "-c", str(constraints), "kopf", "uvloop", "aiohttp", "pyyaml"]
        subprocess.run([str(python), "-m", "pip", "install", *packages], check=True)
        (folder / "ready").touch()
    return python


@contextmanager
def control_plane() -> Iterator[DevCluster]:
    """A fresh etcd and API server, which end with this process."""
    options = ClusterOptions(without=frozenset({CONTROLLER_MANAGER, SCHEDULER}), tethered=True)
    with tempfile.TemporaryDirectory() as folder, DevCluster(Path(folder) / "bench", options) as cluster:
        yield cluster


def servers_of(cluster: DevCluster) -> list[int]:
    """The process ids of a control plane."""
    state = cluster.state()
    return [process.pid for process in state.processes] if state else []


async def prepare(client: Client) -> None:
    """Install the CRDs, and create nodes without a status."""
    await crds.install_crds(client)
    for name in node_names():
        spec = VmafxNodeSpec(gpuVendor="cpu", capacity=CAPACITY, image="vmafx-worker:bench")
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


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
