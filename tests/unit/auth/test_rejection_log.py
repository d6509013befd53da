"""Callers that are turned away: what the log tells of them, and how often."""

import io
import json
from collections.abc import Iterator

import pytest

from vmafx import logs
from vmafx.auth.access import MAX_REMEMBERED, REJECTION_LOG_INTERVAL, RejectionLog
from vmafx.auth.credentials import CallerCredentials
from vmafx.http.errors import CallRefused, Code


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


def turned_away(refusals: RejectionLog, peer: str, code: Code = "UNAUTHENTICATED", caller: str = "") -> None:
    shown = CallerCredentials("a-token", peer=peer)
    with pytest.raises(CallRefused), refusals.told("GetJob", shown):
        raise CallRefused(code, "not you \x1b[31m", caller=caller)


def test_a_line_a_minute_for_each_caller_address_and_reason(out: io.StringIO) -> None:
    clock = Clock()
    refusals = RejectionLog(clock)
    for port in range(50):
        turned_away(refusals, f"ipv4:10.0.0.1:{port}")
    turned_away(refusals, "ipv4:10.0.0.1:1", "PERMISSION_DENIED", "encoder")
    turned_away(refusals, "ipv4:10.0.0.1:1", "PERMISSION_DENIED", "other")
    turned_away(refusals, "ipv4:10.0.0.2:1")
    clock.at = REJECTION_LOG_INTERVAL
    turned_away(refusals, "ipv4:10.0.0.1:1")
    said = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(one["caller"], one["peer"]) for one in said] == [
        ("unknown", "10.0.0.1"), ("encoder", "10.0.0.1"), ("other", "10.0.0.1"), ("unknown", "10.0.0.2"),
        ("unknown", "10.0.0.1"),
    ]  # fmt: skip
    assert {one["level"] for one in said} == {"warn"}
    assert {one["call"] for one in said} == {"GetJob"}
    assert said[0]["why"] == "UNAUTHENTICATED: not you [31m"
    assert "a-token" not in out.getvalue()


def test_what_is_remembered_has_a_limit(out: io.StringIO) -> None:
    refusals = RejectionLog(Clock())
    for number in range(MAX_REMEMBERED + 1):
        turned_away(refusals, "ipv4:10.0.0.1:1", caller=f"caller-{number}")
    turned_away(refusals, "ipv4:10.0.0.1:1", caller="caller-0")  # the one that made room
    assert out.getvalue().count('"caller-0"') == 2


def test_what_is_wrong_with_a_request_is_the_callers_business(out: io.StringIO) -> None:
    turned_away(RejectionLog(Clock()), "ipv4:10.0.0.1:1", "INVALID_ARGUMENT")
    assert out.getvalue() == ""
