"""The HTTP API as an OpenAPI 3.1 document, built from the Structs of requests and responses."""

from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any

import msgspec

from vmafx.api.schema import portable
from vmafx.api.scoring import DEFAULT_MODEL
from vmafx.http import openapi
from vmafx.http.openapi import PROBLEM_RESPONSE, REQUEST_ID_PARAMETER, RESPONSE_HEADERS, list_parameters
from vmafx.http.responses import EVENTS, JSON, NDJSON
from vmafx.scoring.request import RequestOptions
from vmafx.scoring.result import ClipFacts, EngineFacts, FeatureStatistics, Progress
from vmafx.serving.models import ModelInfo, ModelList
from vmafx.serving.request import FORM, ScoreRequest
from vmafx.serving.results import ScoreAnswer, result_links
from vmafx.serving.settings import MAX_WAIT
from vmafx.serving.views import ServedJobList, ServedJobView

TYPES = (ScoreRequest, ScoreAnswer, ServedJobView, ServedJobList, ModelList)
SCHEMAS = "#/components/schemas/"
SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"session": []}]
SECURITY_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key (`--auth keys`) or a Kubernetes token (`--auth token`); none with `--auth none`.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "vmafx-key",
        "description": "The same in a cookie, which POST /v1/session sets.",
    },
}

_KEY, _JOB = "5f3a" * 16, "0b9c" * 8
_CREATED = datetime(2026, 5, 28, 12, 30, 15, tzinfo=UTC)
_PATH = f"/v1/jobs/{_JOB}"
_REFERENCE, _DISTORTED = "https://media.example.com/source.mp4", "https://media.example.com/encode-2M.mp4"
REQUEST = ScoreRequest(
    reference=_REFERENCE, distorted=_DISTORTED, options=RequestOptions(pooling="harmonic_mean", features=("psnr",))
)
_CLIP = ClipFacts(
    uri=_REFERENCE,
    digest=f"sha256:{'ab' * 32}",
    container="mov,mp4,m4a,3gp,3g2,mj2",
    codec="h264",
    width=1920,
    height=1080,
    pixelFormat="yuv420p",
    frames=250,
    frameRate=25.0,
)
ANSWER = ScoreAnswer(
    score=93.41,
    pooling="harmonic_mean",
    model=DEFAULT_MODEL,
    frames=250,
    fps=118.2,
    features={"vmaf": FeatureStatistics(93.5, 93.41, 88.1, 97.9, {"p1": 88.3, "p50": 93.6, "p99": 97.7})},
    reference=_CLIP,
    distorted=msgspec.structs.replace(_CLIP, uri=_DISTORTED, digest=f"sha256:{'cd' * 32}"),
    width=1920,
    height=1080,
    pixelFormat="yuv420p",
    subsample=1,
    engine=EngineFacts(ffmpeg="7.0.2", libvmaf="3.0.0", decoder="FFmpeg 8.1"),
    key=_KEY,
    links=result_links(_KEY),
)
QUEUED = ServedJobView(
    id=_JOB,
    state="queued",
    reference=_REFERENCE,
    distorted=_DISTORTED,
    model=DEFAULT_MODEL,
    createdAt=_CREATED,
    position=2,
    expectedStartSeconds=31.5,
    links={"self": _PATH, "events": f"{_PATH}/events", "cancel": f"{_PATH}/cancel"},
)
RUNNING = msgspec.structs.replace(
    QUEUED,
    state="running",
    startedAt=_CREATED + timedelta(seconds=30),
    position=None,
    expectedStartSeconds=None,
    progress=Progress("scoring", 120, 250, 118.2, 1.1),
)
DONE = msgspec.structs.replace(
    RUNNING,
    state="succeeded",
    finishedAt=_CREATED + timedelta(seconds=33),
    progress=None,
    score=93.41,
    links={**QUEUED.links, "result": f"/v1/results/{_KEY}", "page": f"/results/{_KEY}"},
)
CANCELLED = msgspec.structs.replace(QUEUED, state="cancelled", position=None, expectedStartSeconds=None)
MODELS = ModelList([ModelInfo(DEFAULT_MODEL, default=True), ModelInfo("vmaf_v0.6.1neg"), ModelInfo("vmaf_4k_v0.6.1")])


