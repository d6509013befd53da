"""What a client asks to be scored: two clips, the model, and options. Read from JSON, or from a form with files."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from vmafx.api.fields import MAX_URI, doc
from vmafx.api.hardware import Backend
from vmafx.api.scoring import RawFormat
from vmafx.http import strict_json
from vmafx.http.errors import StatusError
from vmafx.http.limits import UploadLimits
from vmafx.http.request import HttpRequest
from vmafx.http.uploads import UploadedFile, receive_form
from vmafx.scoring.request import RequestOptions, ScoreOptions

CLIPS = ("reference", "distorted")
FORM, SPEC = "multipart/form-data", "spec"  # the part of a form that has everything but the clips, as JSON
MAX_DEADLINE = 24 * 3600  # seconds

ClipUri = Annotated[str, Meta(max_length=MAX_URI)]
Deadline = Annotated[int, Meta(ge=1, le=MAX_DEADLINE)]


class ScoreRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of POST /v1/score."""

    reference: Annotated[ClipUri, doc("URI of the reference clip; in a form, a file or a URI.")] = ""
    distorted: Annotated[ClipUri, doc("URI of the distorted clip, which is scored; in a form, a file or a URI.")] = ""
    referenceFormat: Annotated[RawFormat | None, doc("Format of a reference clip that is raw video.")] = None
    distortedFormat: Annotated[RawFormat | None, doc("Format of a distorted clip that is raw video.")] = None
    model: Annotated[str, Meta(max_length=MAX_URI), doc("A model in /v1/models. Default: the first of them.")] = ""
    backend: Annotated[Backend | None, doc("Backend to score on. Default: the best of the server.")] = None
    options: Annotated[RequestOptions, doc("Scoring options.")] = RequestOptions()
    deadlineSeconds: Annotated[
        Deadline | None, doc("Seconds after which the job fails, with its time in the queue.")
    ] = None

    def score_options(self, model: str, threads: int) -> ScoreOptions:
        """Raises BadInput for a value outside the limits of the API."""
        return self.options.score_options(model, self.backend, threads)


class ReceivedRequest(msgspec.Struct, frozen=True):
    """A request, and the files that came with it; those are open until the request has been handled."""

    spec: ScoreRequest
    files: dict[str, UploadedFile]


def media_type(request: HttpRequest) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


@asynccontextmanager
async def receive(request: HttpRequest, limits: UploadLimits) -> AsyncIterator[ReceivedRequest]:
    """Read the body of a request to score. Raises StatusError if it is malformed."""
    if media_type(request) != FORM:
        yield ReceivedRequest(_parse(await request.json(), {}), {})
        return
    async with receive_form(request, limits) as form:
        if unknown := sorted({*form.fields, *form.files} - {*CLIPS, SPEC}):
            raise StatusError(
                "INVALID_ARGUMENT", f"unknown part {unknown[0]!r}; a form has the parts {', '.join(CLIPS)} and {SPEC}"
            )
        if SPEC in form.files:
            raise StatusError("INVALID_ARGUMENT", f"{SPEC} must be a field with JSON, not a file")
        spec = strict_json.loads(form.fields[SPEC].encode()) if form.fields.get(SPEC) else {}
        for name in CLIPS:
            if name in form.fields:
                if name in spec:
                    raise StatusError("INVALID_ARGUMENT", f"{name} is given twice: as a part, and in {SPEC}")
                spec[name] = form.fields[name]
            elif name in form.files and not form.files[name].size:
                raise StatusError("INVALID_ARGUMENT", f"the file of {name} is empty; choose a clip")
        yield ReceivedRequest(_parse(spec, form.files), form.files)


def _parse(body: dict[str, Any], files: dict[str, UploadedFile]) -> ScoreRequest:
    try:
        spec = msgspec.convert(body, ScoreRequest)
        msgspec.json.encode(spec)  # an unpaired surrogate, which JSON can escape, is no text
    except msgspec.ValidationError as error:
        raise StatusError("INVALID_ARGUMENT", f"the request is not valid: {error}") from None
    except UnicodeEncodeError:
        raise StatusError("INVALID_ARGUMENT", "the request is not valid: it has an unpaired surrogate") from None
    for name in CLIPS:
        if bool(getattr(spec, name)) == (name in files):
            problem = "is given twice" if name in files else "is missing; give a URI, or upload a file in a form"
            raise StatusError("INVALID_ARGUMENT", f"{name} {problem}")
    return spec
