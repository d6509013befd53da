"""Controllers and agents as processes that are restarted when they are killed, as by a Deployment or systemd."""

import asyncio
import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
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
    """A line about an attempt in the log of an agent."""

    agent: str
    attempt: str
    what: What
    score: float | None = None


class ControllerProcess:
    """A controller replica with fixed ports."""

    def __init__(
        self, cluster: DevCluster, namespace: str, folder: Path, *flags: str, variables: Mapping[str, str] = {}
    ) -> None:
        self.grpc, self.http = free_port(), free_port()
        self._environment = {**os.environ, **variables}
        self._log = folder / f"controller-{self.grpc}.log"
        self._command = [
            VMAFX, "controller", "--namespace", namespace, "--kubeconfig", str(cluster.kubeconfig),
            "--grpc-address", f"127.0.0.1:{self.grpc}", "--http-address", f"127.0.0.1:{self.http}",
            *(flags or ("--auth", "insecure")),
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as out:
            self.process = subprocess.Popen(self._command, env=self._environment, stderr=out)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    async def ready(self) -> None:
        await eventually(lambda: asyncio.to_thread(self._ready), f"the controller is ready: {self._log.read_text()}")

    def _ready(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.http}/readyz", timeout=5) as response:
            return bool(response.status == 200)
        return False

    def resident(self) -> int:
        """Resident memory in bytes."""
        assert self.process is not None
        (line,) = [one for one in read(self.process.pid, "status").splitlines() if one.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    def log(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]


@contextmanager
def controllers(
    cluster: DevCluster,
    namespace: str,
    folder: Path,
    *flags: str,
    replicas: int = 1,
    variables: Mapping[str, str] = {},
) -> Iterator[list[ControllerProcess]]:
    made = [ControllerProcess(cluster, namespace, folder, *flags, variables=variables) for _ in range(replicas)]
    try:
        for one in made:
            one.start()
        yield made
    finally:
        for one in made:
            one.kill()


async def known_speed(folder: Path) -> Path:
    """A speed.json, so that an agent does not measure this machine."""
    device = await Hardware().device("cpu")
    file = folder / "speed.json"
    file.write_bytes(msgspec.json.encode(SpeedMeasurement(version("vmafx"), device.text, 100.0)))
    return file


class Machine:
    """A machine whose agent is restarted when it exits, unless the machine is down."""

    def __init__(self, name: str, controller: str, folder: Path, speed: Path, *flags: str) -> None:
        self.name, self._controller, self._speed, self._flags = name, controller, speed, flags
        self._state = folder / name
        self._lives: list[AgentProcess] = []
        self.halted: dict[int, str] = {}
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
    def lives(self) -> list[AgentProcess]:
        """All agent processes, the latest last."""
        return self._lives

    @property
    def life(self) -> AgentProcess:
        """The latest agent process."""
        return self._lives[-1]

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, IndexError):  # it has exited or not yet started
            self.life.process.send_signal(number)

    def go(self) -> None:
        """Kill the agent and its workers, and do not restart it."""
        self.stay_away()
        self.signal(signal.SIGKILL)

    def stay_away(self) -> None:
        """Do not restart the agent when it exits."""
        self._there.clear()

    def come_back(self) -> None:
        self._there.set()

    def workers(self) -> dict[int, str]:
        """The workers of the agent by pid, with their attempts."""
        found = children(self.life.process.pid) if self._lives else ()
        return {pid: attempt for pid in found if (attempt := worked_attempt(pid))}

    def halt(self, worker: int) -> None:
        """Stop (SIGSTOP) a worker with its children, until it is continued or the machine ends."""
        self.halted[worker] = worked_attempt(worker)
        os.killpg(worker, signal.SIGSTOP)

    def end_halted(self) -> None:
        """Kill the workers that were stopped: one that was stopped before its tether was set outlives its agent."""
        for pid, attempt in self.halted.items():
            if worked_attempt(pid) == attempt:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)

    def spooled(self) -> list[Path]:
        return list((self._state / "spool").glob("*"))

    def stored_samples(self) -> int:
        """Bytes of samples that are not delivered yet."""
        return sum(path.stat().st_size for path in (self._state / "samples").glob("*.segment"))

    def exits(self) -> list[int]:
        return [life.process.returncode for life in self._lives if life.process.returncode is not None]

    def has_logged(self, text: str) -> bool:
        return any(life.has_logged(text) for life in self._lives)

    async def wait_for_log(self, text: str) -> None:
        await eventually(lambda: self.has_logged(text), f"{self.name} logs {text!r}")

    def names(self) -> dict[str, str]:
        """Names of the jobs of all attempts that it started."""
        return {one["attempt"]: one["job"] for life in self._lives for one in life.log if one["msg"] == "taken"}

    def log_entries(self) -> list[AgentLogEntry]:
        words: tuple[What, ...] = ("taken", "scored", "not scored")
        return [
            AgentLogEntry(self.name, one["attempt"], what, one.get("score"))
            for life in self._lives
            for one in life.log
            for what in words
            if one["msg"] == what
        ]


def worked_attempt(pid: int) -> str:
    """The attempt of a worker; empty for a process that is none, or has ended."""
    work = WORK_ID.search(read(pid, "environ"))
    return work[1] if work else ""


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
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for machine in machines:
                machine.end_halted()


def end(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
