"""Emits the frames of a clip as raw planes to pipes."""

import os
import threading
import time
from collections.abc import Callable, Iterable
from itertools import islice
from queue import Queue

from av.video.frame import VideoFrame

from vmafx.scoring.clip import ASPECT_RATIO_TOLERANCE
from vmafx.scoring.decoder.container import Refused, open_video
from vmafx.scoring.decoder.convert import Converter
from vmafx.scoring.decoder.messages import DecodedClip, DecodeProgress, DecodeTask, FormatChange

QUEUED_FRAMES = 2  # per pipe: the decoder works while a frame is written
MAX_VIEWS = 1024  # of one writev call
PROGRESS_INTERVAL = 1.0  # seconds
COLOUR_RANGES = {1: "limited range", 2: "full range"}

Planes = list[memoryview]


def emit_frames(
    clip: int, outputs: tuple[int, ...], task: DecodeTask, send_progress: Callable[[DecodeProgress], None]
) -> DecodedClip:
    """Decodes the clip and writes its frames to the pipes; closes these.

    Goes on to the end if the pipes have no reader any more: the frames are counted.
    """
    emitter = _Emitter(outputs, task)
    sent, changes = time.monotonic(), _Changes()
    try:
        with open_video(clip, task, task.threads) as video:
            converter = Converter(task.conversion, video.stream.time_base)
            for frame in video.frames():
                changes.add(frame)
                emitter.add(converter.convert(frame))
                if task.end is not None and emitter.count >= task.end:
                    break
                if time.monotonic() - sent >= PROGRESS_INTERVAL:
                    sent = time.monotonic()
                    send_progress(DecodeProgress(emitter.count))
            else:
                emitter.add(converter.flush())
            if not emitter.count:  # with several threads, a damaged clip can lose the frame that was found before
                raise Refused("none of its frames can be decoded")
            return DecodedClip(emitter.count, video.errors, changes.found())
    finally:
        emitter.finish()


class _Emitter:
    """Counts frames, and writes those of the task to its pipes."""

    def __init__(self, outputs: tuple[int, ...], task: DecodeTask) -> None:
        self.count = 0
        self._task = task
        self._writers = [_Writer(fd) for fd in outputs[: task.outputs]]
        for unused in outputs[task.outputs :]:
            os.close(unused)

    def add(self, frames: Iterable[VideoFrame]) -> None:
        for frame in frames:
            self.count += 1
            if self.count > self._task.frames:
                raise Refused(f"it has more than {self._task.frames:,} frames, which is the limit")
            if self.count > self._task.first and (self._task.end is None or self.count <= self._task.end):
                planes = raw_planes(frame, luma_only=self._task.luma_only)
                for writer in self._writers:
                    writer.put(planes)

    def finish(self) -> None:
        for writer in self._writers:
            writer.finish()


def raw_planes(frame: VideoFrame, *, luma_only: bool = False) -> Planes:
    """The rows of all planes without padding, as views of the frame's memory."""
    views: Planes = []
    for plane, component in islice(zip(frame.planes, frame.format.components, strict=True), 1 if luma_only else None):
        row, rows, stride = component.width * ((component.bits + 7) // 8), component.height, plane.line_size
        content = memoryview(plane)
        if stride == row:
            views.append(content[: row * rows])
        else:
            views += [content[start : start + row] for start in range(0, stride * rows, stride)]
    return views


class _Writer:
    """Writes frames to a pipe in a thread. Once the reader has closed its end, frames are dropped."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._queue: Queue[Planes | None] = Queue(QUEUED_FRAMES)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, planes: Planes) -> None:
        self._queue.put(planes)

    def finish(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        closed = False
        while (planes := self._queue.get()) is not None:
            try:
                if not closed:
                    _write(self._fd, planes)
            except (OSError, MemoryError):  # the reader has closed its end, or misses a frame, which it notices
                closed = True
        os.close(self._fd)


def _write(fd: int, planes: Planes) -> None:
    for start in range(0, len(planes), MAX_VIEWS):
        views = planes[start : start + MAX_VIEWS]
        while views:
            written = os.writev(fd, views)
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if views and written:
                views[0] = views[0][written:]


class _Changes:
    """Finds frames whose size or format differs from the first frame."""

    def __init__(self) -> None:
        self._first: tuple[int, int, tuple[str, int, int]] | None = None
        self._found: dict[bool, FormatChange] = {}

    def add(self, frame: VideoFrame) -> None:
        form = frame.width, frame.height, (frame.format.name, int(frame.colorspace), int(frame.color_range))
        if self._first is None:
            self._first = form
        if form != self._first:
            change = _format_change(self._first, form)
            self._found.setdefault(change.size_only, change)

    def found(self) -> tuple[FormatChange, ...]:
        return tuple(self._found.values())


def _format_change(
    one: tuple[int, int, tuple[str, int, int]], other: tuple[int, int, tuple[str, int, int]]
) -> FormatChange:
    (width, height, details), (new_width, new_height, new_details) = one, other
    same_aspect = abs(width * new_height - height * new_width) <= ASPECT_RATIO_TOLERANCE * width * new_height
    same_details = details == new_details
    names = (f"{w}x{h}" + ("" if same_details else f" ({_described(form)})") for w, h, form in (one, other))
    return FormatChange(same_aspect and same_details, "between {} and {}".format(*names))


def _described(details: tuple[str, int, int]) -> str:
    name, matrix, colour_range = details
    return f"{name}, {COLOUR_RANGES.get(colour_range, 'unknown range')}, matrix {matrix}"
