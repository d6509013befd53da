"""Engines: finds the engine for a backend on this machine."""

import asyncio
import os
import sys
import time
from collections.abc import Coroutine, Iterator, Mapping
from importlib.util import find_spec
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from vmafx.api.hardware import BACKENDS, HARDWARE, Backend
from vmafx.api.scoring import DEFAULT_MODEL
from vmafx.logs import log
from vmafx.scoring.engines.engine import Engine, FrameFormat, Measurement, Run, no_engine
from vmafx.scoring.engines.ffmpeg import find_ffmpeg, inspect_build
from vmafx.scoring.engines.libvmaf import FILTERS, LibvmafEngine
from vmafx.scoring.errors import BadInput, NodeFault, ScoringError
from vmafx.scoring.models import VmafModel
from vmafx.scoring.result import EngineFacts
from vmafx.settings import InvalidSetting, Setting, Settings, from_environ, one_of

EngineKind = Literal["auto", "ffmpeg", "torch"]
ENGINE_VARIABLE = "VMAFX_ENGINE"
PROBE_MODEL = VmafModel(DEFAULT_MODEL, DEFAULT_MODEL, f"version={DEFAULT_MODEL}")
PROBE_FORMAT = FrameFormat(64, 64, "yuv420p")
PROBE_TIMEOUT = 300.0  # seconds, with the compilation of kernels
PROBE_FRAME = bytes(64 * 64 * 3 // 2)  # fits into a pipe
RETRY_SECONDS = 60.0  # before a device that could not be used is tried again for work that names no backend
NO_TORCH = "torch is not installed: pip install 'vmafx[gpu]'"
INTEL = "0x8086"


class EngineChoice(Settings):
    """Which kind of engine to use."""

    engine: Annotated[EngineKind, Setting(
        "Engine: ffmpeg (libvmaf on the CPU, libvmaf_cuda for the backend cuda), torch (vmafx's own kernels, or plain "
        "PyTorch on a CPU), or auto: ffmpeg for the backend cpu, torch for the others.",
        variable=ENGINE_VARIABLE, default="auto", parse=one_of(*get_args(EngineKind)),
    )] = "auto"  # fmt: skip


class ProbedEngine(msgspec.Struct, frozen=True):
    """The engine for a backend, after it has scored a frame; without one, `problem` says why."""

    backend: Backend
    facts: EngineFacts | None = None
    problem: str = ""


class Engines:
    """The engines of this machine. Each is looked for once, when it is first needed.

    `default` is the backend of work that names none; None stands for the best that the machine has.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ, default: Backend | None = None) -> None:
        """Raises BadInput for an invalid VMAFX_ENGINE."""
        self._environ, self._default = environ, default
        try:
            self._kind = from_environ(EngineChoice, environ).engine
        except InvalidSetting as error:
            raise BadInput("options", str(error)) from error
        self._found: dict[Backend, asyncio.Task[Engine]] = {}
        self._failed: dict[Backend, float] = {}  # when a device could not be used

    def check(self, backend: Backend | None) -> None:
        """Raises NodeFault if there cannot be an engine for a backend, before clips are fetched for it."""
        backend = backend or self._default
        if backend is not None and (missing := self._missing(backend)):
            other = "; or use the backend cpu, or leave it unset" if backend != "cpu" else ""
            raise no_engine(backend, f"{missing}{other}")

    async def choose(self, backend: Backend | None = None, measurement: Measurement | None = None) -> Engine:
        """The engine for a backend; without one, that of the default.

        A backend is never replaced by another. If none is asked for, it is the first that the machine has a device for,
        whose engine can measure what is wanted. Raises NodeFault if the machine has no engine: another machine may have
        one; and BadInput if the engine cannot measure this.
        """
        self.check(backend)
        wanted = backend or self._default
        for candidate in self._present() if wanted is None else ():
            if self._failed_lately(candidate) or not self._may_measure(candidate, measurement):
                continue
            try:
                engine = await self._find(candidate)
                if measurement is None or await engine.lacks(measurement) is None:
                    return engine
            except NodeFault as fault:
                self._failed[candidate] = time.monotonic()
                log.warn("device not used", backend=candidate, error=str(fault))
        engine = await self._find(wanted or "cpu")
        if measurement is not None and (lacking := await engine.lacks(measurement)):
            raise BadInput("options", lacking)
        return engine

    def _failed_lately(self, backend: Backend) -> bool:
        failed = self._failed.get(backend)
        return failed is not None and time.monotonic() < failed + RETRY_SECONDS

    def _may_measure(self, backend: Backend, measurement: Measurement | None) -> bool:
        """Whether to start an engine, which takes seconds: that of vmafx measures no features but those of models."""
        return self._uses_ffmpeg(backend) or measurement is None or not measurement.features

    async def close(self) -> None:
        """Ends the processes that engines keep for further work; they also end with this process."""
        for task in self._found.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                await task.result().close()

    async def probe(self) -> tuple[ProbedEngine, ...]:
        """The engine for each backend, found by scoring a frame."""
        present = {"cpu", *self._present()}
        return tuple([await self._probe(backend, present=backend in present) for backend in BACKENDS])

    async def _probe(self, backend: Backend, *, present: bool) -> ProbedEngine:
        if missing := self._missing(backend):
            return ProbedEngine(backend, problem=missing)
        if not present:
            return ProbedEngine(backend, problem="no device")
        measurement = Measurement(model=PROBE_MODEL)
        try:
            engine = await self.choose(backend)
            frames = _probe_frame(engine), _probe_frame(engine)
            async with asyncio.timeout(PROBE_TIMEOUT):
                run = await engine.score(Run(), measurement, PROBE_FORMAT, *frames, lambda _scored: None)
        except ScoringError as error:
            return ProbedEngine(backend, problem=str(error))
        except TimeoutError:
            return ProbedEngine(backend, problem=f"no score of one frame within {PROBE_TIMEOUT:.0f} s")
        return ProbedEngine(backend, run.facts)

    def _uses_ffmpeg(self, backend: Backend) -> bool:
        return self._kind == "ffmpeg" or (self._kind == "auto" and backend == "cpu")

    def _missing(self, backend: Backend) -> str:
        """What this installation lacks for a backend, whatever the machine has."""
        if self._uses_ffmpeg(backend):
            return "" if backend in FILTERS else f"ffmpeg has no filter for it ({ENGINE_VARIABLE} is ffmpeg)"
        return "" if find_spec("torch") else NO_TORCH

    def _present(self) -> Iterator[Backend]:
        """The backends of GPUs in this machine for which an engine is installed, the preferred one first."""
        for backend in (hardware.backend for hardware in HARDWARE.values()):
            if backend != "cpu" and not self._missing(backend) and _has_device(backend):
                yield backend

    async def _find(self, backend: Backend) -> Engine:
        task = self._found.get(backend)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._found[backend] = asyncio.create_task(self._make(backend))
        return await asyncio.shield(task)

    def _make(self, backend: Backend) -> Coroutine[Any, Any, Engine]:
        if self._uses_ffmpeg(backend):
            return self._find_libvmaf(backend)
        from vmafx.scoring.engines.gpu.engine import TorchEngine  # noqa: PLC0415 - imports numpy

        return TorchEngine(backend, self._environ).start()

    async def _find_libvmaf(self, backend: Backend) -> Engine:
        ffmpeg = await find_ffmpeg(self._environ)
        name = FILTERS[backend].name
        if backend != "cpu" and name not in (await inspect_build(ffmpeg)).filters:
            raise no_engine(backend, f"{ffmpeg.path} has no filter {name} ({ENGINE_VARIABLE} is ffmpeg)")
        return LibvmafEngine(ffmpeg, backend, self._environ)


def _has_device(backend: Backend, root: Path = Path("/")) -> bool:
    """Whether the kernel shows a device, without asking its driver, which takes seconds."""
    match backend:
        case "cuda":
            return any(root.glob("dev/nvidia[0-9]*"))
        case "hip":
            return (root / "dev/kfd").exists()
        case "sycl":
            vendors = root.glob("sys/class/drm/renderD*/device/vendor")
            return any(file.read_text().strip() == INTEL for file in vendors)
        case "metal":
            return sys.platform == "darwin"
        case "cpu":
            return True


def _probe_frame(engine: Engine) -> FileIO:
    """A pipe with one frame."""
    reading, writing = os.pipe()
    with FileIO(writing, "w") as file:
        file.write(PROBE_FRAME[: 64 * 64] if engine.luma_only else PROBE_FRAME)
    return FileIO(reading)
