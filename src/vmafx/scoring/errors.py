"""What can go wrong, by who has to do something about it.

ScoringError
├── BadInput       a clip, the model or an option is wrong; another machine would say the same
├── EngineFailure  ffmpeg or libvmaf failed on input that looks right
└── NodeFault      this machine is at fault: no ffmpeg, no disk, no memory, no way to the clip; another may do better
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from vmafx.process.child import SpawnFailed

InputPart = Literal["reference", "distorted", "model", "options"]


class ScoringError(Exception):
    """Base of all; its text is one sentence for the user."""


class BadInput(ScoringError):
    """Names the part that is wrong, and why; `remedy` is what `vmafx score` offers, and a job does not."""

    def __init__(self, part: InputPart, why: str, remedy: str = "") -> None:
        super().__init__(f"{part}: {why}")
        self.part, self.why, self.remedy = part, why, remedy


class EngineFailure(ScoringError):
    pass


class NodeFault(ScoringError):
    pass


@contextmanager
def spawn_errors_as_node_fault() -> Iterator[None]:
    """A program that this machine cannot start is this machine's fault."""
    try:
        yield
    except SpawnFailed as error:
        raise NodeFault(str(error)) from error
