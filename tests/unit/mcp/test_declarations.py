"""What clients are told: schemas that validators accept, and what may be named."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from vmafx.mcp.arguments import CompareArguments, InvalidArguments, LadderArguments, ScoreArguments, parse
from vmafx.mcp.main import request_policy
from vmafx.mcp.server import TOOLS, ToolSpec
from vmafx.mcp.tools import Tools
from vmafx.mcp.work import check_work
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.request import ScoreOptions

CLIPS = {"reference": "a.mkv", "distorted": "b.mkv"}
EXAMPLES: dict[str, dict[str, Any]] = {
    "score": {**CLIPS, "pooling": "p5", "features": ["psnr"], "wait": 5},
    "compare": {"source": "a.mkv", "encoders": ["libx264:slow"], "targetVmaf": 93},
    "ladder": {"source": "a.mkv", "heights": [720], "maxRate": 8e6},
    "explain_score": {"job": "score-1"},
    "submit_job": {**CLIPS, "priority": 3},
    "get_job": {"id": "score-1", "wait": None},
    "list_jobs": {"phase": "Running", "limit": 5},
    "cancel_job": {"id": "score-1"},
    "list_nodes": {},
}


@pytest.mark.parametrize("spec", TOOLS, ids=lambda spec: spec.name)
def test_the_schemas_of_a_tool_are_valid_and_agree_with_the_parser(spec: ToolSpec) -> None:
    assert callable(getattr(Tools, spec.name))
    tool = spec.declared()
    for schema in (tool.input_schema, tool.output_schema):
        assert schema is not None
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
        text = msgspec.json.encode(schema).decode()
        assert "x-kubernetes" not in text
        assert "x-vmafx" not in text
        for pattern in re.findall(r'"pattern":"([^"]*)"', text):
            assert "\\Z" not in pattern, "a pattern of Python only"
    validator = jsonschema.Draft202012Validator(tool.input_schema)
    example = EXAMPLES[spec.name]
    validator.validate(example)
    parse(spec.arguments, example)
    unknown = {**example, "output": "x"}
    assert not validator.is_valid(unknown)
    with pytest.raises(InvalidArguments, match="unknown field"):
        parse(spec.arguments, unknown)


def test_a_score_has_the_options_of_the_command() -> None:
    options = set(ScoreOptions.__struct_fields__) - {"threads"}
    assert options <= set(ScoreArguments.__struct_fields__)


@pytest.mark.parametrize(
    "work",
    [
        ScoreArguments(reference="a", distorted="b", size="big"),
        ScoreArguments(reference="a", distorted="b", subsample=5000),
        CompareArguments(source="a", encoders=("libx264:none",)),
        CompareArguments(source="a", qualities=(20.0,), targetVmaf=90),
        LadderArguments(source="a", encoder="rm"),
        LadderArguments(source="a", qualities=(99.0,)),
        LadderArguments(source="a", maxRate=1.0, minRate=2.0),
    ],
)
def test_options_that_no_clip_could_have_are_refused_before_there_is_a_job(
    work: ScoreArguments | CompareArguments | LadderArguments,
) -> None:
    with pytest.raises(BadInput):
        check_work(work)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_numbers_that_are_not_finite_are_refused(number: float) -> None:
    for arguments in ({"maxRate": number}, {"top": number}, {"qualities": [number]}):
        with pytest.raises(InvalidArguments):
            parse(LadderArguments, {"source": "a", **arguments})


def test_unpaired_surrogates_are_no_text() -> None:
    with pytest.raises(InvalidArguments, match="surrogate"):
        parse(ScoreArguments, {"reference": "\ud800", "distorted": "b"})


def test_local_clips_are_never_allowed_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    nothing, policy = (tmp_path / "no-clips",), MediaPolicy()
    assert request_policy(policy, tmp_path, None).roots == nothing, "over HTTP"
    assert request_policy(policy, tmp_path, Path("/")).roots == nothing
    assert request_policy(policy, tmp_path, tmp_path / "home").roots == nothing
    assert request_policy(policy, tmp_path, tmp_path).roots == nothing, "which has the home folder"
    assert request_policy(policy, tmp_path, tmp_path / "work").roots == (tmp_path / "work",)
    chosen = msgspec.structs.replace(policy, roots=(Path("/clips"),), model_dir=Path("/models"))
    assert request_policy(chosen, tmp_path, tmp_path).roots == (Path("/clips"), Path("/models"))
