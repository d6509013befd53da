"""ServedJob: one request to score, from the queue to its end."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Literal, NamedTuple

import msgspec

from vmafx.api.fields import doc
from vmafx.auth.callers import ServedCaller
from vmafx.clock import utc_now
from vmafx.http.errors import HTTP_STATUS, Code, StatusError
from vmafx.scoring.errors import BadInput, InputPart, NodeFault, ScoringError
from vmafx.scoring.media.uri import display_name
from vmafx.scoring.result import Progress
from vmafx.serving.request import ScoreRequest
from vmafx.tasks import Changes

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
FINISHED: frozenset[State] = frozenset({"succeeded", "failed", "cancelled"})
UNPROCESSABLE = 422  # a request that is well-formed, for clips or options that cannot be scored


class JobError(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a job failed, in the terms of a problem (RFC 9457)."""

    code: Annotated[Code, doc("The gRPC status code.")]
    message: Annotated[str, doc("What is wrong.")]
    status: Annotated[int, doc("The HTTP status of a request that waits for the job.")]
    part: Annotated[str, doc("What is wrong of the request: reference, distorted, model or options.")] = ""
    remedy: Annotated[str, doc("An option that helps.")] = ""

    @classmethod
    def of(cls, error: ScoringError) -> "JobError":
        message = _as_options(" ".join(str(error).split()))
        if isinstance(error, BadInput):
            return cls("INVALID_ARGUMENT", message, UNPROCESSABLE, error.part, _as_options(error.remedy))
        code: Code = "UNAVAILABLE" if isinstance(error, NodeFault) else "INTERNAL"
        return cls(code, message, HTTP_STATUS[code])

    def raised(self) -> StatusError:
        """The same as the error of a call."""
        extensions = {name: value for name in ("part", "remedy") if (value := getattr(self, name))}
        return StatusError(self.code, self.message, status=self.status, extensions=extensions)


# Errors name the flags of `vmafx score`; a request has options and formats instead.
_OPTIONS = {
    "--scale-to": "options.size",
    "--fps": "frameRate of the format",
    **{f"--{name}": f"options.{name}" for name in ("shortest", "conform", "stretch", "damaged")},
}


def _as_options(text: str) -> str:
    for flag, option in _OPTIONS.items():
        text = text.replace(flag, option)
    return text


class UploadedClip(msgspec.Struct, frozen=True):
    """A clip that came with the request."""

    name: str  # for display
    sha256: str
    size: int


class JobOutcome(NamedTuple):
    """How a job ends."""

    state: State
    result: str = ""  # key of the result
    score: float | None = None
    error: JobError | None = None


CANCELLED = JobOutcome("cancelled")


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a job, as it is written to disk."""

    id: str
    caller: ServedCaller
    spec: ScoreRequest
    model: str  # as clients know it
    created: datetime
    uploads: dict[str, UploadedClip] = {}  # by part; the other clips are URIs in `spec`
    state: State = "queued"
    started: datetime | None = None
    finished: datetime | None = None
    result: str = ""  # key of the result
    score: float | None = None
    error: JobError | None = None

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED

    def clip_name(self, part: InputPart) -> str:
        """The name of a clip for display, without credentials."""
        if part in self.uploads:
            return self.uploads[part].name
        return display_name(self.spec.reference if part == "reference" else self.spec.distorted)

    def ended(self, outcome: JobOutcome) -> "JobRecord":
        return msgspec.structs.replace(self, finished=utc_now(), **outcome._asdict())


class ServedJob:
    """A job of this process. Whoever waits for a change awaits `changed`; `on_change` is called with each."""

    def __init__(self, record: JobRecord, files: Mapping[str, int] | None = None) -> None:
        self.record = record
        self.files = dict(files or {})  # descriptors of uploaded clips, by part; owned by the job
        self.progress: Progress | None = None
        self.kept = False  # on disk, so that it survives a restart
        self.writing = asyncio.Lock()  # held while the job is written to the disk or ends
        self.verdict: JobOutcome | None = None  # how it ends, once somebody stops it
        self.deadline: asyncio.TimerHandle | None = None
        self._changes = Changes()
        self.on_change: Callable[[ServedJob], None] = lambda _job: None

    @property
    def id(self) -> str:
        return self.record.id

    def report_progress(self, progress: Progress) -> None:
        if not self.record.is_finished:
            self.progress = progress
            self._notify()

    def start(self) -> None:
        self._replace(msgspec.structs.replace(self.record, state="running", started=utc_now()))

    def requeue(self) -> None:
        """Back to the queue, because the process was stopped."""
        self._replace(msgspec.structs.replace(self.record, state="queued", started=None))

    def finish(self, record: JobRecord) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        self._replace(record)

    @property
    def version(self) -> int:
        """Grows with each change."""
        return self._changes.version

    async def changed(self, since: int) -> int:
        """Wait until the version is not `since`, and return it."""
        return await self._changes.after(since)

    async def wait_until_finished(self) -> None:
        while not self.record.is_finished:
            await self.changed(self.version)

    def _replace(self, record: JobRecord) -> None:
        self.record, self.progress = record, None
        self._notify()

    def _notify(self) -> None:
        self._changes.notify()
        self.on_change(self)
