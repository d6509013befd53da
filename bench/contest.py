"""What the benchmarks of operators share: the contestants, the control plane they meet, and how one is run."""

import argparse
import asyncio
import compileall
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
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
REVISION = "vmafx-operator of "  # and a revision of this project
NAMESPACE = "default"
NODE_COUNT, CAPACITY = 50, 100_000  # no job ever waits for a place
READY_WITHIN = 300.0
CALM, CALM_FOR = 0.05, 3.0  # of a core, for so many seconds
SERVER_CALM = 0.15  # of a core: an API server is never as quiet as an operator


class Contestant(NamedTuple):
    """How an operator is started, and the port on which it tells that it is ready."""

    command: list[str]
    variables: dict[str, str]
    port: int


def contestant(name: str) -> Contestant:
    """With ports that are free now: to be started at once."""
    port, metrics = free_port(), free_port()
    if name == OURS:
        compiled(HERE.parent / "src")
        operator = Path(sys.executable).with_name("vmafx-operator")
        flags = [f"--health-probe-bind-address=127.0.0.1:{port}", f"--metrics-bind-address=127.0.0.1:{metrics}"]
        return Contestant([str(operator), *flags, "--log-level=warn"], {}, port)
    variables = {"PROBE_ADDR": f"127.0.0.1:{port}", "METRICS_ADDR": f"127.0.0.1:{metrics}"}
    if name.startswith(REVISION):
        code = "from vmafx.operator.start import main; main()"
        flags = [f"--health-probe-bind-address=127.0.0.1:{port}", f"--metrics-bind-address=127.0.0.1:{metrics}"]
        source = compiled(export(name.removeprefix(REVISION)) / "src")
        return Contestant([sys.executable, "-c", code, *flags, "--log-level=warn"], {"PYTHONPATH": str(source)}, port)
    if name == KOPF:
        return Contestant([str(build_kopf()), str(HERE / "peer-kopf" / "peer.py")], variables, port)
    if name == GO_UNFINISHED:
        variables["ONLY_UNFINISHED"] = "1"
    return Contestant([str(build_go())], variables, port)


def in_turns(names: list[str], number: int) -> list[str]:
    """The order of a round: each begins with another."""
    first = number % len(names)
    return names[first:] + names[:first]


def chosen(only: str, against: str, among: tuple[str, ...]) -> list[str]:
    """The contestants that --only names, all if it names none, and that of --against; built where they are not yet."""
    named = [name.strip() for name in only.split(";") if name.strip()]
    names = named or ([OURS] if against else list(among))
    if unknown := [name for name in names if name not in among]:
        raise SystemExit(f"there is no contestant {unknown[0]!r}; there are: {'; '.join(among)}")
    names += [f"{REVISION}{against}"] if against else []
    for name in names:
        contestant(name)
    return names


def add_choice(parser: argparse.ArgumentParser, among: tuple[str, ...]) -> None:
    parser.add_argument("--only", default="", help=f"some of the contestants: {'; '.join(among)}")
    parser.add_argument(
        "--against", default="", metavar="REVISION",
        help="this project's operator as of a revision, such as HEAD~1: beside ours alone, or those of --only",
    )  # fmt: skip


def compiled(source: Path) -> Path:
    """As an image has it: nobody is to pay for a compilation at the start."""
    compileall.compile_dir(source, quiet=1)
    return source