def document() -> dict[str, Any]:
    """The whole document."""
    paths = {**_probes(), **_score_path(), **_job_paths(), **_result_paths(), **_other_paths()}
    schemas = {name: portable(schema) for name, schema in _components().items()}
    shared = openapi.COMPONENTS
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "vmafx serve",
            "version": version("vmafx"),
            "description": "Scores of video clips (VMAF): over URIs or uploads, at once or as jobs.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": SECURITY,
        "paths": paths,
        "components": {**shared, "schemas": {**shared["schemas"], **schemas}, "securitySchemes": SECURITY_SCHEMES},
    }


def _components() -> dict[str, dict[str, Any]]:
    return msgspec.json.schema_components(TYPES, ref_template=f"{SCHEMAS}{{name}}")[1]


def _score_path() -> dict[str, Any]:
    clip = "as a file, or its URI as text."
    form = {
        "type": "object",
        "properties": {
            "reference": {"type": "string", "description": f"The reference clip {clip}"},
            "distorted": {"type": "string", "description": f"The distorted clip, which is scored, {clip}"},
            "spec": {
                "type": "string",
                "description": "Everything but the clips, as JSON.",
                "contentMediaType": JSON,
                "contentSchema": _ref(ScoreRequest),
            },
        },
        "required": ["reference", "distorted"],
        "additionalProperties": False,
    }
    example = {"reference": _REFERENCE, "distorted": _DISTORTED, "spec": '{"options": {"shortest": true}}'}
    prefer = {
        "name": "Prefer",
        "in": "header",
        "description": f"`wait=N`: wait N seconds for the score, at most {MAX_WAIT}; `respond-async`: do not wait.",
        "schema": {"type": "string"},
        "example": "wait=30",
    }
    accepted = _json("The job, which goes on: the score takes longer than the request waits.", ServedJobView, QUEUED)
    accepted["headers"] |= {
        "Location": {"description": "Path of the job.", "schema": {"type": "string"}, "example": _PATH},
        "Retry-After": {"$ref": "#/components/headers/RetryAfter"},
    }
    operation = _operation(
        "score",
        "Score a distorted clip against a reference.",
        {"200": _json("The result.", ScoreAnswer, ANSWER), "202": accepted},
        [prefer],
        "Clips are URIs, or files in a form. A client that disconnects before it has a response cancels the request. "
        "422 is an error of the clips or options: `part` names what is wrong, `remedy` what helps.",
    )
    operation["requestBody"] = {
        "required": True,
        "content": {
            JSON: {"schema": _ref(ScoreRequest), "example": msgspec.to_builtins(REQUEST)},
            FORM: {"schema": form, "example": example},
        },
    }
    return {"/v1/score": {"post": operation}}


def _job_paths() -> dict[str, Any]:
    job = _path_parameter("id", "ID of the job.", "^[0-9a-f]{32}$", _JOB)
    wait = {
        "name": "wait",
        "in": "query",
        "description": "Seconds to wait for the job to end.",
        "schema": {"type": "integer", "minimum": 0, "maximum": MAX_WAIT, "default": 0},
        "example": 30,
    }
    page = _json(
        "A page of your jobs, the newest first. As a stream: all jobs, the oldest first, one on each line, and each "
        "again when it changes.",
        ServedJobList,
        ServedJobList([DONE], _JOB),
    )
    page["content"][NDJSON] = {"schema": _ref(ServedJobView), "example": msgspec.to_builtins(RUNNING)}
    events = {
        "description": "An event `job` with the job, at once and after each change; the last one is `done`.",
        "headers": RESPONSE_HEADERS,
        "content": {
            EVENTS: {
                "schema": {"type": "string"},
                "example": f"event: job\nid: 3\ndata: {msgspec.json.encode(RUNNING).decode()}\n\n",
            }
        },
    }
    cancelled = _json("The job, which has ended, or is about to.", ServedJobView, CANCELLED)
    return {
        "/v1/jobs": {
            "get": _operation("listJobs", "List or watch your jobs.", {"200": page}, list_parameters(streams=False))
        },
        "/v1/jobs/{id}": {
            "get": _operation("getJob", "Get a job.", {"200": _json("The job.", ServedJobView, DONE)}, [job, wait])
        },
        "/v1/jobs/{id}/events": {
            "get": _operation("jobEvents", "Follow a job by server-sent events.", {"200": events}, [job])
        },
        "/v1/jobs/{id}/cancel": {
            "post": _operation(
                "cancelJob", "Cancel a job; one that has ended stays as it is.", {"200": cancelled}, [job]
            )
        },
    }


