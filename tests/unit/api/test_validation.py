"""Specs validated in Python: the rules and messages of the API server (tests/integration/api/test_parity.py)."""

from typing import Annotated, Any

import pytest
from hypothesis import given
from msgspec import Meta

from tests.support.inference_specs import ACCEPTED, REFUSED, SMALLEST, SPECS, Refused, unvalidated_spec
from vmafx.api.crd import definition
from vmafx.api.fields import PositiveQuantity, Quantity
from vmafx.api.inference import (
    CanarySpec,
    HealthCheckSpec,
    ResourceSpec,
    ZerfooInferenceService,
    ZerfooInferenceServiceSpec,
)
from vmafx.api.meta import SERVICE_NAME_RULE, ApiModel, Rule
from vmafx.api.validation import InvalidSpec, validate


def problems(value: ApiModel) -> tuple[str, ...]:
    try:
        validate(value, "spec")
    except InvalidSpec as error:
        return error.problems
    return ()


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.rule)
def test_a_spec_that_the_server_refuses_is_refused_with_its_message(case: Refused) -> None:
    with pytest.raises(InvalidSpec) as raised:
        unvalidated_spec(SMALLEST | case.change).validate()
    (problem,) = raised.value.problems
    field, _, message = problem.partition(": ")
    assert field == case.field
    assert case.message in message
    assert str(raised.value) == problem


def test_every_rule_of_the_schema_has_a_refused_case() -> None:
    tested = [case.message for case in REFUSED]
    untested = [message for message in _messages(definition(ZerfooInferenceService)) if message not in TESTED_ELSEWHERE]
    assert [message for message in untested if not any(part in message for part in tested)] == []


TESTED_ELSEWHERE = {
    SERVICE_NAME_RULE.message,  # about the name, which is not part of the spec
    "must be an RFC 3339 time, such as 2026-05-28T12:30:15Z",  # about the status
}


def _messages(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        own = [rule["message"] for rule in schema.get("x-kubernetes-validations", ())]
        return own + [message for part in schema.values() for message in _messages(part)]
    return [message for part in schema for message in _messages(part)] if isinstance(schema, list) else []


@pytest.mark.parametrize("spec", ACCEPTED)
def test_a_spec_that_the_server_accepts_is_accepted(spec: dict[str, Any]) -> None:
    unvalidated_spec(SMALLEST | spec).validate()


def test_every_violated_rule_is_named() -> None:
    spec = ZerfooInferenceServiceSpec(
        "",
        replicas=0,
        resources=ResourceSpec(cpu="much"),
        canary=CanarySpec("", weight=101),
        healthCheck=HealthCheckSpec(path="", interval="1s", timeout="2s"),
    )
    assert [problem.partition(": ")[0] for problem in problems(spec)] == [
        "spec.modelRef",
        "spec.replicas",
        "spec.resources.cpu",
        "spec.canary.modelRef",
        "spec.canary.weight",
        "spec.healthCheck.path",
    ]


@pytest.mark.parametrize("value", [None, True, 1.5, [], {}, b"x"])
@pytest.mark.parametrize("field", ["modelRef", "replicas", "port", "healthCheck"])
def test_a_value_of_another_type_is_refused(field: str, value: Any) -> None:
    spec = ZerfooInferenceServiceSpec(**{**SMALLEST, field: value})
    assert problems(spec) == (f"spec.{field}: {type(value).__name__} {value!r} is not valid",)


@pytest.mark.parametrize("value", [True, 1.5, [], b"x"])
def test_a_quantity_or_duration_of_another_type_is_refused(value: Any) -> None:
    name = type(value).__name__
    assert problems(ResourceSpec(cpu=value)) == (f"spec.cpu: {name} {value!r} is not valid",)
    assert problems(HealthCheckSpec(interval=value)) == (f"spec.interval: {name} {value!r} is not valid",)


def test_a_ratio_must_be_a_number() -> None:
    spec = unvalidated_spec(SMALLEST | {"canary": {"modelRef": "other", "gates": {"maxErrorRate": float("nan")}}})
    assert problems(spec) == ("spec.canary.gates.maxErrorRate: should be greater than or equal to 0",)


@pytest.mark.parametrize("interval", ["2562047h47m16.854775808s", "9999999999h"])
def test_a_duration_that_is_too_long_for_the_server_is_refused(interval: str) -> None:
    assert problems(HealthCheckSpec(interval=interval)) != ()
    assert problems(HealthCheckSpec(interval="2562047h")) == ()


@given(SPECS)
def test_a_spec_is_valid_or_says_which_fields_are_not(spec: dict[str, Any]) -> None:
    for problem in problems(unvalidated_spec(spec)):
        field, _, message = problem.partition(": ")
        assert field.startswith("spec")
        assert message


class Amounts(ApiModel):
    """Quantities that may be zero, and not."""

    any: Quantity = "0"
    positive: PositiveQuantity = "1"
    name: Annotated[str, Meta(pattern=r"^[a-z]+\Z")] = "a"


def test_quantities_and_patterns_outside_of_services() -> None:
    assert problems(Amounts()) == ()
    assert problems(Amounts(any="x", positive="0", name="A")) == (
        "spec.any: must be a quantity, such as 500m, 4 or 16Gi",
        "spec.positive: must be a quantity greater than zero, such as 500m, 4 or 16Gi",
        r"spec.name: does not match ^[a-z]+\Z",
    )


class OnServerOnly(ApiModel):
    """A Struct whose rule cannot be checked in Python."""

    rules = (Rule(check="true", message="always"),)


def test_a_rule_without_a_check_in_python_is_an_error() -> None:
    with pytest.raises(TypeError, match="OnServerOnly has a rule without a check in Python: always"):
        validate(OnServerOnly(), "spec")
