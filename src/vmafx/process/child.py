"""Children: started without a shell, killed with their whole group, never left behind, whatever happens to us."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress

from vmafx.process.tether import tethered

# Nothing of ours reaches a child that reads hostile files: no credentials, no library paths, no proxies.
# A statically linked ffmpeg crashes on the names in a transport stream if it finds the machine's own character tables.
ENVIRONMENT = {"LC_ALL": "C", "PATH": os.defpath, "AV_LOG_FORCE_NOCOLOR": "1", "GCONV_PATH": os.devnull}
MAX_OUTPUT = 16 << 20


class SpawnFailed(Exception):
    """A command cannot be started: it is not there, or the machine has no room for another process."""


@asynccontextmanager
async def child(
    command: Sequence[str], fds: Iterable[int] = (), *, stdout: int = asyncio.subprocess.DEVNULL
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that has ended, with all it started, when the block is left. Its standard error is to be read.

    StartFailed if it cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *tethered(list(command)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=tuple(fds),
            env=ENVIRONMENT,
            start_new_session=True,
        )
    except OSError as error:
        raise SpawnFailed(f"cannot start {command[0]}: {error.strerror}") from error
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())


async def run_command(command: Sequence[str], fds: Iterable[int] = (), within: float = 60.0) -> tuple[int, str, str]:
    """Run to the end: exit code, standard output, standard error. TimeoutError after `within` seconds."""
    async with child(command, fds, stdout=asyncio.subprocess.PIPE) as process:
        async with asyncio.timeout(within):
            out, err = await asyncio.gather(_all(process.stdout), _all(process.stderr))
            return await process.wait(), out, err


async def _all(stream: asyncio.StreamReader | None) -> str:
    """What a child says, up to a bound; what it says beyond that is read and dropped."""
    kept, size = [], 0
    while stream and (chunk := await stream.read(1 << 16)):
        if size < MAX_OUTPUT:
            kept.append(chunk)
            size += len(chunk)
    return b"".join(kept).decode(errors="replace")


def exit_description(code: int) -> str:
    """An exit code, for people."""
    if code >= 0:
        return f"exit code {code}"
    return f"signal {signal.Signals(-code).name}" + (" (out of memory?)" if code == -signal.SIGKILL else "")


def python(script: str, *arguments: str) -> list[str]:
    """A script of this package, in a Python of its own that takes nothing from the environment."""
    return [sys.executable, "-I", script, *arguments]
