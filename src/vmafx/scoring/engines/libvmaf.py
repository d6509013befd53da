"""LibvmafEngine: libvmaf on the CPU, in an ffmpeg that is fed raw frames. It never sees a clip."""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from io import FileIO
from typing import BinaryIO, NamedTuple

from vmafx.api.hardware import DEVICE_VARIABLES, Backend
from vmafx.process.child import child, exit_description
from vmafx.scoring.engines.engine import FrameFormat, Group, MeasuredRun, Measurement, Run, SeparateClips
from vmafx.scoring.engines.ffmpeg import Ffmpeg, inspect_build, missing_parts
from vmafx.scoring.engines.libvmaf_log import FEATURES, is_complete, libvmaf_features, read_log
from vmafx.scoring.engines.raw_frames import (
    LOG_FLAGS,
    MAX_LINES,
    count_frames,
    counter_pipe,
    frame_counter,
    raw_input,
    read_lines,
)
from vmafx.scoring.errors import BadInput, EngineFailure, NodeFault, ScoringError, spawn_errors_as_node_fault
from vmafx.scoring.models import can_load_model
from vmafx.scoring.result import EngineFacts
from vmafx.tasks import in_thread


class Filter(NamedTuple):
    """A filter of ffmpeg that measures VMAF on a backend. Frames are uploaded to its device first, if it has one."""

    name: str
    device: str = ""  # its type


FILTERS: dict[Backend, Filter] = {"cpu": Filter("libvmaf"), "cuda": Filter("libvmaf_cuda", "cuda")}
MIN_FREE_SPACE = 64 << 20  # bytes; below this, the disk counts as full
PASSED_ON = ("LD_LIBRARY_PATH", *DEVICE_VARIABLES)  # to an ffmpeg that scores on a device


class LibvmafEngine:
    """Scores with one ffmpeg. A process per run: it scores and counts."""

    neighbours = 1  # motion2 is the lower of the differences to the frame before and to the one after
    luma_only = False

    def __init__(self, ffmpeg: Ffmpeg, backend: Backend, environ: Mapping[str, str]) -> None:
        self._ffmpeg, self.backend = ffmpeg, backend
        passed_on = PASSED_ON if FILTERS[backend].device else ()
        self._environment = {name: environ[name] for name in passed_on if name in environ}

    def identity(self) -> tuple[str | int, ...]:
        return (FILTERS[self.backend].name, self._ffmpeg.version, *self._ffmpeg.identity())

    async def lacks(self, measurement: Measurement) -> str | None:
        unknown = [name for name in measurement.features if name not in FEATURES]
        return f"libvmaf does not measure {unknown[0]}" if unknown else None

    async def score(
        self,
        run: Run,
        measurement: Measurement,
        frames: FrameFormat,
        reference: FileIO,
        distorted: FileIO,
        on_scored: Callable[[int], None],
    ) -> MeasuredRun:
        started, lines = time.monotonic(), deque[str](maxlen=MAX_LINES)
        async with AsyncExitStack() as stack:
            with spawn_errors_as_node_fault():
                log = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
                reader, counter = await stack.enter_async_context(counter_pipe())
            command = self._command(measurement, frames, reference.fileno(), distorted.fileno(), log.fileno(), counter)
            fds = [reference.fileno(), distorted.fileno(), log.fileno(), counter]
            fds += [] if measurement.model.fd is None else [measurement.model.fd]
            try:
                with spawn_errors_as_node_fault():
                    process = await stack.enter_async_context(child(command, fds, environment=self._environment))
            finally:  # so that the decoders notice when ffmpeg ends, and ffmpeg when they do
                os.close(counter)
                reference.close()
                distorted.close()
            reading = asyncio.create_task(read_lines(process.stderr, lines))
            try:
                received = await count_frames(reader, on_scored)
                code = await process.wait()
                await reading
            finally:
                reading.cancel()
            if code:
                raise await self._diagnose(code, measurement, lines)
            seconds = time.monotonic() - started
            return await in_thread(self._measured, run, measurement, log, received, seconds)

    def group(
        self, run: Run, measurement: Measurement, frames: FrameFormat, clips: int
    ) -> AbstractAsyncContextManager[Group]:
        return nullcontext(SeparateClips(self, run, measurement, frames, clips))

    async def close(self) -> None:
        """It keeps no process."""

    def _command(self, measurement: Measurement, frames: FrameFormat, *descriptors: int) -> list[str]:
        reference, distorted, log, counter = descriptors
        features = "|".join(f"name={name}" for name in libvmaf_features(measurement.features))
        settings = {
            "log_fmt": "xml",
            "log_path": f"/dev/fd/{log}",
            "n_threads": str(measurement.threads),
            "n_subsample": str(measurement.subsample),
            "shortest": "1",
            "model": measurement.model.argument,
        } | ({"feature": features} if features else {})
        name, device = FILTERS[self.backend]
        measured = f"{name}=" + ":".join(f"{name}={value}" for name, value in settings.items()) + "[scored]"
        upload = "[0:v]hwupload[distorted];[1:v]hwupload[reference];[distorted][reference]"
        graph = (upload if device else "[0:v][1:v]") + measured
        return [
            self._ffmpeg.path,
            *LOG_FLAGS,
            *(("-init_hw_device", f"{device}=device", "-filter_hw_device", "device") if device else ()),
            *raw_input(frames, distorted),
            *raw_input(frames, reference),
            *("-filter_complex_threads", str(measurement.threads), "-filter_complex", graph),
            *("-map", "[scored]", "-fps_mode", "passthrough"),
            *(*frame_counter(counter), "-f", "null", "-"),
        ]

    def _measured(
        self, run: Run, measurement: Measurement, file: BinaryIO, received: int, seconds: float
    ) -> MeasuredRun:
        folder = tempfile.gettempdir()
        if not is_complete(file) and shutil.disk_usage(folder).free < MIN_FREE_SPACE:
            raise NodeFault(f"the disk of {folder} is full: libvmaf could not write its log")
        log = read_log(file, received, measurement.subsample, measurement.features)
        start = run.fed(self.neighbours, measurement.subsample).first
        inside = slice(
            bisect_left(log.numbers, run.first - start),
            None if run.end is None else bisect_left(log.numbers, run.end - start),
        )
        return MeasuredRun(
            array("q", (start + number for number in log.numbers[inside])),
            {name: column[inside] for name, column in log.values.items()},
            received,
            seconds,
            EngineFacts(self._ffmpeg.version, log.version, self.backend),
        )

    async def _diagnose(self, code: int, measurement: Measurement, lines: deque[str]) -> ScoringError:
        """The reason for a non-zero exit code of ffmpeg."""
        if missing := missing_parts(self._ffmpeg, await inspect_build(self._ffmpeg)):
            return NodeFault(missing)
        model, failed = measurement.model, f"ffmpeg failed with {exit_description(code)}"
        if model.fd is not None and not await can_load_model(self._ffmpeg, model.argument, [model.fd]):
            return BadInput(
                "model",
                f"libvmaf cannot score with the model {model.name}, not even two generated frames; check that the file"
                " is a VMAF model for this libvmaf",
            )
        if code == -signal.SIGKILL:
            return NodeFault(f"{failed}: probably killed because this machine or its cgroup ran out of memory")
        if any("Cannot allocate memory" in line for line in lines):
            return NodeFault(f"{failed}: this machine does not have enough memory")
        return EngineFailure(f"{failed}: {next((line for line in reversed(lines) if line), 'no error message')}")