def export(revision: str) -> Path:
    """This project's files as of a revision; it runs on what is installed now."""
    resolved = subprocess.run(
        ["git", "rev-parse", "--verify", f"{revision}^{{commit}}"],
        cwd=HERE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if resolved.returncode:
        raise SystemExit(f"there is no revision {revision!r} here")
    folder = paths.cache() / "bench" / "revisions" / resolved.stdout.strip()
    if not folder.exists():
        packed = subprocess.run(
            ["git", "archive", folder.name, "src"], cwd=HERE.parent, capture_output=True, check=True
        ).stdout
        with tempfile.TemporaryDirectory() as made, tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(made, filter="data")
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(made, folder)
    return folder


def build_go() -> Path:
    """The Go contestant, built once for its sources and kept beside the control plane's binaries."""
    sources = sorted((HERE / "peer-go").iterdir())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    out, built_from = paths.cache() / "bench" / "peer-go", paths.cache() / "bench" / "peer-go.sha256"
    if not out.exists() or not built_from.exists() or built_from.read_text() != digest:
        say("building the Go contestant (once, 1 to 3 minutes)")
        go = tools.go(PlainProgress())
        command = [str(go), "build", "-trimpath", "-ldflags", "-s -w", "-o", str(out), "."]
        subprocess.run(command, cwd=HERE / "peer-go", env={**os.environ, "CGO_ENABLED": "0"}, check=True)
        built_from.write_text(digest)
    return out


def build_kopf() -> Path:
    """A Python with kopf in it, made once and kept there too."""
    folder = paths.cache() / "bench" / "kopf"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        say("installing the kopf contestant (once, under a minute)")
        venv.create(folder, with_pip=True, clear=True)
        constraints = HERE.parent / "constraints.txt"
        wanted = ["-q", "-c", str(constraints), "kopf", "uvloop", "aiohttp", "pyyaml"]
        subprocess.run([str(python), "-m", "pip", "install", *wanted], check=True)
        (folder / "ready").touch()
    return python


@contextmanager
def control_plane() -> Iterator[DevCluster]:
    """A fresh etcd and API server, which end with us."""
    options = ClusterOptions(without=frozenset({CONTROLLER_MANAGER, SCHEDULER}), tethered=True)
    with tempfile.TemporaryDirectory() as folder, DevCluster(Path(folder) / "bench", options) as cluster:
        yield cluster


def servers_of(cluster: DevCluster) -> list[int]:
    """The processes of a control plane."""
    state = cluster.state()
    return [process.pid for process in state.processes] if state else []


async def prepare(client: Client) -> None:
    """The kinds, and nodes that nobody has judged yet."""
    await crds.install_crds(client)
    for name in node_names():
        spec = VmafxNodeSpec(gpuVendor="cpu", capacity=CAPACITY, image="vmafx-worker:bench")
        await client.create(NODES, VmafxNode(metadata=ObjectMeta(name=name), spec=spec), NAMESPACE)


def node_names() -> list[str]:
    return [f"node-{number:02}" for number in range(NODE_COUNT)]


async def all_healthy(client: Client) -> bool:
    """Whether the contestant has done what it is to do about nodes."""
    return all(node.status.healthy for node in (await client.list(NODES, NAMESPACE)).items)


@asynccontextmanager
async def controller() -> AsyncIterator[str]:
    """Something that answers /healthz, at the address that it gives."""

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
    """A contestant that runs."""

    def __init__(self, name: str, port: int, process: asyncio.subprocess.Process, log: Path) -> None:
        self.started = time.perf_counter()
        self.pid, self._name, self._port, self._process, self._log = process.pid, name, port, process, log

    async def ready(self) -> float:
        """Seconds from its start until it said that it is ready."""
        url = f"http://127.0.0.1:{self._port}/readyz"
        async with aiohttp.ClientSession() as session:
            while not await _answers(session, url):
                if time.perf_counter() - self.started > READY_WITHIN:
                    self.fail(f"was not ready within {READY_WITHIN:.0f} s")
                self.check()
                await asyncio.sleep(0.005)
        return time.perf_counter() - self.started

    def check(self) -> None:
        if self._process.returncode is not None:
            self.fail(f"ended with exit code {self._process.returncode}")

    def fail(self, what: str) -> None:
        said = self._log.read_text(errors="replace")[-2000:].strip() or "nothing"
        raise SystemExit(f"{self._name} {what}; it said: {said}")


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=1)) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


@asynccontextmanager
async def running(name: str, cluster: DevCluster, controller: str) -> AsyncIterator[Operator]:
    """Start a contestant, and end it."""
    command, variables, port = contestant(name)
    told = {"KUBECONFIG": str(cluster.kubeconfig), "VMAFX_CONTROLLER_HTTP_ADDR": controller}
    environment = {**os.environ, **variables, **told}
    log = cluster.folder / "operator.log"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=descriptor, stderr=descriptor)
    finally:
        os.close(descriptor)
    try:
        yield Operator(name, port, process, log)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            process.kill()
            await process.wait()


async def calm(pid: int, share: float = CALM) -> None:
    """Wait until it has taken no more than so much of a core for a while."""
    since, before = time.perf_counter(), cpu_seconds(pid)
    while time.perf_counter() - since < CALM_FOR:
        await asyncio.sleep(0.5)
        now = cpu_seconds(pid)
        if now - before > share * 0.5:
            since = time.perf_counter()
        before = now


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
