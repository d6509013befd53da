"""Which frames of a source are its samples."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from vmafx.tune.samples import (
    MAX_SAMPLES,
    MIN_SAMPLES,
    SAMPLE_SECONDS,
    SampleOptions,
    sample_ranges,
)

rates = st.one_of(st.sampled_from([Fraction(24000, 1001), Fraction(25), Fraction(60)]), st.fractions(1, 240))


@given(st.integers(0, 2_000_000), rates)
def test_samples_are_disjoint_parts_of_the_clip_and_evenly_spread(frames: int, rate: Fraction) -> None:
    ranges = sample_ranges(frames, rate)
    if not ranges:
        return
    length = max(1, round(SAMPLE_SECONDS * rate))
    assert {end - first for first, end in ranges} == {length}
    assert ranges[0][0] >= 0
    assert ranges[-1][1] <= frames
    gaps = [first - end for (_, end), (first, _) in pairwise(ranges)]
    assert min(gaps) >= 0
    assert max(gaps) - min(gaps) <= 1
    assert abs(ranges[0][0] - (frames - ranges[-1][1])) <= 2, "as far from the start as from the end"
    assert abs(2 * ranges[0][0] - gaps[0]) <= 2


@given(st.integers(0, 2_000_000), rates)
def test_samples_are_few_and_at_most_half_of_the_clip(frames: int, rate: Fraction) -> None:
    ranges = sample_ranges(frames, rate)
    if ranges:
        assert MIN_SAMPLES <= len(ranges) <= MAX_SAMPLES
        assert sum(end - first for first, end in ranges) * 2 <= frames


@given(st.integers(0, 100_000), rates)
def test_a_short_clip_has_no_samples(frames: int, rate: Fraction) -> None:
    if frames < 2 * MIN_SAMPLES * max(1, round(SAMPLE_SECONDS * rate)):
        assert sample_ranges(frames, rate) == ()


def test_a_film_has_thirty_samples_of_two_seconds() -> None:
    ranges = sample_ranges(24 * 5400, Fraction(24))
    assert len(ranges) == MAX_SAMPLES
    assert ranges[0] == (2136, 2184)


def test_a_clip_of_twenty_seconds_has_three_samples() -> None:
    assert sample_ranges(500, Fraction(25)) == ((58, 108), (225, 275), (391, 441))


def test_the_key_of_samples_names_their_frames() -> None:
    options = SampleOptions(((58, 108), (225, 275)), threads=2)
    assert options.part == "58-108,225-275"
    assert options.frames == 100
