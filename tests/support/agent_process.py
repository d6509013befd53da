"""`vmafx agent` as a process, and its log."""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE, eventually

VMAFX = str(Path(sys.executable).with_name("vmafx"))


class AgentProcess:
    """An agent process, running or ended."""

    def __init__(self, process: asyncio.subprocess.Process, state: Path) -> None:
        self.process, self.state = process, state
        self.log: list[dict[str, Any]] = []
        self._reader = asyncio.create_task(self._read_log())

    async def _read_log(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            try:
                self.log.append(json.loads(line))
            except ValueError:
                self.log.append({"msg": line.decode(errors="replace").rstrip()})

    def has_logged(self, text: str) -> bool:
        return any(text in one["msg"] for one in self.log)

    async def wait_for_log(self, text: str) -> None:
        try:
            await eventually(lambda: self.has_logged(text), text)
        except AssertionError:
            raise AssertionError(f"the agent did not log {text!r}: {self.log}") from None

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE):
            code = await self.process.wait()
            await self._reader
        return code

    async def killed(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.ended()

    def workers(self) -> list[str]:
        """The environments of its workers."""
        return [read(pid, "environ") for pid in children(self.process.pid) if "worker" in read(pid, "cmdline")]


@asynccontextmanager
async def agent(
    controller: str, state: Path, speed: Path, *flags: str, tls: bool = False, variables: Mapping[str, str] = {}
) -> AsyncIterator[AgentProcess]:
    """Run an agent; kill it at the end. `speed` is a speed.json, so that the agent does not measure this machine."""
    state.mkdir(exist_ok=True)
    shutil.copy(speed, state / "speed.json")
    command = [VMAFX, "agent", "--controller", controller, "--state-dir", str(state), "--backend", "cpu"]
    command += [*([] if tls else ["--insecure"]), *(() if "--name" in flags else ("--name", "machine")), *flags]
    environment = {"PATH": os.environ["PATH"], "HOME": str(state), **variables}
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    running = AgentProcess(process, state)
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await running.ended()


def children(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(status.parent.name))
    return found


def read(pid: int, file: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace")
    return ""
