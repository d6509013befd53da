"""`vmafx` as a process, while the event loop of the test runs other parts."""

import asyncio
import os
import pty
import select
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from tests.support.waiting import eventually

VMAFX = str(Path(sys.executable).with_name("vmafx"))
CLUSTER_COMMANDS = {"submit", "label", "queue", "jobs", "nodes", "top", "train", "models"}


class Vmafx:
    """The command, with a kubeconfig and a namespace."""

    def __init__(self, kubeconfig: Path, namespace: str, home: Path) -> None:
        self._namespace = namespace
        terminal = {"COLUMNS": "200", "LINES": "20", "TERM": "xterm"}
        self.environment = {
            "HOME": str(home), "PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig), **terminal,
        }  # fmt: skip

    async def run(self, command: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to completion."""
        return await asyncio.to_thread(
            subprocess.run, self._line(command, arguments), env=self.environment, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip

    @asynccontextmanager
    async def running(
        self, command: str, *arguments: str, terminal: int | None = None, output: int = asyncio.subprocess.PIPE
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a command until the block is left; its output is a pipe or a terminal."""
        out = asyncio.subprocess.PIPE if terminal is None else terminal
        keys = asyncio.subprocess.DEVNULL if terminal is None else terminal
        process = await asyncio.create_subprocess_exec(
            *self._line(command, arguments), env=self.environment,
            stdin=keys, stdout=output if terminal is None else terminal, stderr=out,
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    def _line(self, command: str, arguments: tuple[str, ...]) -> list[str]:
        local = command not in CLUSTER_COMMANDS or arguments[:1] == ("diff",)
        explicit = local or {"-n", "-A"} & set(arguments)
        namespace = [] if explicit else ["-n", self._namespace]
        return [VMAFX, command, *arguments, *namespace]


class Terminal:
    """A pseudo-terminal for a process: its keyboard, and its output so far."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        self.shown = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        os.close(self._ours)
        os.close(self.theirs)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def forget(self) -> None:
        """Discard the output so far."""
        self.shown = ""

    async def shows(self, text: str, within: float = 60.0) -> None:
        async with asyncio.timeout(within):
            while text not in self.shown:
                await eventually(lambda: select.select([self._ours], [], [], 0)[0], f"more than {self.shown!r}")
                self.shown += os.read(self._ours, 65536).decode(errors="replace")


async def line_with(stream: asyncio.StreamReader | None, text: str, within: float = 60.0) -> str:
    """The next line that contains `text`."""
    assert stream is not None
    seen: list[str] = []
    try:
        async with asyncio.timeout(within):
            while line := (await stream.readline()).decode():
                if text in line:
                    return line
                seen.append(line)
    except TimeoutError:
        pass
    raise AssertionError(f"no line with {text!r}: {seen}")
