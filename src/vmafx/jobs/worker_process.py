"""One job, one `vmafx worker` process: told by its environment, heard by two files, gone with all it made."""

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

from vmafx.jobs.attempt import SPEC_VARIABLE, AttemptResult, decode_result
from vmafx.logs import log
from vmafx.process.child import exit_description
from vmafx.process.tether import tethered
from vmafx.scoring.result import Progress

STOP_TIMEOUT = 10.0  # seconds between SIGTERM and SIGKILL
TAIL, MAX_LOG_LINE = 4096, 500  # bytes, characters
STOP_EXIT_CODE = {-signal.SIGTERM, 128 + signal.SIGTERM}
COMMAND = (sys.executable, "-P", "-m", "vmafx.worker.main")
# What a worker needs to reach clips, models and devices. All else of the agent's environment is not for it, above all
# what the agent itself identifies with.
PASSED_VARIABLES = {
    "PATH", "HOME", "USER", "TZ", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
}  # fmt: skip
PASSED_PREFIXES = (
    "VMAFX_",
    "AWS_",
    "GOOGLE_",
    "FSSPEC_",
    "LC_",
    "LANG",
    "CUDA_",
    "NVIDIA_",
    "HIP_",
    "ROCR_",
    "ZE_",
    "ONEAPI_",
)
WITHHELD_VARIABLES = ("VMAFX_AGENT_", "VMAFX_CONTROLLER_", "VMAFX_OPERATOR_")


class WorkerInterrupted(Exception):
    """Somebody stopped the worker: a machine that shuts down does so, before or after it stops the agent."""


class WorkerTask(msgspec.Struct, frozen=True):
    """What a worker is to do: one attempt at a job."""

    id: str
    work: str  # a jobs.work.Work, as JSON
    backend: str


class WorkerRunner:
    """Runs workers in folders of their own below one that nobody else uses."""

    def __init__(self, folder: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._folder = folder
        self._environ = {name: value for name, value in environ.items() if _passed_on(name)}
        shutil.rmtree(folder, ignore_errors=True)  # what a killed agent left
        folder.mkdir(mode=0o700, parents=True)

    @asynccontextmanager
    async def start(self, task: WorkerTask) -> "AsyncIterator[WorkerProcess]":
        """A job whose worker has ended, and whose files are gone, when the block is left."""
        try:
            folder = Path(mkdtemp(dir=self._folder))
        except OSError as error:
            yield WorkerProcess(task, self._folder, None, f"no folder can be made in {self._folder}: {error.strerror}")
            return
        try:
            async with _worker(task, folder, self._environ) as (process, trouble):
                yield WorkerProcess(task, folder, process, trouble)
        finally:  # in a thread: clips that were fetched may be large, and heartbeats must not wait
            await _surely(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))


class WorkerProcess:
    """A worker that was begun, or could not be."""

    def __init__(
        self, task: WorkerTask, folder: Path, process: asyncio.subprocess.Process | None, trouble: str
    ) -> None:
        self._task, self._folder, self._process, self._trouble = task, folder, process, trouble

    async def wait(self) -> AttemptResult:
        """Its answer, however it went. Interrupted if the worker was told to stop, and not by us."""
        if self._process is None:
            return AttemptResult(self._task.id, fault="NodeFault", message=self._trouble)
        last = await _heard(self._process.stderr, self._task.id)
        code = await self._process.wait()
        answer = self._answer()
        if answer is None and code in STOP_EXIT_CODE:
            raise WorkerInterrupted(self._task.id)
        if answer is None:
            says = f"; it said: {last}" if last else ""
            why = f"the worker ended by {exit_description(code)}, and left no answer{says}"
            return AttemptResult(self._task.id, fault="NodeFault", message=why)
        return answer

    def progress(self) -> Progress | None:
        """How far it is, by the last it said of that."""
        try:
            with _progress(self._folder).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
                *_, last = [line for line in file.read().split(b"\n")[:-1] if line]
            return msgspec.json.decode(last, type=Progress)
        except (OSError, ValueError):  # nothing yet
            return None

    def _answer(self) -> AttemptResult | None:
        """One without a name is that of a worker that could not read what it was told, and says so."""
        try:
            content = _answer(self._folder).read_text()
        except (OSError, UnicodeDecodeError):
            return None
        answer = decode_result(content, self._task.id) or decode_result(content, "")
        return answer and msgspec.structs.replace(answer, id=self._task.id)


@asynccontextmanager
async def _worker(
    task: WorkerTask, folder: Path, environ: Mapping[str, str]
) -> AsyncIterator[tuple[asyncio.subprocess.Process | None, str]]:
    temporary = folder / "tmp"
    told = {
        SPEC_VARIABLE: task.work,
        "VMAFX_BACKEND": task.backend,
        "VMAFX_ANSWER_FILE": str(_answer(folder)),
        "VMAFX_PROGRESS_FILE": str(_progress(folder)),
        "TMPDIR": str(temporary),
    }
    try:
        temporary.mkdir()
        process = await asyncio.create_subprocess_exec(
            *tethered(list(COMMAND)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**environ, **told},
            cwd=folder,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL in what it is told
        yield None, f"the worker cannot be started: {error}"
        return
    try:
        yield process, ""
    finally:
        await _surely(_end(process))


async def _surely(work: Coroutine[Any, Any, None]) -> None:
    """To its end, however often we are cancelled meanwhile."""
    task, cancelled = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT):
                await process.wait()
    with suppress(ProcessLookupError, PermissionError):  # all gone, and the number another's by now
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _heard(stream: asyncio.StreamReader | None, attempt: str) -> str:
    """Read what a worker logs, so that it never waits for us; the last of it may be all there is to know."""
    rest = last = b""
    while stream is not None and (chunk := await stream.read(TAIL)):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in filter(None, lines):
            last = line
            log.debug("the worker said", job=attempt, line=line.decode(errors="replace"))
        rest = rest[-TAIL:]
    return (rest or last).decode(errors="replace").strip()[-MAX_LOG_LINE:]


def _answer(folder: Path) -> Path:
    return folder / "answer"


def _progress(folder: Path) -> Path:
    return folder / "progress"


def _passed_on(name: str) -> bool:
    return (name in PASSED_VARIABLES or name.startswith(PASSED_PREFIXES)) and not name.startswith(WITHHELD_VARIABLES)
