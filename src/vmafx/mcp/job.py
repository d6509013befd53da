"""Job: one score, comparison or ladder, from its request to its end, across restarts of the server."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from vmafx.api.fields import doc
from vmafx.scoring.errors import BadInput, ScoringError
from vmafx.tasks import Changes
from vmafx.text import one_line
from vmafx.tune.results import CompareResult, LadderResult

Kind = Literal["score", "compare", "ladder"]
Phase = Literal["Pending", "Running", "Succeeded", "Failed", "Cancelled"]
FINISHED: frozenset[Phase] = frozenset({"Succeeded", "Failed", "Cancelled"})


class JobFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a job failed."""

    message: Annotated[str, doc("What is wrong.")]
    part: Annotated[str, doc("What is wrong of the request: reference, distorted, model or options.")] = ""
    remedy: Annotated[str, doc("What helps.")] = ""

    @classmethod
    def of(cls, error: ScoringError) -> "JobFailure":
        message = one_line(_as_arguments(str(error)), 2000)
        if isinstance(error, BadInput):
            return cls(message, error.part, one_line(_as_arguments(error.remedy), 2000))
        return cls(message)

    @property
    def text(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


# Errors name the flags of `vmafx score`; a tool has arguments instead.
_ARGUMENTS = {
    "for this command only, use --allow-private": "",
    "--scale-to": "size",
    "--fps": "frameRate of the format",
    "--work": "--state",
} | {f"--{name}": name for name in ("shortest", "conform", "stretch", "damaged")}


def _as_arguments(text: str) -> str:
    for flag, argument in _ARGUMENTS.items():
        text = text.replace(flag, argument)
    return text


class ClipScore(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The score of one distorted clip; `error` instead of a score if it failed."""

    distorted: Annotated[str, doc("Name of the clip, without credentials.")]
    score: Annotated[float | None, doc("The pooled VMAF, 0 to 100.")] = None
    lowest: Annotated[float | None, doc("The lowest score of a frame.")] = None
    p5: Annotated[float | None, doc("95 % of the frames score higher.")] = None
    frames: Annotated[int, doc("Frames scored.")] = 0
    bitrate: Annotated[float | None, doc("Bits per second of the file.")] = None
    features: Annotated[dict[str, float], doc("Means of the features over all frames.")] = {}
    notes: Annotated[tuple[str, ...], doc("Conversions and other facts that affect the score.")] = ()
    error: Annotated[str, doc("Why it has no score.")] = ""
    key: Annotated[str, doc("Digest of what was scored.")] = ""


class ScoreOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of a job."""

    reference: str
    model: str
    pooling: str
    width: int  # of the compared frames
    height: int
    clips: tuple[ClipScore, ...]


class WorkOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came out: one of these, by the kind of the job."""

    score: ScoreOutcome | None = None
    compare: CompareResult | None = None
    ladder: LadderResult | None = None


class McpJobRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a job, as it is written to disk."""

    id: str
    kind: Kind
    owner: str  # who may see it
    share: str  # of the queue
    arguments: msgspec.Raw  # of its tool, as JSON
    created: datetime
    phase: Phase = "Pending"
    started: datetime | None = None
    finished: datetime | None = None
    outcome: WorkOutcome | None = None
    failure: JobFailure | None = None

    @property
    def is_finished(self) -> bool:
        return self.phase in FINISHED


class WorkProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a job is. `share` is from 0 to 1, and never falls."""

    stage: str
    share: float = 0.0
    detail: str = ""


OnWorkProgress = Callable[[WorkProgress], None]


class Job:
    """A job of this process."""

    def __init__(self, record: McpJobRecord) -> None:
        self.record = record
        self.progress: WorkProgress | None = None
        self.told = False  # whether a client knows its ID
        self.writing = asyncio.Lock()  # held while its end is written
        self._changes = Changes()

    @property
    def id(self) -> str:
        return self.record.id

    async def ended(self) -> None:
        """Wait for its end."""
        while not self.record.is_finished:
            await self._changes.after(self._changes.version)

    def report_progress(self, progress: WorkProgress) -> None:
        if not self.record.is_finished:
            share = max(progress.share, self.progress.share if self.progress is not None else 0.0)
            self.progress = msgspec.structs.replace(progress, share=min(share, 1.0))
            self._changes.notify()

    def replace(self, record: McpJobRecord) -> None:
        self.record, self.progress = record, None
        self._changes.notify()
