"""Measures a task in a device process: reads frames, has batches of them measured, and writes the results."""

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from queue import SimpleQueue

import numpy as np
import torch

from vmafx.scoring.engines.gpu.definitions import LumaFormat
from vmafx.scoring.engines.gpu.devices import NoDevice, free_memory, is_out_of_memory, release_memory
from vmafx.scoring.engines.gpu.features import FRAME_FEATURES, FrameSums, vif_and_adm
from vmafx.scoring.engines.gpu.messages import (
    Answer,
    Ended,
    Finished,
    FramesArrived,
    MeasureTask,
    OutOfMemory,
    ResultsNotWritten,
    Started,
)
from vmafx.scoring.engines.gpu.pipeline import SLOTS, Pipeline

MAX_BATCH = 16  # frames
BATCH_PIXELS = 8 * 1920 * 1080  # enough to keep a large GPU busy
PLAIN_BATCH_PIXELS = 1920 * 1080  # plain PyTorch takes many times the memory
CHECKED = LumaFormat(64, 64, 8)  # what a device has to measure before it counts as usable

Send = Callable[[Answer], None]


class DeviceMemoryFull(Exception):
    """Not even single frames fit into the memory of the device."""


class ResultsFailed(Exception):
    """The reason why results cannot be written."""


class Meter:
    """Measures tasks on one device, one after the other. The pipeline is kept for further tasks of the same format."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pipeline: Pipeline | None = None
        self._fits: tuple[LumaFormat, float, int] | None = None  # what the pipeline was made for

    def check(self) -> None:
        """Measures a small frame. Raises NoDevice: the kernels do not compile, or do not run on this device."""
        try:
            pipeline = Pipeline(CHECKED, 1.0, 1, 1, self._device)
            pipeline.host(0)[:] = 0
            pipeline.submit(0)
            pipeline.collect(0)
        except Exception as error:
            why = "its memory is full" if is_out_of_memory(error) else f"it cannot measure a frame: {_summary(error)}"
            raise NoDevice(f"the device is not usable: {why}") from error

    def measure(self, task: MeasureTask, inputs: Sequence[int], results: Sequence[int], send: Send) -> None:
        """`inputs` are descriptors of the reference's frames and of those of each clip; `results` are of files."""
        if self._device.type == "cpu":
            torch.set_num_threads(task.threads)
        send(self._measure(task, inputs, results, send))

    def _measure(self, task: MeasureTask, inputs: Sequence[int], results: Sequence[int], send: Send) -> Answer:
        """The last answer."""
        try:
            _Measuring(task.frames, self._make_pipeline(task), inputs, results, send).run()
        except DeviceMemoryFull:
            self._pipeline = self._fits = None
        except ResultsFailed as error:
            return ResultsNotWritten(str(error))
        else:
            return Finished()
        release_memory(self._device)  # now that no variable and no error refers to it
        return OutOfMemory(*free_memory(self._device))

    def _make_pipeline(self, task: MeasureTask) -> Pipeline:
        """The one of the task before, if it has the right format and batches of full size."""
        wanted = task.frames, task.gain_limit, task.clips
        if self._pipeline is not None and self._fits == wanted:
            return self._pipeline
        self._pipeline = self._fits = None
        full = size = batch_size(task.frames, plain=self._device.type not in {"cuda", "xpu"})
        while True:
            release_memory(self._device)
            try:
                with memory_errors():
                    self._pipeline = Pipeline(task.frames, task.gain_limit, size, task.clips, self._device)
            except DeviceMemoryFull:
                if size == 1:
                    raise
                size //= 2
            else:
                self._fits = wanted if size == full else None
                return self._pipeline


