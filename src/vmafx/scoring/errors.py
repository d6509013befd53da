"""Scoring errors, by cause.

ScoringError
├── BadInput       a clip, the model or an option is wrong; the same on every machine
├── EngineFailure  ffmpeg or libvmaf failed on input that looks valid
└── NodeFault      this machine failed: no ffmpeg, disk full, out of memory, no network; another machine may succeed
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from vmafx.process.child import SpawnFailed

# Errors in writing a file that are faults of the machine, not of the given path.
DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})
InputPart = Literal["reference", "distorted", "model", "options"]


class ScoringError(Exception):
    """Base class. The message is one sentence for the user."""


class BadInput(ScoringError):
    """Names the wrong `part` and the reason. `remedy` names flags of `vmafx score`, which a job does not have."""

    def __init__(self, part: InputPart, why: str, remedy: str = "") -> None:
        super().__init__(f"{part}: {why}")
        self.part, self.why, self.remedy = part, why, remedy


class EngineFailure(ScoringError):
    pass


class NodeFault(ScoringError):
    pass


@contextmanager
def spawn_errors_as_node_fault() -> Iterator[None]:
    """Raises NodeFault if a program cannot be started."""
    try:
        yield
    except SpawnFailed as error:
        raise NodeFault(str(error)) from error
    except OSError as error:  # no descriptor, pipe or temporary file
        raise NodeFault(f"this machine cannot start another process: {error.strerror}") from error