def _result_paths() -> dict[str, Any]:
    key = _path_parameter("key", "Key of the result: a digest of what was scored.", "^[0-9a-f]{64}$", _KEY)
    kind = {
        "name": "format",
        "in": "path",
        "required": True,
        "description": "Format of the report; svg and png are the curve of a feature per frame.",
        "schema": {"type": "string", "enum": ["html", "json", "csv", "svg", "png"]},
        "example": "csv",
    }
    feature = {
        "name": "feature",
        "in": "query",
        "description": "With svg and png: the feature whose curve it is, by its name in `features` of the result.",
        "schema": {"type": "string", "default": "vmaf"},
        "example": "psnr_y",
    }
    html = {"schema": {"type": "string"}, "example": "<!doctype html>…"}
    csv = {"schema": {"type": "string"}, "example": "frame,vmaf\n0,93.1\n"}
    report = {
        "description": "The report, with the values of every frame.",
        "headers": RESPONSE_HEADERS,
        "content": {
            "text/html": html,
            "text/csv": csv,
            JSON: {"schema": {"type": "object"}, "example": {"schema": 1}},
            "image/svg+xml": {"schema": {"type": "string"}, "example": "<svg …"},
            "image/png": {"schema": {"type": "string", "contentMediaType": "image/png"}, "example": "\x89PNG…"},
        },
    }
    page = {"description": "The report.", "headers": RESPONSE_HEADERS, "content": {"text/html": html}}
    return {
        "/v1/results/{key}": {
            "get": _operation(
                "getResult",
                "Get a result.",
                {"200": _json("The result.", ScoreAnswer, ANSWER)},
                [key],
                "The names of the clips are those of the request that was scored first.",
            )
        },
        "/v1/results/{key}/report.{format}": {
            "get": _operation("getReport", "Download the report of a result.", {"200": report}, [key, kind, feature])
        },
        "/results/{key}": {
            "get": _operation("resultPage", "The report of a result as a page, to link to.", {"200": page}, [key])
        },
    }


def _other_paths() -> dict[str, Any]:
    models = _json("The models that requests can name, the default first.", ModelList, MODELS)
    cookie = {"description": "The cookie.", "schema": {"type": "string"}, "example": "vmafx-key=…; HttpOnly"}
    session = {"description": "Done.", "headers": {**RESPONSE_HEADERS, "Set-Cookie": cookie}}
    return {
        "/v1/models": {"get": _operation("listModels", "List the models.", {"200": models}, [])},
        "/v1/session": {
            "post": _operation("startSession", "Remember the credentials in a cookie.", {"204": session}, []),
            "delete": {**_operation("endSession", "Forget them.", {"204": session}, []), "security": []},
        },
    }


def _probes() -> dict[str, Any]:
    texts = {
        "/healthz": ("health", "Whether the process works.", "text/plain", "ok"),
        "/readyz": ("readiness", "Whether the model is loaded and the server is not stopping.", "text/plain", "ok"),
        "/metrics": ("metrics", "Prometheus metrics.", "text/plain", "# HELP …"),
        "/openapi.json": ("openapi", "This document.", JSON, {"openapi": "3.1.0"}),
    }  # fmt: skip
    paths = {}
    for path, (name, summary, kind, example) in texts.items():
        schema = {"type": "object" if kind == JSON else "string"}
        response = {"description": summary, "content": {kind: {"schema": schema, "example": example}}}
        responses = {"200": response}
        if path == "/readyz":
            unready = {"schema": schema, "example": "the server is stopping"}
            responses["503"] = {"description": "Not ready; the body says why.", "content": {kind: unready}}
        paths[path] = {"get": {"operationId": name, "summary": summary, "security": [], "responses": responses}}
    return paths


def _operation(
    name: str, summary: str, responses: dict[str, Any], parameters: list[dict[str, Any]], description: str = ""
) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        **({"description": description} if description else {}),
        "security": SECURITY,
        "parameters": [*parameters, REQUEST_ID_PARAMETER],
        "responses": {**responses, "default": PROBLEM_RESPONSE},
    }


def _json(description: str, kind: type[msgspec.Struct], example: msgspec.Struct) -> dict[str, Any]:
    content = {JSON: {"schema": _ref(kind), "example": msgspec.to_builtins(example)}}
    return {"description": description, "headers": dict(RESPONSE_HEADERS), "content": content}


def _path_parameter(name: str, description: str, pattern: str, example: str) -> dict[str, Any]:
    schema = {"type": "string", "pattern": pattern}
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": schema,
        "example": example,
    }


def _ref(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": f"{SCHEMAS}{kind.__name__}"}
