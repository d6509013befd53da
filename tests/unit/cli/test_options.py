"""Durations and KEY=VALUE pairs on the command line."""

import pytest

from vmafx.cli.options import parse_pairs, parse_seconds
from vmafx.scoring.errors import BadInput


@pytest.mark.parametrize(
    ("text", "seconds"), [("", None), ("0", 0), ("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("7d", 604800)]
)
def test_a_duration_is_parsed_to_seconds(text: str, seconds: int | None) -> None:
    assert parse_seconds(text, "--ttl") == seconds


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "5x", "1h30", "10 m", "m", "99999999999", "9999999999d"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(BadInput, match=r"is not a duration; use e\.g\. 90s, 10m or 1h30m"):
        parse_seconds(text, "--ttl")


def test_pairs_are_parsed_one_by_one_or_separated_by_commas() -> None:
    assert parse_pairs(["a=b,c=d", "e="], "--label") == {"a": "b", "c": "d", "e": ""}
    for invalid in ("a", "=b"):
        with pytest.raises(BadInput, match="is not KEY=VALUE"):
            parse_pairs([invalid], "--label")
