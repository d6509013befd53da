"""Engines: finds the engine for a backend on this machine."""

import asyncio
import os
from collections.abc import Mapping
from io import FileIO

import msgspec

from vmafx.api.hardware import BACKENDS, Backend
from vmafx.api.scoring import DEFAULT_MODEL
from vmafx.scoring.engines.engine import Engine, FrameFormat, Measurement, Run
from vmafx.scoring.engines.ffmpeg import find_ffmpeg
from vmafx.scoring.engines.libvmaf import LibvmafEngine
from vmafx.scoring.errors import NodeFault, ScoringError
from vmafx.scoring.models import VmafModel
from vmafx.scoring.result import EngineFacts

SCORED_BACKENDS: tuple[Backend, ...] = ("cpu",)  # those that this version has an engine for
PROBE_MODEL = VmafModel(DEFAULT_MODEL, DEFAULT_MODEL, f"version={DEFAULT_MODEL}")
PROBE_FORMAT = FrameFormat(64, 64, "yuv420p")
PROBE_TIMEOUT = 60.0  # seconds
PROBE_FRAME = bytes(64 * 64 * 3 // 2)  # fits into a pipe


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
        self._environ, self._default = environ, default
        self._found: asyncio.Task[Engine] | None = None

    def check(self, backend: Backend | None) -> None:
        """Raises NodeFault if this version has no engine for a backend, before clips are fetched for it."""
        backend = backend or self._default
        if backend not in {None, *SCORED_BACKENDS}:
            raise NodeFault(
                f"this machine has no engine for the backend {backend}; this version of vmafx scores on"
                f" {' and '.join(SCORED_BACKENDS)} only: use {SCORED_BACKENDS[0]}, or leave the backend unset"
            )

    async def choose(self, backend: Backend | None = None) -> Engine:
        """The engine for a backend; without one, that of the default.

        Raises NodeFault if the machine has none: another machine may. A backend is never replaced by another.
        """
        self.check(backend)
        if self._found is None or self._found.cancelled():
            self._found = asyncio.ensure_future(self._find_libvmaf())
        return await asyncio.shield(self._found)

    async def probe(self) -> tuple[ProbedEngine, ...]:
        """The engine for each backend, found by scoring a frame."""
        return tuple([await self._probe(backend) for backend in BACKENDS])

    async def _probe(self, backend: Backend) -> ProbedEngine:
        if backend not in SCORED_BACKENDS:
            return ProbedEngine(backend, problem="no engine in this version")
        measurement = Measurement(model=PROBE_MODEL)
        try:
            engine = await self.choose(backend)
            frames = _probe_frame(), _probe_frame()
            async with asyncio.timeout(PROBE_TIMEOUT):
                run = await engine.score(Run(), measurement, PROBE_FORMAT, *frames, lambda _scored: None)
        except ScoringError as error:
            return ProbedEngine(backend, problem=str(error))
        except TimeoutError:
            return ProbedEngine(backend, problem=f"no score of one frame within {PROBE_TIMEOUT:.0f} s")
        return ProbedEngine(backend, run.facts)

    async def _find_libvmaf(self) -> Engine:
        return LibvmafEngine(await find_ffmpeg(self._environ))


def _probe_frame() -> FileIO:
    """A pipe with one frame."""
    reading, writing = os.pipe()
    with FileIO(writing, "w") as file:
        file.write(PROBE_FRAME)
    return FileIO(reading)
