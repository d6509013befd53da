"""Controllers and agents as processes that are killed and come back, as a Deployment or systemd brings them back."""

import asyncio
import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from tests.support.agent_process import VMAFX, AgentProcess, agent, children, read
from tests.support.waiting import eventually
from vmafx.devcluster import DevCluster
from vmafx.devcluster.cluster import free_port
from vmafx.hardware.devices import HostHardware as Hardware
from vmafx.hardware.speed import SpeedMeasurement

RESTART_AFTER = 1.0  # seconds
WORK_ID = re.compile(r'VMAFX_WORK=\{[^\0]*"id":"([^"]+)"')

What = Literal["taken", "scored", "not scored"]


class AgentLogEntry(NamedTuple):
    """What an agent's log tells of an attempt."""

    agent: str
    attempt: str
    what: What
    score: float | None = None


class ControllerProcess:
    """One replica, always on the same ports."""

    def __init__(self, cluster: DevCluster, namespace: str, folder: Path, *flags: str) -> None:
        self.grpc, self.http = free_port(), free_port()
        self._log = folder / f"controller-{self.grpc}.log"
        self._command = [
            VMAFX, "controller", "--namespace", namespace, "--kubeconfig", str(cluster.kubeconfig),
            "--grpc-address", f"127.0.0.1:{self.grpc}", "--http-address", f"127.0.0.1:{self.http}",
            *(flags or ("--auth", "insecure")),
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as out:
            self.process = subprocess.Popen(self._command, stderr=out)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    async def ready(self) -> None:
        await eventually(lambda: asyncio.to_thread(self._ready), f"the controller is ready: {self._log.read_text()}")

    def _ready(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.http}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def resident(self) -> int:
        """Bytes of memory that it has now."""
        assert self.process is not None
        (line,) = [one for one in read(self.process.pid, "status").splitlines() if one.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    def log(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]


@contextmanager
def controllers(
    cluster: DevCluster, namespace: str, folder: Path, *flags: str, replicas: int = 1
) -> Iterator[list[ControllerProcess]]:
    made = [ControllerProcess(cluster, namespace, folder, *flags) for _ in range(replicas)]
    try:
        for one in made:
            one.start()
        yield made
    finally:
        for one in made:
            one.kill()


async def known_speed(folder: Path) -> Path:
    """What an agent on this machine need not measure any more."""
    device = await Hardware().device("cpu")
    file = folder / "speed.json"
    file.write_bytes(msgspec.json.encode(SpeedMeasurement(version("vmafx"), device.text, 100.0)))
    return file


class Machine:
    """A machine with an agent that comes back whenever it ends, unless the machine is gone."""

    def __init__(self, name: str, controller: str, folder: Path, speed: Path, *flags: str) -> None:
        self.name, self._controller, self._speed, self._flags = name, controller, speed, flags
        self._state = folder / name
        self._lives: list[AgentProcess] = []
        self._there = asyncio.Event()
        self._there.set()

    async def run(self) -> None:
        while True:
            flags = ("--name", self.name, *self._flags)
            async with agent(self._controller, self._state, self._speed, *flags) as life:
                self._lives.append(life)
                await life.process.wait()
            await asyncio.sleep(RESTART_AFTER)
            await self._there.wait()

    @property
    def life(self) -> AgentProcess:
        """The agent as it was last."""
        return self._lives[-1]

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, IndexError):  # it ended, or has not begun
            self.life.process.send_signal(number)

    def go(self) -> None:
        """With all that it runs."""
        self.stay_away()
        self.signal(signal.SIGKILL)

    def stay_away(self) -> None:
        """Once its agent has ended."""
        self._there.clear()

    def come_back(self) -> None:
        self._there.set()

    def workers(self) -> dict[int, str]:
        """The processes that work for this agent, and on which attempt each."""
        found = {}
        for pid in children(self.life.process.pid) if self._lives else ():
            if (work := WORK_ID.search(read(pid, "environ"))) is not None:
                found[pid] = work[1]
        return found

    def spooled(self) -> list[Path]:
        return list((self._state / "spool").glob("*"))

    def exits(self) -> list[int]:
        return [life.process.returncode for life in self._lives if life.process.returncode is not None]

    def has_logged(self, text: str) -> bool:
        return any(life.has_logged(text) for life in self._lives)

    async def wait_for_log(self, text: str) -> None:
        await eventually(lambda: self.has_logged(text), f"{self.name} says {text!r}")

    def names(self) -> dict[str, str]:
        """The jobs of attempts that it took."""
        return {one["job"]: one["name"] for life in self._lives for one in life.log if one["msg"] == "taken"}

    def log_entries(self) -> list[AgentLogEntry]:
        words: tuple[What, ...] = ("taken", "scored", "not scored")
        return [
            AgentLogEntry(self.name, one["job"], what, one.get("score"))
            for life in self._lives
            for one in life.log
            for what in words
            if one["msg"] == what
        ]


@asynccontextmanager
async def running(*machines: Machine) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(machine.run()) for machine in machines]
    try:
        yield
    finally:
        for machine in machines:
            machine.signal(signal.SIGCONT)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def end(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
