"""Requests to score: what is accepted, and how it becomes the options of the scorer."""

from typing import Any

import pytest

from vmafx.http.errors import StatusError
from vmafx.http.uploads import UploadedFile
from vmafx.scoring.errors import BadInput, EngineFailure, NodeFault
from vmafx.scoring.request import RequestOptions
from vmafx.serving import request
from vmafx.serving.job import JobError
from vmafx.serving.request import ScoreRequest

BOTH = {"reference": "a.mkv", "distorted": "b.mkv"}
FILE = UploadedFile(fd=-1, size=1, sha256="0" * 64, filename="x.mkv")


def parse(body: dict[str, Any], **files: UploadedFile) -> ScoreRequest:
    return request._parse(body, files)


def test_all_fields_are_read() -> None:
    layout = {"width": 16, "height": 16, "pixelFormat": "yuv420p"}
    options = {"subsample": 2, "pooling": "p5", "features": ["psnr"], "size": "64x32", "shortest": True}
    spec = parse({**BOTH, "distortedFormat": layout, "model": "m", "options": options, "deadlineSeconds": 60})
    scored = spec.score_options("m.json", 3)
    assert (scored.subsample, scored.pooling, scored.features, scored.size) == (2, "p5", ("psnr",), (64, 32))
    assert (scored.shortest, scored.conform, scored.model, scored.threads) == (True, False, "m.json", 3)
    assert spec.distortedFormat is not None


@pytest.mark.parametrize(
    ("body", "files", "message"),
    [
        ({}, {}, "reference is missing"),
        ({"reference": "a"}, {}, "distorted is missing"),
        ({"reference": "", "distorted": "b"}, {}, "reference is missing"),
        (BOTH, {"reference": FILE}, "reference is given twice"),
        ({**BOTH, "more": 1}, {}, "unknown field `more`"),
        ({**BOTH, "reference": 1}, {}, "reference"),
        ({**BOTH, "reference": "x" * 3000}, {}, "reference"),
        ({**BOTH, "options": {"features": ["nope"]}}, {}, r"\$\.options\.features"),
        ({**BOTH, "options": {"features": ["psnr"] * 7}}, {}, r"\$\.options\.features"),
        ({**BOTH, "deadlineSeconds": 10**6}, {}, "deadlineSeconds"),
        ({**BOTH, "referenceFormat": {"width": 1}}, {}, "referenceFormat"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], files: dict[str, UploadedFile], message: str) -> None:
    with pytest.raises(StatusError, match=message) as raised:
        parse(body, **files)
    assert raised.value.status == 400


def test_files_replace_uris() -> None:
    assert parse({}, reference=FILE, distorted=FILE) == ScoreRequest()
    assert parse({"distorted": "b"}, reference=FILE).distorted == "b"


@pytest.mark.parametrize("size", ["1920", "0x10", "10x", "x", "20000x10", "10x10x10", "\uff110x10", " 10x10"])
def test_a_size_is_checked(size: str) -> None:
    with pytest.raises(BadInput, match="size must be"):
        ScoreRequest(options=RequestOptions(size=size)).score_options("m", 1)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            BadInput("distorted", "it is short", "use --shortest, or --scale-to and --fps"),
            ("INVALID_ARGUMENT", 422, "distorted", "use options.shortest, or options.size and frameRate of the format"),
        ),
        (BadInput("options", "--conform needs a rate"), ("INVALID_ARGUMENT", 422, "options", "")),
        (NodeFault("the disk is full"), ("UNAVAILABLE", 503, "", "")),
        (EngineFailure("ffmpeg failed\nbadly"), ("INTERNAL", 500, "", "")),
    ],
)
def test_errors_of_scoring_are_problems(error: Any, expected: tuple[str, int, str, str]) -> None:
    problem = JobError.of(error)
    assert (problem.code, problem.status, problem.part, problem.remedy) == expected
    assert "--" not in problem.message
    assert "\n" not in problem.message
    raised = problem.raised()
    assert (raised.code, raised.status) == (problem.code, problem.status)
    assert set(raised.extensions) == {name for name in ("part", "remedy") if getattr(problem, name)}
