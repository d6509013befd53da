"""What a request for a list or a stream asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.http.lists import preferred

JSON, NDJSON = "application/json", "application/x-ndjson"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", NDJSON),
        ("*/*", NDJSON),
        ("application/*", NDJSON),
        ("text/html", NDJSON),
        (JSON, JSON),
        ("Application/JSON ; charset=utf-8", JSON),
        (f"{JSON}, */*", NDJSON),
        (f"{JSON}, */*;q=0.9", JSON),
        (f"{JSON};q=0.9, {NDJSON}", NDJSON),
        (f"{NDJSON};q=0, */*", JSON),
        (f"{JSON};q=0, {NDJSON};q=0", NDJSON),
        (f"{JSON};q=high, {NDJSON};q=0.001", NDJSON),
        (f"{JSON};q=nan, {NDJSON};q=0.001", NDJSON),
        (f"{JSON};q=0.5, application/*;q=0.4", JSON),
        (",,;q=1,", NDJSON),
    ],
)
def test_the_accept_header_decides_and_otherwise_the_first(accept: str, expected: str) -> None:
    assert preferred(accept, (NDJSON, JSON)) == expected


@given(st.text())
def test_any_header_leads_to_one_of_those_offered(accept: str) -> None:
    assert preferred(accept, (JSON, NDJSON)) in {JSON, NDJSON}
