"""Deeply nested JSON in a job's spec and in the reply of a trainer."""

import pytest

from vmafx.controller.jobs import job_spec
from vmafx.controller.samples import trainer_reply
from vmafx.http.errors import StatusError
from vmafx.kube import ObjectKey
from vmafx.kube.http1 import HttpResponse

NESTED = '{"x": ' + "[" * 10_000


def test_a_deeply_nested_spec_is_refused() -> None:
    with pytest.raises(StatusError, match="spec must be a JSON object"):
        job_spec("file:///a", "file:///b", "", "", NESTED)


def test_a_deeply_nested_reply_of_a_trainer_is_invalid() -> None:
    reply = trainer_reply(HttpResponse(200, "", NESTED.encode()), ObjectKey("films", "t"))
    assert reply.result == "unavailable"
    assert "sent an invalid reply" in reply.message
