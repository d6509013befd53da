"""Where a source is cut into shots: the confined decoder emits small pictures of its frames, which are compared.

A cut is a frame that differs from the one before far more than other frames around it do, so that fast motion is none,
and after which the old picture does not return, so that a flash is none. Fades and dissolves are not found, nor are
cuts between shots whose motion is so fast that no frame resembles the one before.
"""

import asyncio
from array import array
from bisect import bisect
from collections.abc import Callable
from fractions import Fraction

import msgspec
import numpy as np
from numpy.typing import NDArray

from vmafx.scoring.decoder.messages import Conversion
from vmafx.scoring.errors import EngineFailure, ScoringError
from vmafx.scoring.notes import full_range_of
from vmafx.scoring.plan import counted, damage_error
from vmafx.scoring.probed import ProbedClip
from vmafx.scoring.stall import STALL_TIMEOUT
from vmafx.tasks import in_thread

Picture = NDArray[np.uint8]
Differences = NDArray[np.float32]  # a row for each frame: to the frame before, to the one before that, and so on
WIDTH, HEIGHT = 96, 64  # of the pictures; their shape does not matter
LOOK = 6  # frames before and after: animations show a drawing for up to three frames
MIN_DIFFERENCE = 6.0  # mean absolute difference of luma, in levels of 255
MIN_RATIO = 2.0  # of a cut to other differences around it
MIN_CHANGE = 0.5  # of the difference at a cut: how far frames after it differ from frames before it
MIN_SECONDS = 0.5  # of a shot
MAX_SHOTS = 1000


class Shot(msgspec.Struct, frozen=True):
    """The frames [first, end) of a source, which begin at `seconds`."""

    first: int
    end: int
    seconds: float

    @property
    def frames(self) -> int:
        return self.end - self.first


class FrameDifferences:
    """Measures how far each picture differs from the LOOK before it."""

    def __init__(self) -> None:
        self._before: list[NDArray[np.int16]] = []  # the latest first
        self._rows = array("f")

    @property
    def count(self) -> int:
        return len(self._rows) // LOOK

    def add(self, picture: Picture) -> None:
        levels = picture.astype(np.int16)
        row = [float(np.abs(levels - other).mean()) for other in self._before]
        self._rows.extend(row + [0.0] * (LOOK - len(row)))
        self._before = [levels, *self._before[: LOOK - 1]]

    def all(self) -> Differences:
        return np.array(self._rows).reshape(-1, LOOK)


def cuts(differences: Differences, min_length: int, most: int) -> tuple[int, ...]:
    """The first frames of all shots but the first one: at most `most`, the clearest ones, `min_length` apart."""
    found = list[int]()
    steps = differences[:, 0]
    candidates = np.flatnonzero((steps >= MIN_DIFFERENCE) & (steps >= MIN_RATIO * _usual(steps)))
    clearest = sorted(candidates.tolist(), key=lambda frame: (-steps[frame], frame))
    for frame in clearest:
        place = bisect(found, frame)
        before, after = [0, *found][place], [*found, len(steps)][place]
        if min(frame - before, after - frame) >= min_length and _is_lasting(differences, frame):
            found.insert(place, frame)
            if len(found) == most:
                break
    return tuple(found)


def _usual(steps: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of each frame: what differences before it, or after it, are like. The largest may be of another cut."""
    padded = np.pad(steps, LOOK)
    windows = np.lib.stride_tricks.sliding_window_view(padded, LOOK)
    before, after = windows[: len(steps)], windows[LOOK + 1 :][: len(steps)]
    second = LOOK - 2
    usual: NDArray[np.float32] = np.maximum(*(np.partition(side, second)[:, second] for side in (before, after)))
    return usual


def _is_lasting(differences: Differences, frame: int) -> bool:
    """Whether frames on one side of a cut differ from the frame on its other side, unlike at both ends of a flash."""
    count = len(differences)
    later = [differences[frame + lag, lag] for lag in range(1, LOOK) if frame + lag < count]
    earlier = [differences[frame, lag] for lag in range(1, LOOK) if frame - lag > 0]
    return bool(min([*later, *earlier], default=np.inf) >= MIN_CHANGE * differences[frame, 0])


def as_shots(starts: tuple[int, ...], frames: int, rate: Fraction) -> tuple[Shot, ...]:
    ends = (*starts, frames)
    return tuple(Shot(first, end, float(first / rate)) for first, end in zip((0, *starts), ends, strict=True))


async def find_shots(
    source: ProbedClip, rate: Fraction, threads: int, on_frames: Callable[[int], None]
) -> tuple[Shot, ...]:
    """The shots of a source, which together are all of its frames. Raises ScoringError."""
    full = full_range_of(source.clip) or False
    conversion = Conversion(width=WIDTH, height=HEIGHT, pixel_format="gray", full_range=full, from_full_range=full)
    differences = FrameDifferences()
    async with source.decoder.decode(conversion, threads=threads) as decoding:
        (output,) = decoding.outputs
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), output
        )
        try:
            while (picture := await _read_picture(reader)) is not None:
                differences.add(picture)
                on_frames(differences.count)
        except ScoringError:
            await decoding.check()
            raise
        finally:
            transport.close()
            decoding.stop_reading(output)
        decoded = await decoding.finished()
    if decoded.errors:
        raise damage_error("reference", counted(decoded.errors, "decoding error"))
    if decoded.frames != differences.count:
        raise EngineFailure(f"the decoder sent {differences.count} of {decoded.frames} pictures")
    starts = await in_thread(cuts, differences.all(), max(1, round(MIN_SECONDS * rate)), MAX_SHOTS - 1)
    return as_shots(starts, decoded.frames, rate)


async def _read_picture(reader: asyncio.StreamReader) -> Picture | None:
    """The next one; None at the end."""
    try:
        async with asyncio.timeout(STALL_TIMEOUT):
            content = await reader.readexactly(WIDTH * HEIGHT)
    except TimeoutError:
        raise EngineFailure(f"the decoder stalled: no frame within {STALL_TIMEOUT:.0f} s") from None
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise EngineFailure("the decoder sent an incomplete picture") from None
        return None
    return np.frombuffer(content, np.uint8)
