"""Processes of a cluster: namespaces and what runs in them, with a log each, all ending with this process."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.e2e.cluster import isolate
from tests.e2e.cluster.errors import E2EError, StartFailed
from vmafx.devcluster.errors import ComponentFailed
from vmafx.devcluster.process import ComponentProcess, check_running, last_error, start_component

READY_TIMEOUT, END_TIMEOUT = 120.0, 30.0  # seconds
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # also where root's has no sbin
_SCRIPT = [sys.executable, "-I", "-S", isolate.__file__]


class Namespaces:
    """Network, mount and host name namespaces of a machine, held by a process."""

    holder: ComponentProcess

    def __init__(self, name: str, folder: Path, inside: "Namespaces | None" = None) -> None:
        """With `inside`, its processes are in the pid namespace of another machine, and end with that."""
        self.name, self.folder = name, folder
        action = ["hold"] if inside is None else ["hold-inside", str(inside.holder.pid)]
        self.holder = start_component(f"{name}-namespaces", [*_SCRIPT, *action], folder, tethered=True)
        log = folder / "logs" / f"{self.holder.name}.log"
        self._wait_or_stop(self.holder, lambda: log.read_text().startswith("ready"), "the namespaces exist")
        self._first = ComponentProcess.running("first process", int(log.read_text().split()[1])) if not inside else None

    def wait_until_gone(self) -> None:
        """Wait until all processes of the pid namespace have ended: its first process does so after the others."""
        assert self._first is not None
        deadline = time.monotonic() + END_TIMEOUT
        while self._first.alive():
            if time.monotonic() > deadline:
                raise E2EError(f"process {self._first.pid} does not end")
            time.sleep(0.01)

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a command here; it ends when its parent is killed."""
        return [*_SCRIPT, "enter", str(self.holder.pid), *command]

    def run(self, command: Sequence[str], timeout: float = 60.0) -> None:
        """Run a step of the set-up."""
        done = subprocess.run(
            self.command(command), cwd=self.folder, capture_output=True, text=True, timeout=timeout, check=False
        )
        if done.returncode != 0:
            raise StartFailed(f"{self.name}: {' '.join((done.stdout + done.stderr).split())}")

    def start(self, name: str, command: Sequence[str], variables: Mapping[str, str] | None = None) -> ComponentProcess:
        """Start a process, with its output in logs/NAME.log."""
        environment = {"PATH": SYSTEM_PATH, **(variables or {})}
        return start_component(name, self.command(command), self.folder, tethered=True, variables=environment)

    def relay(self, host: str, port: int) -> tuple[ComponentProcess, int]:
        """A port of this machine that leads to HOST:PORT as seen from here."""
        name = f"relay-{host}-{port}-{time.monotonic_ns()}"
        command = [*_SCRIPT, "relay", str(self.holder.pid), host, str(port)]
        process = start_component(name, command, self.folder, tethered=True)
        log = self.folder / "logs" / f"{name}.log"
        self._wait_or_stop(process, lambda: log.read_text().startswith("listening"), "the relay listens")
        return process, int(log.read_text().split()[1])

    def _wait_or_stop(self, process: ComponentProcess, holds: Callable[[], bool], what: str) -> None:
        """Wait for a process that no one else knows yet; it is stopped if that fails."""
        try:
            wait_for(holds, what, [process], self.folder)
        except BaseException:
            process.stop()
            raise


def wait_for(
    holds: Callable[[], bool],
    what: str,
    processes: Sequence[ComponentProcess],
    folder: Path,
    within: float = READY_TIMEOUT,
) -> None:
    """Wait for a condition; raises StartFailed after a time, or when one of the processes has ended."""
    deadline = time.monotonic() + within
    while not holds():
        try:
            for process in processes:
                check_running(process, folder)
        except ComponentFailed as error:
            raise StartFailed(str(error)) from error
        if time.monotonic() > deadline:
            errors = "; ".join(f"{one.name}: {last_error(folder / 'logs' / f'{one.name}.log')}" for one in processes)
            raise StartFailed(f"not within {within:.0f} s: {what}. Last errors: {errors}")
        time.sleep(0.05)
