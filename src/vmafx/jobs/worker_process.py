"""A worker as a child process: started with its spec, watched through files, stopped with all its children."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec

from vmafx.api.hardware import BACKEND_VARIABLE, DEVICE_VARIABLES
from vmafx.api.job import JobProgress
from vmafx.jobs.attempt import (
    MAX_RESULT_BYTES,
    SAMPLES_FILE_VARIABLE,
    SPEC_VARIABLE,
    AttemptResult,
    decode_result,
)
from vmafx.logs import log
from vmafx.process.child import exit_description
from vmafx.process.tether import tethered
from vmafx.scoring.result import Progress

STOP_TIMEOUT = 10.0  # seconds between SIGTERM and SIGKILL
READ_SIZE = 4096  # bytes: of the worker's log at a time, and of the end of the progress file
MAX_LOG_LINE = 500  # characters of the last log line in an error message
STOP_EXIT_CODES = {-signal.SIGTERM, 128 + signal.SIGTERM}
COMMAND = (sys.executable, "-I", "-m", "vmafx.worker.main")
# The variables that a worker needs to reach clips, models and devices. It gets no others, above all not the agent's
# credentials.
PASSED_VARIABLES = {
    "PATH", "HOME", "USER", "TZ", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "DOCKER_CONFIG",
    *DEVICE_VARIABLES,
}  # fmt: skip
PASSED_PREFIXES = ("VMAFX_", "AWS_", "GOOGLE_", "FSSPEC_", "LC_", "LANG")
WITHHELD_PREFIXES = ("VMAFX_AGENT_", "VMAFX_CONTROLLER_", "VMAFX_OPERATOR_", "VMAFX_SAMPLES_")


class WorkerInterrupted(Exception):
    """Another process stopped the worker, as a machine does that shuts down."""


class WorkerTask(msgspec.Struct, frozen=True):
    """One attempt to score."""

    id: str
    spec: str  # an AttemptSpec as JSON
    backend: str  # if the job names none; "auto" for the best engine of the machine
    threads: int | None = None  # if neither the job nor VMAFX_THREADS says how many
    samples: bool = False  # whether the worker is to write samples, too


class WorkerRunner:
    """Runs each worker in a folder of its own, inside a folder that only the runner uses."""

    def __init__(self, folder: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._folder = folder
        self._environ = {name: value for name, value in environ.items() if _is_passed(name)}
        shutil.rmtree(folder, ignore_errors=True)  # left by an agent that was killed
        folder.mkdir(mode=0o700, parents=True)

    @asynccontextmanager
    async def start(self, task: WorkerTask) -> "AsyncIterator[WorkerProcess]":
        """Start a worker. At the end of the block the worker is stopped and its folder deleted."""
        try:
            folder = Path(mkdtemp(dir=self._folder))
        except OSError as error:
            message = f"could not create a folder in {self._folder}: {error.strerror}"
            yield WorkerProcess(task, self._folder, None, message)
            return
        try:
            async with _worker(task, folder, self._environ) as (process, error_message):
                yield WorkerProcess(task, folder, process, error_message)
        finally:  # in a thread: fetched clips may be large, and heartbeats must not wait
            await _uncancelled(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))


class WorkerProcess:
    """A worker that was started, or could not be: then `process` is None and `error_message` says why."""

    def __init__(
        self, task: WorkerTask, folder: Path, process: asyncio.subprocess.Process | None, error_message: str
    ) -> None:
        self._task, self._folder, self._process, self._error_message = task, folder, process, error_message

    async def wait(self) -> AttemptResult:
        """Wait for the worker to exit; its result, or a NodeFault. WorkerInterrupted if another process stopped it."""
        if self._process is None:
            return AttemptResult(self._task.id, fault="NodeFault", message=self._error_message)
        last_line = await _read_log(self._process.stderr, self._task.id)
        code = await self._process.wait()
        result = self._result()
        if result is None and code in STOP_EXIT_CODES:
            raise WorkerInterrupted(self._task.id)
        if result is None:
            detail = f"; last log line: {last_line}" if last_line else ""
            message = f"the worker ended with {exit_description(code)} and left no result{detail}"
            return AttemptResult(self._task.id, fault="NodeFault", message=message)
        return result

    def progress(self) -> Progress | None:
        """The last progress that the worker reported; None if there is none yet, or a number is out of range."""
        try:
            with _progress_file(self._folder).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - READ_SIZE))
                *_, last = [line for line in file.read().split(b"\n")[:-1] if line]
            progress = msgspec.json.decode(last, type=Progress)
            reported = {"frames": progress.done, "totalFrames": progress.total or 0, "fps": progress.fps}
            msgspec.convert(reported, JobProgress)
        except (OSError, ValueError, RecursionError):
            return None
        return progress

    def samples(self, max_bytes: int) -> bytes | None:
        """The encoded samples that the worker wrote; None if there are none, or they have more than `max_bytes`."""
        try:
            with _samples_file(self._folder).open("rb") as file:
                content = file.read(max_bytes + 1)
        except OSError:
            return None
        return content if 0 < len(content) <= max_bytes else None

    def _result(self) -> AttemptResult | None:
        """The result that the worker wrote. It has no id if the worker could not decode its spec."""
        try:
            with _result_file(self._folder).open("rb") as file:
                content = file.read(MAX_RESULT_BYTES + 1)
            text = content.decode() if len(content) <= MAX_RESULT_BYTES else ""
        except (OSError, UnicodeDecodeError):
            return None
        result = decode_result(text, self._task.id) or decode_result(text, "")
        return result and msgspec.structs.replace(result, id=self._task.id)


@asynccontextmanager
async def _worker(
    task: WorkerTask, folder: Path, environ: Mapping[str, str]
) -> AsyncIterator[tuple[asyncio.subprocess.Process | None, str]]:
    """A process, or None and why it could not be started."""
    temporary = folder / "tmp"
    variables = {
        SPEC_VARIABLE: task.spec,
        BACKEND_VARIABLE: task.backend,
        "VMAFX_ANSWER_FILE": str(_result_file(folder)),
        "VMAFX_PROGRESS_FILE": str(_progress_file(folder)),
        "TMPDIR": str(temporary),
    }
    if task.samples:
        variables[SAMPLES_FILE_VARIABLE] = str(_samples_file(folder))
    if task.threads and not environ.get("VMAFX_THREADS"):
        variables["VMAFX_THREADS"] = str(task.threads)
    try:
        temporary.mkdir()
        process = await asyncio.create_subprocess_exec(
            *tethered(list(COMMAND)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**environ, **variables},
            cwd=folder,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL in a variable
        yield None, f"could not start the worker: {error}"
        return
    try:
        yield process, ""
    finally:
        await _uncancelled(_stop(process))


async def _uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Complete `work` even if cancelled meanwhile; raise the cancellation afterwards."""
    task, cancelled = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT):
                await process.wait()
    with suppress(ProcessLookupError, PermissionError):  # the group is empty, and its id may be reused
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _read_log(stream: asyncio.StreamReader | None, attempt: str) -> str:
    """Read the worker's log until it ends, so that the worker never blocks on it; return the last line."""
    rest = last = b""
    while stream is not None and (chunk := await stream.read(READ_SIZE)):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in filter(None, lines):
            last = line
            log.debug("worker log", attempt=attempt, line=line.decode(errors="replace"))
        rest = rest[-READ_SIZE:]
    return (rest or last).decode(errors="replace").strip()[-MAX_LOG_LINE:]


def _result_file(folder: Path) -> Path:
    return folder / "result"


def _progress_file(folder: Path) -> Path:
    return folder / "progress"


def _samples_file(folder: Path) -> Path:
    return folder / "samples"


def _is_passed(name: str) -> bool:
    return (name in PASSED_VARIABLES or name.startswith(PASSED_PREFIXES)) and not name.startswith(WITHHELD_PREFIXES)
