"""The roles of a demo as child processes, which end with this one, even if it is killed."""

import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from vmafx.demo.progress import DemoError
from vmafx.devcluster import process

READY_TIMEOUT = 90.0


class RoleProcesses:
    """Starts roles by their command lines; `folder` is where they run, with their logs in `folder`/logs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[process.ComponentProcess] = []
        (folder / "logs").mkdir()

    def start(self, role: str, *flags: str, **variables: str) -> None:
        command = [sys.executable, "-c", "from vmafx.cli.main import main; main()", role, *flags]
        self._started.append(process.start_component(role, command, self._folder, tethered=True, variables=variables))

    def stop(self) -> None:
        """Stop all of them, in reverse order of their start."""
        for role in reversed(self._started):
            role.stop()

    def check(self) -> None:
        """Raise DemoError if a role has exited."""
        for role in self._started:
            if not role.alive():
                raise DemoError(f"`vmafx {role.name}` exited; its last log line: {self._last_log(role.name)}")

    def wait_until(self, ready: Callable[[], bool], failure: str, role: str) -> None:
        deadline = time.monotonic() + READY_TIMEOUT
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise DemoError(f"{failure} within {READY_TIMEOUT:.0f} s; its last log line: {self._last_log(role)}")
            time.sleep(0.05)

    def _last_log(self, role: str) -> str:
        """Message and error of the last line in a role's log."""
        line = process.last_error(self._folder / "logs" / f"{role}.log")
        try:
            entry = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            return line
        return ": ".join(str(entry[name]) for name in ("msg", "error") if name in entry)


def answers(url: str) -> bool:
    """Whether a role of the demo answers with status 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - on loopback
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
