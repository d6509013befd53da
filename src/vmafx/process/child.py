"""Child processes: started without a shell, and killed with their process group when the block or the parent ends."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from vmafx.process.tether import tethered

# Children read untrusted files, so they get no credentials, library paths or proxies.
# GCONV_PATH: a statically linked ffmpeg crashes on names in a transport stream if it loads the system's gconv modules.
ENVIRONMENT = {
    "LC_ALL": "C",
    "PATH": os.defpath,
    "AV_LOG_FORCE_NOCOLOR": "1",
    "GCONV_PATH": os.devnull,
    "MALLOC_ARENA_MAX": "2",
}
MAX_OUTPUT = 16 << 20  # bytes of each stream


class SpawnFailed(Exception):
    """A command cannot be started: it does not exist, or the machine cannot run another process."""


@asynccontextmanager
async def child(
    command: Sequence[str],
    fds: Iterable[int] = (),
    *,
    stdin: int = asyncio.subprocess.DEVNULL,
    stdout: int = asyncio.subprocess.DEVNULL,
    tether: bool = True,
    limit: int = 1 << 16,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process for the length of the block; at its end the process and all it started are killed.

    The block has to read its standard error. `limit` is the longest line that it can read. Without `tether`, the
    command itself calls `end_with_parent`, which saves the start of a Python. `environment` is added to ENVIRONMENT.
    Raises SpawnFailed if the process cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *(tethered(list(command)) if tether else command),
            stdin=stdin,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=tuple(fds),
            env={**ENVIRONMENT, **(environment or {})},
            limit=limit,
            start_new_session=True,
        )
    except OSError as error:
        raise SpawnFailed(f"cannot start {command[0]}: {error.strerror}") from error
    try:
        yield process
    finally:
        await kill(process)


async def kill(process: asyncio.subprocess.Process) -> int:
    """Kill a child with its process group; returns its exit code."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # wait() waits for the end of all pipes, which asyncio does not notice in one whose buffer is full. They are closed
    # one by one: closing their transport would take the exit code from the watcher of child processes.
    for fd in range(3):
        pipe = process._transport.get_pipe_transport(fd)  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
        if pipe is not None:
            pipe.close()
    return await asyncio.shield(process.wait())


async def run_command(command: Sequence[str], fds: Iterable[int] = (), within: float = 60.0) -> tuple[int, str, str]:
    """Run a command; returns its exit code, standard output and standard error. TimeoutError after `within` seconds."""
    async with child(command, fds, stdout=asyncio.subprocess.PIPE) as process:
        async with asyncio.timeout(within):
            out, err = await asyncio.gather(_read_all(process.stdout), _read_all(process.stderr))
            return await process.wait(), out, err


async def _read_all(stream: asyncio.StreamReader | None) -> str:
    """Read to the end and keep MAX_OUTPUT; the rest is dropped, so that the child never blocks on a full pipe."""
    kept, size = [], 0
    while stream and (chunk := await stream.read(1 << 16)):
        if size < MAX_OUTPUT:
            kept.append(chunk)
            size += len(chunk)
    return b"".join(kept).decode(errors="replace")


def exit_description(code: int) -> str:
    """An exit code as text, such as "exit code 1" or "signal SIGTERM"."""
    if code >= 0:
        return f"exit code {code}"
    names = {int(number): number.name for number in signal.Signals}
    return f"signal {names.get(-code, -code)}" + (" (out of memory?)" if code == -signal.SIGKILL else "")


def python_command(script: str, *arguments: str) -> list[str]:
    """The command line that runs a script in an isolated Python, which ignores the environment and the user's site."""
    return [sys.executable, "-I", script, *arguments]
