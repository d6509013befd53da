"""A component as a process: started with a log file, watched and stopped by its pid."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from vmafx.devcluster.errors import ComponentFailed, PortInUse
from vmafx.process import tether

STOP_TIMEOUT = 10.0  # seconds between SIGTERM and SIGKILL


class ComponentProcess(msgspec.Struct, frozen=True):
    """A started process, identified by pid and start time, since pids are reused."""

    name: str
    pid: int
    started: str  # the start time that the kernel has for the pid; empty without /proc

    @classmethod
    def running(cls, name: str, pid: int) -> Self:
        """The process that has this pid now."""
        return cls(name, pid, _inspect(pid)[1])

    def alive(self) -> bool:
        state, started = _inspect(self.pid)
        return state not in {"", "Z", "X"} and started == self.started

    def stop(self, within: float = STOP_TIMEOUT) -> None:
        """Send SIGTERM, and SIGKILL if that is not enough; wait until the process has ended."""
        for number, seconds in ((signal.SIGTERM, within), (signal.SIGKILL, 5.0)):
            if self.alive():
                with suppress(ProcessLookupError):
                    os.kill(self.pid, number)
            deadline = time.monotonic() + seconds
            while self.alive() and time.monotonic() < deadline:
                time.sleep(0.02)
        self._reap(5.0)

    def _reap(self, within: float) -> None:
        """Wait for the last thread: the main thread may end first, and the ports are free only after all have ended."""
        deadline = time.monotonic() + within
        while self._has_threads() and time.monotonic() < deadline:
            time.sleep(0.01)

    def _has_threads(self) -> bool:
        try:
            return os.waitpid(self.pid, os.WNOHANG) == (0, 0)
        except ChildProcessError:  # started by another process, which has ended: init reaps it
            return _inspect(self.pid)[1] == self.started and _thread_count(self.pid) > 1


def start_component(
    name: str, command: list[str], folder: Path, *, tethered: bool, variables: Mapping[str, str] = {}
) -> ComponentProcess:
    """Start a component in `folder`, with its output in logs/NAME.log. If tethered, it ends with this process."""
    if tethered:
        command = tether.tethered(command)
    with (folder / "logs" / f"{name}.log").open("wb") as log:
        child = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, **variables},
        )  # fmt: skip
    child.returncode = 0  # ComponentProcess reaps the pid, not this object
    return ComponentProcess.running(name, child.pid)


def check_running(process: ComponentProcess, folder: Path) -> None:
    """Raise ComponentFailed if the process has ended, with the reason from its log."""
    if process.alive():
        return
    log = folder / "logs" / f"{process.name}.log"
    error = last_error(log)
    if "address already in use" in error:
        raise PortInUse(f"{process.name}: {error}")
    if "no space left on device" in error:
        raise ComponentFailed(f"{process.name} ended: the disk is full ({folder}); free some space")
    raise ComponentFailed(f"{process.name} ended: {error}")


def last_error(log: Path) -> str:
    """The last error in a log of etcd or Kubernetes; without one, the last line."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    errors = [line for line in lines if line.startswith(("E", "F")) or '"level":"fatal"' in line]
    last = (errors or lines or ["its log is empty"])[-1]
    if found := re.search(r'\berr(?:or)?"?[=:]"((?:[^"\\]|\\.)+)"', last):
        last = found[1].replace('\\"', '"')
    return " ".join(last.split())[:500]


def _thread_count(pid: int) -> int:
    """The threads of a process; a zombie has one."""
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir()))
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _inspect(pid: int) -> tuple[str, str]:
    """State and start time of a process; ("", "") if there is none, ("?", "") if it exists and there is no /proc."""
    if Path("/proc/self/stat").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return "", ""
        return fields[0], fields[19]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "", ""
    return "?", ""
