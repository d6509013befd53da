"""Views have only fields of their kinds, and every scoring field of a job reaches the worker.

A view field that its kind does not have would silently stay empty.
"""

from typing import Any

import msgspec
import pytest
from msgspec import inspect as types

from tests.support.objects import bare, every_field, fields_of
from vmafx.api.inference import InferenceView
from vmafx.api.job import JobSpecView, JobView, VmafxJobSpec
from vmafx.api.kinds import VmafxJob, VmafxModelTraining, VmafxNode, ZerfooInferenceService
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


def test_a_view_that_differs_from_its_kind_is_reported() -> None:
    class Status(ApiModel):
        phase: str = "Running"
        attempts: str = ""
        excludedNodes: tuple[int, ...] = ()
        speed: float = 0.0

    class View(ApiModel):
        metadata: MetaView
        status: Status = Status()

    reported = " ".join(differences(View, VmafxJob))
    assert "status.phase is 'Running' when absent" in reported
    assert "status.attempts is a StrType" in reported
    assert "status.excludedNodes[] is a IntType" in reported
    assert "status.speed is not in VmafxJobStatus" in reported
    assert "status.phase is a" not in reported  # a str can hold any value of a Literal


def test_a_view_reads_a_spec_without_its_limits() -> None:
    invalid = {"reference": "a", "distorted": " ", "backend": "quantum", "priority": -1, "nodeSelector": {"": "?"}}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(invalid, VmafxJobSpec)
    assert msgspec.to_builtins(msgspec.convert(invalid, JobSpecView)) == invalid
    for given in (every_field(fields_of(VmafxJob, "spec")), {"reference": "s3://b/r", "distorted": "s3://b/d"}):
        view, spec = msgspec.convert(given, JobSpecView), msgspec.convert(given, VmafxJobSpec)
        assert msgspec.structs.asdict(view) == msgspec.structs.asdict(spec)


def test_a_view_has_the_struct_options_of_its_model() -> None:
    class Example(ApiModel):
        name: str
        labels: dict[str, str] = {}

    view: Any = unchecked(Example, "View")
    for option in ("frozen", "gc", "omit_defaults", "array_like", "forbid_unknown_fields", "eq", "order", "weakref"):
        assert getattr(view.__struct_config__, option) == getattr(Example.__struct_config__, option), option
    assert view(name="a").labels is not view(name="b").labels


def test_every_scoring_field_of_a_job_reaches_the_scorer() -> None:
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


def test_a_job_without_options_is_scored_with_the_defaults() -> None:
    assert ScoreOptions.of(ScoringSpec("s3://b/r", "s3://b/d")) == ScoreOptions()


def test_every_scoring_option_has_a_flag_with_the_same_default() -> None:
    assert set(ScoringOptions.__struct_fields__) <= set(ScoringFlags.__struct_fields__)
    assert ScoringFlags().options() == ScoringOptions()


def differences(view: type[Any], kind: type[Any], path: str = "") -> list[str]:
    """The fields of a view that its kind does not have, or has with another type or default."""
    expected = {field.encode_name: field for field in struct_fields(kind)}
    found = []
    for field in struct_fields(view):
        name = f"{path}.{field.encode_name}"
        if field.encode_name not in expected:
            found.append(f"{name} is not in {kind.__name__}")
            continue
        found += _type_differences(field.type, expected[field.encode_name].type, name)
        if field.default != expected[field.encode_name].default and not field.required and not _is_struct(field.type):
            found.append(f"{name} is {field.default!r} when absent, but not in {kind.__name__}")
    return found


def _type_differences(view: types.Type, kind: types.Type, name: str) -> list[str]:
    actual, expected = bare(view), bare(kind)
    match actual, expected:
        case types.StructType(), types.StructType():
            return differences(actual.cls, expected.cls, name)
        case types.VarTupleType(), types.VarTupleType():
            return _type_differences(actual.item_type, expected.item_type, f"{name}[]")
        case types.DictType(), types.DictType():
            return _type_differences(actual.value_type, expected.value_type, f"{name}.*")
        case types.StrType(), types.LiteralType() if all(isinstance(value, str) for value in expected.values):
            return []
    return [] if type(actual) is type(expected) else [f"{name} is a {actual}, not a {expected}"]


def _is_struct(kind: types.Type) -> bool:
    return isinstance(bare(kind), types.StructType)
