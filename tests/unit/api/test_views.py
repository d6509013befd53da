"""A view is a part of its kind: a field that the kind does not have would silently stay empty.

What a job says of scoring is passed on to a worker and to the scorer: a field that one of them lacks would be lost.
"""

from typing import Any

import msgspec
import pytest
from msgspec import inspect as types

from tests.support.objects import bare, every_field, fields_of
from vmafx.api import VmafxJob, VmafxModelTraining, VmafxNode, ZerfooInferenceService
from vmafx.api.inference import InferenceView
from vmafx.api.job import JobSpecView, JobView, VmafxJobSpec
from vmafx.api.meta import ApiModel, MetaView
from vmafx.api.node import NodeView
from vmafx.api.schema import struct_fields
from vmafx.api.scoring import ScoringOptions, ScoringSpec
from vmafx.api.training import TrainingView
from vmafx.api.views import unchecked
from vmafx.cli.scoring_flags import ScoringFlags
from vmafx.fleet.reader import FleetJob, FleetNode
from vmafx.jobs.attempt import AttemptSpec
from vmafx.jobs.state import attempt_spec
from vmafx.scoring.request import ScoreOptions

VIEWS = [
    (JobView, VmafxJob),
    (FleetJob, VmafxJob),
    (NodeView, VmafxNode),
    (FleetNode, VmafxNode),
    (TrainingView, VmafxModelTraining),
    (InferenceView, ZerfooInferenceService),
]


@pytest.mark.parametrize(("view", "kind"), VIEWS)
def test_every_field_of_a_view_is_a_field_of_its_kind(view: type[Any], kind: type[Any]) -> None:
    assert list(differences(view, kind)) == []


@pytest.mark.parametrize(("view", "kind"), VIEWS)
def test_a_view_has_every_field_of_the_spec(view: type[Any], kind: type[Any]) -> None:
    assert fields_of(view, "spec").cls.__struct_fields__ == fields_of(kind, "spec").cls.__struct_fields__


def test_a_difference_is_noticed() -> None:
    class Status(ApiModel):
        phase: str = "Running"
        attempts: str = ""
        excludedNodes: tuple[int, ...] = ()
        speed: float = 0.0

    class View(ApiModel):
        metadata: MetaView
        status: Status = Status()

    told = " ".join(differences(View, VmafxJob))
    assert "status.phase is 'Running' when absent" in told
    assert "status.attempts is a StrType" in told
    assert "status.excludedNodes[] is a IntType" in told
    assert "status.speed is not in VmafxJobStatus" in told
    assert "status.phase is a" not in told  # any text can hold what a Literal allows


def test_a_spec_is_read_as_the_server_has_it_without_its_limits() -> None:
    beyond = {"reference": "a", "distorted": " ", "backend": "quantum", "priority": -1, "nodeSelector": {"": "?"}}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(beyond, VmafxJobSpec)
    assert msgspec.to_builtins(msgspec.convert(beyond, JobSpecView)) == beyond
    for given in (every_field(fields_of(VmafxJob, "spec")), {"reference": "s3://b/r", "distorted": "s3://b/d"}):
        view, spec = msgspec.convert(given, JobSpecView), msgspec.convert(given, VmafxJobSpec)
        assert msgspec.structs.asdict(view) == msgspec.structs.asdict(spec)


def test_a_view_is_as_light_as_what_it_is_a_view_of() -> None:
    class Example(ApiModel):
        name: str
        labels: dict[str, str] = {}

    view: Any = unchecked(Example, "View")
    for option in ("frozen", "gc", "omit_defaults", "array_like", "forbid_unknown_fields", "eq", "order", "weakref"):
        assert getattr(view.__struct_config__, option) == getattr(Example.__struct_config__, option), option
    assert view(name="a").labels is not view(name="b").labels


def test_what_a_job_says_of_scoring_reaches_the_scorer() -> None:
    """Every field, by any name: none is copied by hand."""
    given = every_field(fields_of(VmafxJob, "spec"))
    given["options"]["pooling"] = "p5"  # the others differ from their defaults already
    spec = msgspec.convert(given, JobSpecView)
    work = attempt_spec(JobView(MetaView("clip", "x", "u1"), spec), 3)
    assert msgspec.json.decode(msgspec.json.encode(work), type=AttemptSpec) == work
    assert set(AttemptSpec.__struct_fields__) == {*ScoringSpec.__struct_fields__, "id"}
    assert work.id == "u1-3"
    for name in ScoringSpec.__struct_fields__:
        assert getattr(work, name) == getattr(spec, name), name
    options, defaults = ScoreOptions.of(work), ScoreOptions()
    for name in ScoringOptions.__struct_fields__:
        assert getattr(options, name) == getattr(spec.options, name) != getattr(defaults, name), name
    assert options.model == spec.model


def test_without_options_a_job_is_scored_by_their_defaults() -> None:
    assert ScoreOptions.of(ScoringSpec("s3://b/r", "s3://b/d")) == ScoreOptions()


def test_every_scoring_option_has_a_flag_with_the_same_default() -> None:
    assert set(ScoringOptions.__struct_fields__) <= set(ScoringFlags.__struct_fields__)
    assert ScoringFlags().options() == ScoringOptions()


def differences(view: type[Any], whole: type[Any], path: str = "") -> list[str]:
    there = {field.encode_name: field for field in struct_fields(whole)}
    found = []
    for field in struct_fields(view):
        name = f"{path}.{field.encode_name}"
        if field.encode_name not in there:
            found.append(f"{name} is not in {whole.__name__}")
            continue
        found += _type_differences(field.type, there[field.encode_name].type, name)
        if field.default != there[field.encode_name].default and not field.required and not _is_struct(field.type):
            found.append(f"{name} is {field.default!r} when absent, in {whole.__name__} otherwise")
    return found


def _type_differences(view: types.Type, whole: types.Type, name: str) -> list[str]:
    mine, theirs = bare(view), bare(whole)
    match mine, theirs:
        case types.StructType(), types.StructType():
            return differences(mine.cls, theirs.cls, name)
        case types.VarTupleType(), types.VarTupleType():
            return _type_differences(mine.item_type, theirs.item_type, f"{name}[]")
        case types.DictType(), types.DictType():
            return _type_differences(mine.value_type, theirs.value_type, f"{name}.*")
        case types.StrType(), types.LiteralType() if all(isinstance(value, str) for value in theirs.values):
            return []
    return [] if type(mine) is type(theirs) else [f"{name} is a {mine}, not a {theirs}"]


def _is_struct(kind: types.Type) -> bool:
    return isinstance(bare(kind), types.StructType)
