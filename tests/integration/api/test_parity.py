"""The library validates inference services as the API server does, with the same messages."""

from typing import Any

import pytest
from hypothesis import given, settings

from tests.integration.api.test_fields import on_server, untyped
from tests.support.inference_specs import ACCEPTED, REFUSED, SMALLEST, SPECS, Refused, unvalidated_spec
from vmafx.api.inference import ZerfooInferenceServiceSpec
from vmafx.api.kinds import ZerfooInferenceService
from vmafx.api.meta import API_VERSION
from vmafx.api.validation import InvalidSpec
from vmafx.kube import Client
from vmafx.kube.errors import Invalid


async def send(client: Client, spec: dict[str, Any]) -> None:
    """Have the server validate a spec, without storing it."""
    meta = {"generateName": "x-"}
    body = {"apiVersion": API_VERSION, "kind": "ZerfooInferenceService", "metadata": meta, "spec": spec}
    await client.create(untyped(ZerfooInferenceService), body, "default", dry_run=True)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.rule)
async def test_the_server_refuses_what_the_library_refuses(client: Client, case: Refused) -> None:
    with pytest.raises(Invalid) as raised:
        await send(client, SMALLEST | case.change)
    causes = raised.value.status.details.causes
    assert any(cause.field == case.field and case.message in cause.message for cause in causes), causes


@pytest.mark.parametrize("spec", ACCEPTED)
async def test_the_server_accepts_what_the_library_accepts(client: Client, spec: dict[str, Any]) -> None:
    await send(client, SMALLEST | spec)


@settings(on_server, max_examples=200)
@given(SPECS)
async def test_the_library_and_the_server_agree(client: Client, spec: dict[str, Any]) -> None:
    accepted = True
    try:
        await send(client, spec)
    except Invalid:
        accepted = False
    assert is_valid(unvalidated_spec(spec)) == accepted


def is_valid(spec: ZerfooInferenceServiceSpec) -> bool:
    try:
        spec.validate()
    except InvalidSpec:
        return False
    return True
