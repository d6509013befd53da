"""ServedJob: one request to score, from the queue to its end."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from vmafx.clock import utc_now
from vmafx.http.errors import HTTP_STATUS, Code, StatusError
from vmafx.scoring.errors import BadInput, InputPart, NodeFault, ScoringError
from vmafx.scoring.media.uri import display_name
from vmafx.scoring.result import Progress
from vmafx.serving.callers import ServedCaller
from vmafx.serving.request import ScoreRequest

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
FINISHED: frozenset[State] = frozenset({"succeeded", "failed", "cancelled"})


class JobError(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a job failed, in the terms of a problem (RFC 9457)."""

    code: Code
    message: str
    status: int
    part: str = ""  # of the request that is wrong: reference, distorted, model or options
    remedy: str = ""  # an option that helps

    @classmethod
    def of(cls, error: ScoringError) -> "JobError":
        message = " ".join(str(error).split())
        if isinstance(error, BadInput):
            return cls("INVALID_ARGUMENT", message, 422, error.part, _as_options(error.remedy))
        code: Code = "UNAVAILABLE" if isinstance(error, NodeFault) else "INTERNAL"
        return cls(code, message, HTTP_STATUS[code])

    def raised(self) -> StatusError:
        """The same as the error of a call."""
        extensions = {name: value for name in ("part", "remedy") if (value := getattr(self, name))}
        return StatusError(self.code, self.message, status=self.status, extensions=extensions)


def _as_options(remedy: str) -> str:
    """Remedies name flags of `vmafx score`; here they are options of the request."""
    for flag, option in {"--scale-to": "options.size", "--fps": "frameRate of the format"}.items():
        remedy = remedy.replace(flag, option)
    return remedy.replace("--", "options.")


class UploadedClip(msgspec.Struct, frozen=True):
    """A clip that came with the request."""

    name: str  # for display
    sha256: str
    size: int


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a job, as it is written to disk."""

    id: str
    caller: ServedCaller
    spec: ScoreRequest
    model: str  # as the scorer opens it
    model_name: str  # as clients know it
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


class ServedJob:
    """A job of this process. Whoever waits for a change awaits `changed`; `on_change` is called with each."""

    def __init__(self, record: JobRecord, files: Mapping[str, int] | None = None) -> None:
        self.record = record
        self.files = dict(files or {})  # descriptors of uploaded clips, by part; owned by the job
        self.progress: Progress | None = None
        self.kept = False  # on disk, so that it survives a restart
        self.stopped = False  # because the process stops; it continues after the next start
        self.version = 0  # grows with each change
        self.on_change: Callable[[ServedJob], None] = lambda _job: None
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def id(self) -> str:
        return self.record.id

    def update(self, **fields: Any) -> None:
        """Change the record, and wake those who wait for a change."""
        self.record = msgspec.structs.replace(self.record, **fields)
        self._notify()

    def report_progress(self, progress: Progress) -> None:
        self.progress = progress
        self._notify()

    def start(self) -> None:
        self.update(state="running", started=utc_now())

    def requeue(self) -> None:
        """Back to the queue, after the process was stopped."""
        self.progress = None
        self.update(state="queued", started=None)

    def end(self, state: State, **fields: Any) -> None:
        self.progress = None
        self.update(state=state, finished=utc_now(), **fields)

    async def changed(self, since: int) -> int:
        """Wait until the version is not `since`, and return it."""
        while self.version == since:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
        return self.version

    async def wait_until_finished(self) -> None:
        while not self.record.is_finished:
            await self.changed(self.version)

    def _notify(self) -> None:
        self.version += 1
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.on_change(self)