@contextmanager
def memory_errors() -> Iterator[None]:
    """Raises DeviceMemoryFull for errors of torch, the driver and Triton that say so."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise DeviceMemoryFull from None  # the error would keep what was allocated


def _summary(error: Exception) -> str:
    """One line."""
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:500]


def batch_size(frames: LumaFormat, *, plain: bool) -> int:
    """Frames of each clip in a batch. More of them would only take memory."""
    pixels = PLAIN_BATCH_PIXELS if plain else BATCH_PIXELS
    return min(max(pixels // (frames.width * frames.height), 1), MAX_BATCH)


_Arrival = tuple[int, int | OSError]  # the number of a stream, and of frames in its next batch, or why there is none


class _Stream:
    """The frames from one descriptor, which a thread reads into the batches of a pipeline."""

    def __init__(self, number: int, fd: int, pipeline: Pipeline, arrivals: "SimpleQueue[_Arrival]") -> None:
        self.ended = False  # no batch follows those that have arrived
        self.arrived = deque[int]()  # frames in each batch
        self._number, self._fd, self._pipeline, self._arrivals = number, fd, pipeline, arrivals
        self._free = threading.Semaphore(SLOTS)
        self._stop = os.eventfd(0)
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._poll.register(self._stop, select.POLLIN)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def release_slot(self) -> None:
        """The frames of the oldest batch are not needed any more."""
        self._free.release()

    def stop(self) -> None:
        """Reads no more, even if no frame arrives."""
        self._stopped = True
        os.eventfd_write(self._stop, 1)
        self._free.release()
        self._thread.join()
        os.close(self._stop)

    def _run(self) -> None:
        size = self._pipeline.size
        for batch in count():
            self._free.acquire()
            frames = self._pipeline.host(batch % SLOTS)[self._number]
            try:
                read = self._fill(memoryview(frames).cast("B")) * size // frames.nbytes
            except OSError as error:
                self._arrivals.put((self._number, error))
                return
            self._arrivals.put((self._number, read))
            if read < size:
                return

    def _fill(self, room: memoryview) -> int:
        """The number of bytes read: fewer than there is room for at the end of the stream."""
        filled = 0
        while filled < len(room):
            self._poll.poll()
            if self._stopped:
                break
            read = os.readv(self._fd, [room[filled:]])
            if not read:
                break
            filled += read
        return filled


class _Measuring:
    """One task. While a batch is measured, the next one is read, and the results of the one before are written."""

    def __init__(
        self, frames: LumaFormat, pipeline: Pipeline, inputs: Sequence[int], results: Sequence[int], send: Send
    ) -> None:
        self._frames, self._pipeline, self._results, self._send = frames, pipeline, results, send
        self._arrivals: SimpleQueue[_Arrival] = SimpleQueue()
        self._streams = [_Stream(number, fd, pipeline, self._arrivals) for number, fd in enumerate(inputs)]
        self._scored = [0] * len(results)
        self._ended: set[int] = set()  # clips

    def run(self) -> None:
        """Raises DeviceMemoryFull, and ResultsFailed if results cannot be written."""
        self._send(Started())
        try:
            with memory_errors():
                self._measure_batches()
        finally:
            for stream in self._streams:
                stream.stop()

    def _measure_batches(self) -> None:
        usable: list[int] = []
        for batch in count():
            before, usable = usable, self._await_batch()
            if any(usable):
                self._pipeline.submit(batch % SLOTS)
            if before:
                self._collect(batch - 1, before)
            if max(usable) < self._pipeline.size:
                break
        self._collect(batch, usable)

    def _await_batch(self) -> list[int]:
        """How many frames of each clip can be compared in the next batch."""
        reference, *clips = [self._await(stream) for stream in self._streams]
        return [min(reference, frames) for frames in clips]

    def _await(self, stream: _Stream) -> int:
        while not stream.arrived and not stream.ended:
            number, frames = self._arrivals.get()
            if isinstance(frames, OSError):
                raise frames
            self._streams[number].arrived.append(frames)
            if number:
                self._send(FramesArrived(number - 1, self._scored[number - 1]))
        frames = stream.arrived.popleft() if stream.arrived else 0
        stream.ended = stream.ended or frames < self._pipeline.size
        return frames

    def _collect(self, batch: int, usable: list[int]) -> None:
        """Writes the results of a batch that was submitted, and tells which clips have ended with it."""
        clips = self._pipeline.collect(batch % SLOTS) if any(usable) else []
        for clip, frames in enumerate(usable):
            if frames:
                self._write(clip, FrameSums(*(values[:frames] for values in clips[clip])))
            if frames < self._pipeline.size and clip not in self._ended:
                self._ended.add(clip)
                self._send(Ended(clip, self._scored[clip]))
        for stream in self._streams:
            stream.release_slot()

    def _write(self, clip: int, sums: FrameSums) -> None:
        features = vif_and_adm(sums, self._frames)
        rows = np.stack([*(features[name] for name in FRAME_FEATURES), sums.differences], axis=1).tobytes()
        try:
            while rows:
                rows = rows[os.write(self._results[clip], rows) :]
        except OSError as error:
            raise ResultsFailed(error.strerror or str(error)) from error
        self._scored[clip] += len(sums.differences)
