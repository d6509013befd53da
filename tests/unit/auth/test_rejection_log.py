"""The log of rejected calls: what it has, and how often."""

import io
import json
from collections.abc import Iterator

import pytest

from vmafx import logs
from vmafx.auth.access import MAX_REMEMBERED, REJECTION_LOG_INTERVAL, RejectionLog
from vmafx.auth.credentials import CallerCredentials
from vmafx.http.errors import Code, StatusError


class Clock:
    at = 0.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    out = io.StringIO()
    logs.configure("info", "json", out)
    yield out
    logs.configure("info", "console")


def reject(rejections: RejectionLog, peer: str, code: Code = "UNAUTHENTICATED", caller: str = "") -> None:
    credentials = CallerCredentials("a-token", peer=peer)
    with pytest.raises(StatusError), rejections.log_rejection("GetJob", credentials):
        raise StatusError(code, "not you \x1b[31m", caller=caller)


def test_a_rejection_is_logged_once_a_minute_per_caller_address_and_code(out: io.StringIO) -> None:
    clock = Clock()
    rejections = RejectionLog(clock)
    for port in range(50):
        reject(rejections, f"ipv4:10.0.0.1:{port}")
    reject(rejections, "ipv4:10.0.0.1:1", "PERMISSION_DENIED", "encoder")
    reject(rejections, "ipv4:10.0.0.1:1", "PERMISSION_DENIED", "other")
    reject(rejections, "ipv4:10.0.0.2:1")
    clock.at = REJECTION_LOG_INTERVAL
    reject(rejections, "ipv4:10.0.0.1:1")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["caller"], line["peer"]) for line in lines] == [
        ("unknown", "10.0.0.1"), ("encoder", "10.0.0.1"), ("other", "10.0.0.1"), ("unknown", "10.0.0.2"),
        ("unknown", "10.0.0.1"),
    ]  # fmt: skip
    assert {line["level"] for line in lines} == {"warn"}
    assert {line["call"] for line in lines} == {"GetJob"}
    assert lines[0]["reason"] == "UNAUTHENTICATED: not you [31m"
    assert "a-token" not in out.getvalue()


def test_the_number_of_remembered_callers_is_limited(out: io.StringIO) -> None:
    rejections = RejectionLog(Clock())
    for number in range(MAX_REMEMBERED + 1):
        reject(rejections, "ipv4:10.0.0.1:1", caller=f"caller-{number}")
    reject(rejections, "ipv4:10.0.0.1:1", caller="caller-0")  # evicted since
    assert out.getvalue().count('"caller-0"') == 2


def test_an_invalid_request_is_not_logged(out: io.StringIO) -> None:
    reject(RejectionLog(Clock()), "ipv4:10.0.0.1:1", "INVALID_ARGUMENT")
    assert out.getvalue() == ""
