"""`vmafx-operator` as a process, and a stand-in for the health endpoint of the controller."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from aiohttp import web

from vmafx.devcluster import DevCluster
from vmafx.devcluster.cluster import free_port

OPERATOR = str(Path(sys.executable).with_name("vmafx-operator"))
LEASE = "vmafx-operator.vmafx.dev"


class Operator:
    """An operator process with its probes, metrics and log."""

    def __init__(self, process: "subprocess.Popen[str]", probes: int, metrics: int, log: Path) -> None:
        self.process, self._probes, self._metrics, self._log = process, probes, metrics, log

    def probe(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._probes}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (urllib.error.URLError, OSError):
            return 0, ""

    def metric(self, name: str) -> float | None:
        """The value of a sample, named with its labels; None if it does not exist."""
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=5) as answer,
        ):
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return float(line.rpartition(" ")[2])
        return None

    def ready(self) -> bool:
        return self.probe("/readyz")[0] == 200

    def leads(self) -> bool:
        return self.ready() and self.metric(f'leader_election_master_status{{name="{LEASE}"}}') == 1

    def log(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]


@contextmanager
def operator(cluster: DevCluster, namespace: str, folder: Path, *flags: str, **variables: str) -> Iterator[Operator]:
    probes, metrics = free_port(), free_port()
    log = folder / f"operator-{probes}.log"
    command = [
        OPERATOR, "--namespace", namespace, "--health-probe-bind-address", f"127.0.0.1:{probes}",
        "--metrics-bind-address", f"127.0.0.1:{metrics}", *flags,
    ]  # fmt: skip
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), **variables}
    with log.open("w") as out, subprocess.Popen(command, env=environment, stderr=out, text=True) as process:
        try:
            yield Operator(process, probes, metrics, log)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                try:
                    process.wait(30)
                finally:
                    process.kill()


class Controller:
    """Answers /healthz while `answering` is set."""

    def __init__(self) -> None:
        self.status = 200
        self.asked = 0
        self.answering = asyncio.Event()
        self.answering.set()

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/healthz", self._answer)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.address = f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    async def _answer(self, _request: web.Request) -> web.Response:
        self.asked += 1
        await self.answering.wait()
        return web.Response(status=self.status)
