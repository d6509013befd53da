"""What an engine is: it measures pairs of raw frames, and knows nothing of files, codecs and clips.

A clip is scored in runs of frames. What an engine computes for a frame may depend on its neighbours (motion does), so
it is fed some frames more at either end of a run, and runs are exact: those of a clip, put together, equal one run over
the whole clip.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from io import FileIO
from typing import Protocol

import msgspec

from vmafx.api.hardware import DEVICES, Backend
from vmafx.scoring.errors import NodeFault
from vmafx.scoring.models import VmafModel
from vmafx.scoring.result import Column, EngineFacts, FrameNumbers


class FrameFormat(msgspec.Struct, frozen=True):
    """The format of raw frames: planes without padding, one after the other."""

    width: int
    height: int
    pixel_format: str  # planar YUV, little-endian


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    model: VmafModel
    features: tuple[str, ...] = ()
    subsample: int = 1  # measure frames whose number is a multiple of this
    threads: int = 1


class Run(msgspec.Struct, frozen=True):
    """The frames [first, end) of a clip; `end` is None for all to the end."""

    first: int = 0
    end: int | None = None

    def fed(self, neighbours: int, subsample: int) -> "Run":
        """The frames that an engine is fed, which measures every `subsample`-th of those it receives."""
        first = max(0, self.first - neighbours)
        return Run(first - first % subsample, None if self.end is None else self.end + neighbours)


class MeasuredRun(msgspec.Struct, frozen=True):
    """The values of the frames of a run: a column per feature, one value for each of `numbers`."""

    numbers: FrameNumbers  # in the clip
    values: dict[str, Column]
    received: int  # pairs of frames that the engine was fed
    seconds: float
    facts: EngineFacts


class Engine(Protocol):
    """Scores on one backend."""

    backend: Backend
    neighbours: int  # frames that it needs before and after a run
    luma_only: bool  # it is fed the first plane of each frame, and no chroma

    def identity(self) -> tuple[str | int, ...]:
        """In the cache key: another engine may yield other values."""
        ...

    async def lacks(self, measurement: Measurement) -> str | None:
        """What it cannot measure of this, as a sentence; None if it can measure all."""
        ...

    async def score(
        self,
        run: Run,
        measurement: Measurement,
        frames: FrameFormat,
        reference: FileIO,
        distorted: FileIO,
        on_scored: Callable[[int], None],
    ) -> MeasuredRun:
        """Reads the frames of `run.fed(neighbours, subsample)` from two pipes or files, and closes them.

        Calls `on_scored` with the number of pairs scored so far, whenever there is progress. If one clip ends first,
        the rest of the other is not read. Raises NodeFault, EngineFailure, or BadInput for a model that is not usable.
        """
        ...

    def group(
        self, run: Run, measurement: Measurement, frames: FrameFormat, clips: int
    ) -> AbstractAsyncContextManager["Group"]:
        """Scores so many distorted clips at once, which have the same reference."""
        ...

    async def close(self) -> None:
        """Ends the processes that it keeps for further work."""
        ...


class Group(Protocol):
    """Distorted clips that are scored at once against the same run of one reference."""

    references: int  # how many times it reads the frames of the reference: once, or once for each clip

    async def score(
        self, clip: int, reference: FileIO, distorted: FileIO, on_scored: Callable[[int], None]
    ) -> MeasuredRun:
        """Like the method of an engine, for one of the clips. An engine may wait until all clips are here or left."""
        ...

    def leave(self, clip: int) -> None:
        """This clip will not be scored, or is scored already."""
        ...


class SeparateClips:
    """A group for an engine that scores clips one by one, each with the reference."""

    def __init__(self, engine: Engine, run: Run, measurement: Measurement, frames: FrameFormat, clips: int) -> None:
        self.references = clips
        self._engine, self._run, self._measurement, self._frames = engine, run, measurement, frames

    async def score(
        self, _clip: int, reference: FileIO, distorted: FileIO, on_scored: Callable[[int], None]
    ) -> MeasuredRun:
        run, measurement, frames = self._run, self._measurement, self._frames
        return await self._engine.score(run, measurement, frames, reference, distorted, on_scored)

    def leave(self, _clip: int) -> None:
        """No clip waits for another one."""


def no_engine(backend: Backend, why: str) -> NodeFault:
    """Another machine may have the device, or what its engine needs."""
    return NodeFault(f"this machine has no engine for the backend {backend} ({DEVICES[backend]}): {why}")
