"""A view is a part of its kind: a field that the kind does not have would silently stay empty."""

from typing import Any

import pytest
from msgspec import inspect as types

from tests.support.objects import bare
from vmafx.api import VmafxJob, VmafxModelTraining, VmafxNode, ZerfooInferenceService
from vmafx.api.inference import InferenceView
from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.api.schema import struct_fields
from vmafx.api.training import TrainingView
from vmafx.fleet.views import SeenJob, SeenNode

VIEWS = [
    (JobView, VmafxJob),
    (SeenJob, VmafxJob),
    (NodeView, VmafxNode),
    (SeenNode, VmafxNode),
    (TrainingView, VmafxModelTraining),
    (InferenceView, ZerfooInferenceService),
]


@pytest.mark.parametrize(("view", "kind"), VIEWS)
def test_every_field_of_a_view_is_a_field_of_its_kind(view: type[Any], kind: type[Any]) -> None:
    assert list(differences(view, kind)) == []


def test_a_field_that_the_kind_does_not_have_is_noticed() -> None:
    assert list(differences(JobView, VmafxNode))


def _is_text(kind: types.Type) -> bool:
    return isinstance(kind, types.LiteralType) and all(isinstance(value, str) for value in kind.values)


def differences(view: type[Any], whole: type[Any], path: str = "") -> list[str]:
    there = {field.encode_name: field for field in struct_fields(whole)}
    found = []
    for field in struct_fields(view):
        name = f"{path}.{field.encode_name}"
        if field.encode_name not in there:
            found.append(f"{name} is not in {whole.__name__}")
            continue
        mine, theirs = bare(field.type), bare(there[field.encode_name].type)
        if isinstance(mine, types.StructType) and isinstance(theirs, types.StructType):
            found += differences(mine.cls, theirs.cls, name)
        elif type(mine) is not type(theirs) and not (isinstance(mine, types.StrType) and _is_text(theirs)):
            found.append(f"{name} is a {mine}, in {whole.__name__} a {theirs}")
        elif field.default != there[field.encode_name].default and not field.required:
            found.append(f"{name} is {field.default!r} when absent, in {whole.__name__} otherwise")
    return found
