"""What it costs an operator to start beside many finished jobs and to idle: ours, Go's and kopf's, in turns.

Run by `make bench`. Each contestant keeps caches of VmafxJobs and VmafxNodes and writes the health of 50 nodes; all
meet the same API server, one after the other, in every round. Finished jobs are cloned in etcd from one that was
brought there through the API. CPU and memory are read from /proc.

The Go operator is on controller-runtime 0.25, and caches all jobs, as operators do; "unfinished only" is the same
program asking the server for unfinished jobs alone, which is what ours does. The kopf operator is on kopf 1.45, with
raw event handlers: the lightest form it has.
"""

import argparse
import asyncio
import base64
import http.client
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import msgspec
from aiohttp import web

from vmafx.api.job import VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.api.node import VmafxNode, VmafxNodeSpec
from vmafx.devcluster import DevCluster, Options, crds, places, tools
from vmafx.devcluster.cluster import free_port
from vmafx.devcluster.components import MANAGER, SCHEDULER
from vmafx.devcluster.progress import Lines
from vmafx.kube import JOBS, NODES, Client, Key, load_config

NODE_COUNT = 50
CALM = 0.05  # of a core
CALM_FOR = 3.0
TICKS = os.sysconf("SC_CLK_TCK")
HERE = Path(__file__).parent


class Figures(msgspec.Struct):
    """Of one start."""

    ready_s: float
    cpu_s: float
    memory_mib: float
    peak_mib: float
    idle_cpu_s: float


def build_peer() -> Path:
    """The Go contestant, built once and kept beside the control plane's binaries."""
    out = places.cache() / "bench" / "peer-go"
    newest = max(path.stat().st_mtime for path in (HERE / "peer-go").iterdir())
    if not out.exists() or out.stat().st_mtime < newest:
        say("building the Go contestant (once, 1 to 3 minutes)")
        go = tools.go(Lines())
        command = [str(go), "build", "-trimpath", "-ldflags", "-s -w", "-o", str(out), "."]
        subprocess.run(command, cwd=HERE / "peer-go", env={**os.environ, "CGO_ENABLED": "0"}, check=True)
    return out


def build_kopf() -> Path:
    """A Python with kopf in it, made once and kept there too."""
    folder = places.cache() / "bench" / "kopf"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        say("installing the kopf contestant (once, under a minute)")
        venv.create(folder, with_pip=True, clear=True)
        constraints = HERE.parent / "constraints.txt"
        wanted = ["-q", "-c", str(constraints), "kopf", "uvloop", "aiohttp", "pyyaml"]
        subprocess.run([str(python), "-m", "pip", "install", *wanted], check=True)
        (folder / "ready").touch()
    return python


async def prepare(kubeconfig: Path) -> None:
    """Kinds, nodes, and one finished job to clone."""
    async with Client(load_config(kubeconfig)) as client:
        await crds.install(client)
        for number in range(NODE_COUNT):
            metadata = ObjectMeta(name=f"node-{number:02}")
            await client.create(NODES, VmafxNode(metadata=metadata, spec=VmafxNodeSpec(gpuVendor="cpu")), "default")
        spec = VmafxJobSpec(reference="s3://corpus/park/reference.mp4", distorted="s3://corpus/park/h264-2mbit.mp4")
        job = await client.create(JOBS, VmafxJob(metadata=ObjectMeta(name="job-000000"), spec=spec), "default")
        done = {"type": "Complete", "status": "True", "reason": "Scored", "lastTransitionTime": "2026-11-15T12:00:09Z"}
        status = {
            "phase": "Succeeded",
            "score": 93.218734,
            "assignedNode": "node-00",
            "controllerJobID": f"{job.metadata.uid}-0",
            "startedAt": "2026-11-15T12:00:00Z",
            "finishedAt": "2026-11-15T12:00:09Z",
            "attempts": 1,
            "frames": 300,
            "conditions": [done],
        }
        await client.patch_status(JOBS, Key("default", "job-000000"), status)


async def clone_jobs(cluster: DevCluster, first: int, count: int) -> None:
    """Put copies of the finished job into etcd, each with its own name and uid."""
    prefix = "/registry/vmafx.dev/vmafxjobs/default/"
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(cluster.folder / "client:0"))) as session:
        stored = await _etcd(session, "range", {"key": _b64(f"{prefix}job-000000".encode())})
        value = base64.b64decode(stored["kvs"][0]["value"])
        uid = msgspec.json.decode(value)["metadata"]["uid"].encode()
        for start in range(first, first + count, 100):
            puts = []
            for number in range(start, min(start + 100, first + count)):
                name = f"job-{number:06}".encode()
                copy = value.replace(b"job-000000", name).replace(uid, uid[:24] + f"{number:012x}".encode())
                puts.append({"requestPut": {"key": _b64(prefix.encode() + name), "value": _b64(copy)}})
            await _etcd(session, "txn", {"success": puts})


async def _etcd(session: aiohttp.ClientSession, call: str, body: object) -> dict[str, list[dict[str, str]]]:
    async with session.post(f"http://etcd/v3/kv/{call}", data=msgspec.json.encode(body)) as answer:
        answer.raise_for_status()
        return msgspec.json.decode(await answer.read(), type=dict)


def _b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def forget_health(kubeconfig: Path) -> None:
    """So that every contestant finds the same work."""
    async with Client(load_config(kubeconfig)) as client:
        for number in range(NODE_COUNT):
            gone = {"healthy": None, "conditions": None, "observedGeneration": None}
            await client.patch_status(NODES, Key("default", f"node-{number:02}"), gone)


