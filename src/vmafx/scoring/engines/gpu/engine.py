"""TorchEngine: VMAF by the kernels of this package on a GPU, or by plain PyTorch, in device processes.

What the device yields are sums over frames; the scores of the model are computed here.
"""

import asyncio
import os
import tempfile
import time
from array import array
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from io import FileIO
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from vmafx.api.hardware import Backend
from vmafx.scoring.engines.engine import FrameFormat, Group, MeasuredRun, Measurement, Run
from vmafx.scoring.engines.gpu.definitions import LumaFormat
from vmafx.scoring.engines.gpu.features import FRAME_FEATURES, motion2, motion_from_differences
from vmafx.scoring.engines.gpu.messages import (
    RESULT_COLUMNS,
    Answer,
    Ended,
    Finished,
    FramesArrived,
    MeasureTask,
    OutOfMemory,
    ResultsNotWritten,
)
from vmafx.scoring.engines.gpu.process import DeviceProcess
from vmafx.scoring.engines.libvmaf_log import COLUMNS
from vmafx.scoring.errors import BadInput, EngineFailure, NodeFault, ScoringError
from vmafx.scoring.models import VmafModel
from vmafx.scoring.result import MODEL_FEATURES, EngineFacts
from vmafx.scoring.svr_model import SvrModel, parameters_of
from vmafx.tasks import in_thread

KERNELS = 1  # in the identity: incremented with every change of the values
BIT_DEPTHS = {"": 8, "10le": 10, "12le": 12, "16le": 16}  # by the end of a pixel format
FINISH_SECONDS = 10.0  # for a device process to end a task whose results are there
IDLE_SECONDS = 60.0  # before an idle device process ends, and leaves the memory of the device to others

Array = NDArray[np.float64]


