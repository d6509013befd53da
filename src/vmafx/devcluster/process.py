"""One component as a process: started into its log, watched until ready, ended by its pid."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from vmafx.devcluster.errors import ComponentFailed, PortInUse
from vmafx.process import tether

STOP_TIMEOUT = 10.0


class ComponentProcess(msgspec.Struct, frozen=True):
    """A process that was started, recognisable even if its pid is given to another."""

    name: str
    pid: int
    started: str  # the kernel's start time of the pid; empty where there is no /proc

    def alive(self) -> bool:
        state, started = _look(self.pid)
        return state not in {"", "Z", "X"} and started == self.started

    def stop(self, within: float = STOP_TIMEOUT) -> None:
        """Ask it to end, then make it."""
        for sign, patience in ((signal.SIGTERM, within), (signal.SIGKILL, 5.0)):
            if self.alive():
                with suppress(ProcessLookupError):
                    os.kill(self.pid, sign)
            deadline = time.monotonic() + patience
            while self.alive() and time.monotonic() < deadline:
                time.sleep(0.02)
        self._reap(5.0)

    def _reap(self, within: float) -> None:
        """Take note of the end. Its first thread may be the first to go: only with the last are its ports free."""
        deadline = time.monotonic() + within
        while self._goes_on() and time.monotonic() < deadline:
            time.sleep(0.01)

    def _goes_on(self) -> bool:
        try:
            return os.waitpid(self.pid, os.WNOHANG) == (0, 0)
        except ChildProcessError:  # not our child: whoever started it is gone, and init reaps it
            return _look(self.pid)[1] == self.started and _threads(self.pid) > 1


def start_component(
    name: str, command: list[str], folder: Path, *, tethered: bool, variables: Mapping[str, str] = {}
) -> ComponentProcess:
    """Start a component in `folder`, its output in logs/NAME.log. A tethered one ends with this process."""
    if tethered:
        command = tether.tethered(command)
    with (folder / "logs" / f"{name}.log").open("wb") as log:
        child = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, **variables},
        )  # fmt: skip
    child.returncode = 0  # its pid is ours to watch from here on, not this object's
    return ComponentProcess(name, child.pid, _look(child.pid)[1])


def check_running(process: ComponentProcess, folder: Path) -> None:
    """Raise if the process has ended, with the reason that its log gives."""
    if process.alive():
        return
    log = folder / "logs" / f"{process.name}.log"
    said = last_error(log)
    if "address already in use" in said:
        raise PortInUse(f"{process.name}: {said}")
    if "no space left on device" in said:
        raise ComponentFailed(f"{process.name} ended: the disk is full ({folder}); free some space")
    raise ComponentFailed(f"{process.name} ended: {said}")


def last_error(log: Path) -> str:
    """The last line that says what is wrong, in a log of etcd or of Kubernetes."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    telling = [line for line in lines if line.startswith(("E", "F")) or '"level":"fatal"' in line]
    said = (telling or lines or ["it said nothing"])[-1]
    if found := re.search(r'\berr(?:or)?"?[=:]"((?:[^"\\]|\\.)+)"', said):
        said = found[1].replace('\\"', '"')
    return " ".join(said.split())[:500]


def _threads(pid: int) -> int:
    """Those it still has; also a process that has ended and is not reaped has one."""
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir()))
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _look(pid: int) -> tuple[str, str]:
    """State and start time of a process: ("", "") if there is none, ("?", "") if all we can tell is that there is."""
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
