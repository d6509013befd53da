"""Durations as Go writes them, and quantities as Kubernetes writes them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.api.units import MAX_NANOSECONDS, nanoseconds, quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1ns", 1),
        ("1us", 1_000),
        ("1µs", 1_000),
        ("500ms", 500_000_000),
        ("10s", 10_000_000_000),
        ("1.5s", 1_500_000_000),
        ("1m30s", 90_000_000_000),
        ("0.25h", 900_000_000_000),
        ("1h1m1s1ms1us1ns", 3_661_001_001_001),
        ("0s", 0),
        ("0.9ns", 0),
        ("0.6ns0.6ns", 0),  # as in Go: each part is cut
        ("1.0000000019s", 1_000_000_001),
        ("2562047h47m16.854775807s", MAX_NANOSECONDS),
        (7, 7),
    ],
)
def test_a_duration_in_nanoseconds(text: int | str, number: int) -> None:
    assert nanoseconds(text) == number


@pytest.mark.parametrize("text", ["", "10", "s", "1 s", "-1s", "+1s", "1d", ".5s", "1.s", "1s1", "1S", "1s\n", "1e3s"])
def test_what_is_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration, such as 10s"):
        nanoseconds(text)


@given(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999_999_999))
def test_a_duration_is_the_sum_of_its_parts(hours: int, minutes: int, seconds: int, rest: int) -> None:
    text = f"{hours}h{minutes}m{seconds}.{rest:09}s"
    assert nanoseconds(text) == (hours * 3600 + minutes * 60 + seconds) * 10**9 + rest


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4", "4"),
        (4, "4"),
        ("0.5", "0.5"),
        ("500m", "0.5"),
        ("250u", "0.00025"),
        ("1n", "1e-9"),
        ("2k", "2000"),
        ("1M", "1000000"),
        ("24G", "24000000000"),
        ("1T", "1e12"),
        ("1P", "1e15"),
        ("1E", "1e18"),
        ("1Ki", "1024"),
        ("16Gi", "17179869184"),
        ("1.5Ti", "1649267441664"),
        ("1Pi", "1125899906842624"),
        ("1Ei", "1152921504606846976"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("24e9", "24000000000"),
        ("1e-3", "0.001"),
        ("1e+2", "100"),
    ],
)
def test_a_quantity_as_a_number(text: int | str, number: str) -> None:
    assert quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "much", "-1", "+1", ".5", "1.", "1 Gi", "1gi", "1K", "1Qi", "1e999", "1Gi\n"])
def test_what_is_not_a_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity, such as 500m"):
        quantity(text)


@given(st.integers(1, 10**6))
def test_binary_suffixes_are_larger_than_decimal_ones(number: int) -> None:
    for binary, decimal in (("Mi", "M"), ("Gi", "G"), ("Ti", "T"), ("Pi", "P"), ("Ei", "E")):
        assert quantity(f"{number}{binary}") > quantity(f"{number}{decimal}")