class TorchEngine:
    """Scores on one backend. It keeps device processes that are idle: starting one takes seconds."""

    neighbours = 1
    luma_only = True

    def __init__(self, backend: Backend, environ: Mapping[str, str]) -> None:
        self.backend = backend
        self._environ = environ
        self._idle: dict[DeviceProcess, asyncio.TimerHandle] = {}
        self._closing = set[asyncio.Task[None]]()
        self._parameters: tuple[str, SvrModel] | None = None  # of the model that was used last

    async def start(self) -> Self:
        """Finds the device. Raises NodeFault if there is none, or it cannot be used."""
        process = await self._start_process()
        self._first = process.ready
        self._keep(process)
        return self

    async def close(self) -> None:
        """Ends the device processes that are idle."""
        for process in list(self._idle):
            self._drop(process)
        await asyncio.gather(*self._closing)

    async def free_memory(self) -> bool:
        """Ends the device processes that are idle, which keep memory of the device. Returns whether there were any."""
        if not self._idle:
            return False
        await self.close()
        return True

    def identity(self) -> tuple[str | int, ...]:
        return ("torch", KERNELS, self._first.torch, self._first.triton, self._first.device)

    async def lacks(self, measurement: Measurement) -> str | None:
        if measurement.features:
            lacking = f"the engine for the backend {self.backend} does not measure {measurement.features[0]}"
            return f"{lacking}; {self._other_engine}"
        try:
            await self.parameters(measurement.model)
        except BadInput as error:
            return f"{error.why}; {self._other_engine}"
        return None

    @property
    def _other_engine(self) -> str:
        return "use the engine ffmpeg" if self.backend == "cpu" else "use the backend cpu"

    async def score(
        self,
        run: Run,
        measurement: Measurement,
        frames: FrameFormat,
        reference: FileIO,
        distorted: FileIO,
        on_scored: Callable[[int], None],
    ) -> MeasuredRun:
        async with self.group(run, measurement, frames, 1) as group:
            return await group.score(0, reference, distorted, on_scored)

    def group(
        self, run: Run, measurement: Measurement, frames: FrameFormat, clips: int
    ) -> AbstractAsyncContextManager[Group]:
        return _Task(self, run, measurement, frames, clips)

    @asynccontextmanager
    async def device_process(self) -> AsyncIterator[DeviceProcess]:
        """A device process for one task. It is kept afterwards, unless the block raises an error."""
        process = await self._take_idle() or await self._start_process()
        try:
            yield process
        except BaseException:
            await process.close()
            raise
        self._keep(process)

    async def parameters(self, model: VmafModel) -> SvrModel:
        """Raises BadInput if only libvmaf can score with the model."""
        if self._parameters is None or self._parameters[0] != model.identity:
            self._parameters = model.identity, await in_thread(parameters_of, model, self._environ)
        return self._parameters[1]

    async def _take_idle(self) -> DeviceProcess | None:
        """A device process that was kept, if one still runs."""
        while self._idle:
            process, timer = self._idle.popitem()
            timer.cancel()
            if not process.has_ended:
                return process
            await process.close()
        return None

    async def _start_process(self) -> DeviceProcess:
        process = DeviceProcess()
        try:
            await process.start(self.backend, self._environ)
        except BaseException:
            await process.close()
            raise
        return process

    def _keep(self, process: DeviceProcess) -> None:
        self._idle[process] = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._drop, process)

    def _drop(self, process: DeviceProcess) -> None:
        self._idle.pop(process).cancel()
        closing = asyncio.get_running_loop().create_task(process.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


class _Clip(NamedTuple):
    """A distorted clip of a task."""

    distorted: FileIO
    on_scored: Callable[[int], None]
    result: "asyncio.Future[MeasuredRun]"


class _Task:
    """A group of clips that one task of a device process measures; it reads the reference once.

    The task starts when all clips are here or have left.
    """

    references = 1

    def __init__(
        self, engine: TorchEngine, run: Run, measurement: Measurement, frames: FrameFormat, clips: int
    ) -> None:
        self._engine, self._run, self._measurement = engine, run, measurement
        self._luma = LumaFormat(frames.width, frames.height, _bit_depth(frames.pixel_format))
        self._awaited = set(range(clips))
        self._complete = asyncio.Event()
        self._reference: FileIO | None = None
        self._clips: dict[int, _Clip] = {}

    async def __aenter__(self) -> Self:
        self._measuring = asyncio.create_task(self._measure())
        return self

    async def __aexit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:  # all frames have ended: the process will say that it has finished, and can be used again
            await asyncio.wait([self._measuring], timeout=FINISH_SECONDS)
        self._measuring.cancel()
        await asyncio.wait([self._measuring])

    async def score(
        self, clip: int, reference: FileIO, distorted: FileIO, on_scored: Callable[[int], None]
    ) -> MeasuredRun:
        result: asyncio.Future[MeasuredRun] = asyncio.get_running_loop().create_future()
        self._reference, self._clips[clip] = reference, _Clip(distorted, on_scored, result)
        self._decided(clip)
        try:
            ends: tuple[asyncio.Future[Any], ...] = (result, self._measuring)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.leave(clip)
        if not result.done():
            self._measuring.result()  # raises the error that ended it
            raise EngineFailure("the device process did not measure all clips")
        return result.result()

    def leave(self, clip: int) -> None:
        if not self._complete.is_set():
            self._clips.pop(clip, None)
            self._decided(clip)

    def _decided(self, clip: int) -> None:
        self._awaited.discard(clip)
        if not self._awaited:
            self._complete.set()

    async def _measure(self) -> None:
        """Raises ScoringError if no clip can be measured."""
        await self._complete.wait()
        if not self._clips or self._reference is None:
            return
        clips = list(self._clips.values())
        model = await self._engine.parameters(self._measurement.model)
        task = MeasureTask(self._luma, model.gain_limit, len(clips), self._measurement.threads)
        with ExitStack() as inputs:
            files = [inputs.enter_context(file) for file in (self._reference, *(clip.distorted for clip in clips))]
            results = [inputs.enter_context(_results_file()) for _ in clips]
            async with self._engine.device_process() as process:
                process.send(task, [file.fileno() for file in (*files, *results)])
                answer = await process.receive()
                if isinstance(answer, OutOfMemory) and await self._engine.free_memory():
                    process.send(task, [file.fileno() for file in (*files, *results)])
                    answer = await process.receive()
                for file in files:  # so that a decoder notices when the device process ends
                    file.close()
                measured = _Measured(self._run, self._measurement, self._luma, model, self._engine.backend, process)
                while not isinstance(answer, Finished | OutOfMemory | ResultsNotWritten):
                    await self._handle(answer, clips, results, measured)
                    answer = await process.receive()
            if not isinstance(answer, Finished):
                raise NodeFault(self._explain(answer))

    async def _handle(self, answer: Answer, clips: list[_Clip], results: list[BinaryIO], measured: "_Measured") -> None:
        match answer:
            case FramesArrived(number, scored):
                _report(clips[number], scored)
            case Ended(number, scored):
                _report(clips[number], scored)
                try:
                    run = await in_thread(measured.read, results[number], scored)
                except ScoringError as error:
                    _fail(clips[number], error)
                else:
                    if not clips[number].result.done():
                        clips[number].result.set_result(run)

    def _explain(self, refusal: OutOfMemory | ResultsNotWritten) -> str:
        if isinstance(refusal, ResultsNotWritten):
            return f"the results of the device cannot be written to {tempfile.gettempdir()}: {refusal.why}"
        memory = f" ({refusal.free >> 20} of {refusal.total >> 20} MiB are free)" if refusal.total else ""
        size = f"{self._luma.width}x{self._luma.height}"
        return f"the memory of the device is full{memory}: it has no room for single frames of {size}"


class _Measured:
    """Reads what a device process has written for a task: the values of a run, with the scores of the model."""

    def __init__(
        self, run: Run, measurement: Measurement, luma: LumaFormat, model: SvrModel, backend: Backend,
        process: DeviceProcess,
    ) -> None:  # fmt: skip
        self._run, self._subsample, self._luma, self._model = run, measurement.subsample, luma, model
        self._backend, self._ready, self._started = backend, process.ready, time.monotonic()

    def read(self, file: BinaryIO, received: int) -> MeasuredRun:
        """Raises EngineFailure for results that are incomplete or not finite."""
        seconds = time.monotonic() - self._started
        file.seek(0)
        rows = np.frombuffer(file.read(), np.float64).reshape(-1, RESULT_COLUMNS)
        if not received or len(rows) != received:
            raise EngineFailure(f"the device process measured {len(rows)} of {received} frames")
        columns: dict[str, Array] = dict(zip(FRAME_FEATURES, rows.T, strict=False))
        motion = motion_from_differences(rows[:, -1].copy(), self._luma)
        columns |= {"motion": motion, "motion2": motion2(motion)}
        start = self._run.fed(TorchEngine.neighbours, self._subsample).first
        numbers = np.arange(start, start + received)
        wanted = (numbers % self._subsample == 0) & (numbers >= self._run.first)
        if self._run.end is not None:
            wanted &= numbers < self._run.end
        columns = {name: columns[name][wanted] for name in COLUMNS if name in columns}
        columns["vmaf"] = self._model.predict(np.column_stack([columns[name] for name in MODEL_FEATURES]))
        if not all(np.isfinite(column).all() for column in columns.values()):
            raise EngineFailure("the device yielded values that are not numbers")
        facts = EngineFacts(
            backend=self._backend, torch=self._ready.torch, triton=self._ready.triton, device=self._ready.device
        )
        values = {name: array("d", column.tobytes()) for name, column in columns.items()}
        return MeasuredRun(array("q", numbers[wanted].tobytes()), values, received, seconds, facts)


def _report(clip: _Clip, scored: int) -> None:
    if not clip.result.done():
        try:
            clip.on_scored(scored)
        except ScoringError as error:  # a limit; the other clips go on
            _fail(clip, error)


def _fail(clip: _Clip, error: ScoringError) -> None:
    if not clip.result.done():
        clip.result.set_exception(error)


def _results_file() -> BinaryIO:
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise NodeFault(f"no file can be made in {tempfile.gettempdir()}: {os.strerror(error.errno or 0)}") from error


def _bit_depth(pixel_format: str) -> int:
    return BIT_DEPTHS[pixel_format.partition("p")[2]]
