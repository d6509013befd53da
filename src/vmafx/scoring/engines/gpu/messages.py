"""What a device process is asked and answers: packets of JSON on a socket.

With a task come descriptors: those of the reference's frames, of the frames of each distorted clip, and of a file for
the results of each clip.
"""

import msgspec

from vmafx.api.hardware import Backend
from vmafx.scoring.engines.gpu.definitions import LumaFormat
from vmafx.scoring.engines.gpu.features import FRAME_FEATURES

MAX_PACKET = 64 << 10
RESULT_COLUMNS = len(FRAME_FEATURES) + 1  # of a row of results, as float64: the last is the reference's difference


class DeviceSetup(msgspec.Struct, frozen=True):
    """The argument of a device process."""

    parent: int  # it ends with this process
    socket: int  # file descriptor
    backend: Backend


class DeviceReady(msgspec.Struct, frozen=True, tag="ready"):
    """The first answer: there is a device."""

    device: str  # its name
    torch: str  # versions
    triton: str = ""  # empty where plain PyTorch is used


class Unusable(msgspec.Struct, frozen=True, tag="unusable"):
    """The first and only answer without a device, or without what is needed to use it."""

    why: str


class MeasureTask(msgspec.Struct, frozen=True):
    """Measure frames of luma until the reference or all distorted clips have ended."""

    frames: LumaFormat
    gain_limit: float
    clips: int
    threads: int  # on a CPU


class Started(msgspec.Struct, frozen=True, tag="started"):
    """There is room for the frames on the device, and they will be read."""


class FramesArrived(msgspec.Struct, frozen=True, tag="progress"):
    """More frames of a clip have arrived; `scored` of its frames are measured."""

    clip: int
    scored: int


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A clip or the reference has ended: the results of the clip are complete."""

    clip: int
    scored: int


class OutOfMemory(msgspec.Struct, frozen=True, tag="memory"):
    """The task was given up: the memory of the device is full. No frame was read if the task has not started."""

    free: int  # bytes
    total: int


class ResultsNotWritten(msgspec.Struct, frozen=True, tag="disk"):
    """The task was given up: its results cannot be written."""

    why: str


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """All clips have ended; another task may follow."""


Answer = DeviceReady | Unusable | Started | FramesArrived | Ended | OutOfMemory | ResultsNotWritten | Finished