async def health_is_written(kubeconfig: Path) -> None:
    async with Client(load_config(kubeconfig)) as client:
        nodes = (await client.list(NODES, "default")).items
        assert all(node.status.healthy for node in nodes), "a contestant did not do its work"


@contextmanager
def controller() -> Iterator[str]:
    """Something that answers /healthz, in a process of its own."""
    port = free_port()
    with subprocess.Popen([sys.executable, __file__, "--serve-healthz", str(port)]) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def serve_healthz(port: int) -> None:
    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mib(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {field}")


def is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def measure(command: list[str], environment: dict[str, str], port: int, idle: float) -> Figures:
    """Start a contestant, watch it become ready and calm, watch it idle, and end it."""
    started = time.perf_counter()
    with subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL) as process:
        try:
            while not is_ready(port):
                if process.poll() is not None or time.perf_counter() - started > 120:
                    raise SystemExit(f"{command[0]} did not become ready")
                time.sleep(0.005)
            ready = time.perf_counter() - started
            calm_since, before = time.perf_counter(), cpu_seconds(process.pid)
            while time.perf_counter() - calm_since < CALM_FOR:
                time.sleep(0.5)
                now = cpu_seconds(process.pid)
                if now - before > CALM * 0.5:
                    calm_since = time.perf_counter()
                before = now
            settled, memory, peak = before, memory_mib(process.pid, "VmRSS"), memory_mib(process.pid, "VmHWM")
            time.sleep(idle)
            return Figures(ready, settled, memory, peak, cpu_seconds(process.pid) - settled)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def contestants() -> dict[str, tuple[list[str], dict[str, str], int]]:
    """Command, variables and readiness port of each."""
    peer, kopf = str(build_peer()), [str(build_kopf()), str(HERE / "peer-kopf" / "peer.py")]
    ours = str(Path(sys.executable).with_name("vmafx-operator"))
    probe, metrics, go_probe, go_metrics = (free_port() for _ in range(4))
    flags = [f"--health-probe-bind-address=127.0.0.1:{probe}", f"--metrics-bind-address=127.0.0.1:{metrics}"]
    go = {"PROBE_ADDR": f"127.0.0.1:{go_probe}", "METRICS_ADDR": f"127.0.0.1:{go_metrics}"}
    return {
        "vmafx-operator": ([ours, *flags, "--log-level=warn"], {}, probe),
        "Go": ([peer], go, go_probe),
        "Go, unfinished only": ([peer], {**go, "ONLY_UNFINISHED": "1"}, go_probe),
        "kopf": (kopf, go, go_probe),
    }


def run(sizes: list[int], rounds: int, idle: float) -> None:
    build_peer()
    build_kopf()
    with tempfile.TemporaryDirectory() as folder, controller() as address:
        options = Options(without=frozenset({MANAGER, SCHEDULER}), tethered=True)
        with DevCluster(Path(folder) / "bench", options) as cluster:
            asyncio.run(prepare(cluster.kubeconfig))
            there = 1
            for size in sizes:
                asyncio.run(clone_jobs(cluster, there, size - there))
                there = size
                results: dict[str, list[Figures]] = {}
                for number in range(rounds):
                    entries = list(contestants().items())
                    for name, (command, environment, port) in entries[:: 1 if number % 2 else -1]:
                        asyncio.run(forget_health(cluster.kubeconfig))
                        say(f"{size} jobs, round {number + 1} of {rounds}: {name}")
                        variables = {"KUBECONFIG": str(cluster.kubeconfig), "VMAFX_CONTROLLER_HTTP_ADDR": address}
                        results.setdefault(name, []).append(measure(command, environment | variables, port, idle))
                        asyncio.run(health_is_written(cluster.kubeconfig))
                table(size, results)


GOALS = {"ready_s": 0.4, "cpu_s": 0.25, "memory_mib": 0.45}
TITLES = {
    "ready_s": "seconds until ready",
    "cpu_s": "CPU-s until settled",
    "memory_mib": "resident MiB then",
    "peak_mib": "peak MiB",
    "idle_cpu_s": "CPU-s while idle",
}


def table(size: int, results: dict[str, list[Figures]]) -> None:
    names = sorted(results, key=lambda name: (not name.startswith("vmafx"), name))
    print(f"\n{size:,} finished jobs, {NODE_COUNT} nodes; medians of {len(results[names[0]])} rounds\n")
    print(f"| | {' | '.join(names)} | ours to Go | goal |\n|{'---|' * (len(names) + 3)}")
    for field, title in TITLES.items():
        medians = [statistics.median(getattr(one, field) for one in results[name]) for name in names]
        ratio = f"{medians[0] / medians[1]:.2f}" if medians[1] else ""
        shown = " | ".join(f"{median:.2f}" for median in medians)
        print(f"| {title} | {shown} | {ratio} | {GOALS.get(field, '')} |", flush=True)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,50000", help="numbers of finished jobs, rising")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=float, default=30.0, help="seconds to watch it idle")
    parser.add_argument("--serve-healthz", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve_healthz:
        serve_healthz(arguments.serve_healthz)
    else:
        run([int(size) for size in arguments.sizes.split(",")], arguments.rounds, arguments.idle)


if __name__ == "__main__":
    main()
