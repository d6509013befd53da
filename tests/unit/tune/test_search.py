"""The search for a setting that reaches a score, on curves of scores instead of encodes."""

import math
from collections.abc import Callable
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.tune.encoders import DEFAULT_ENCODERS, ENCODERS, TYPICAL_SCORES
from vmafx.tune.search import Goal, QualityRange, next_step

Curve = Callable[[float], float]


def settings_of(qualities: QualityRange) -> list[float]:
    count = round((qualities.worst - qualities.best) / qualities.step)
    return [round(qualities.best + index * qualities.step, 6) for index in range(count + 1)]


def search(goal: Goal, curve: Curve, qualities: QualityRange, start: float) -> tuple[float, dict[float, float]]:
    """The setting that was found, and all tries, in order."""
    tried: dict[float, float] = {}
    allowed = set(settings_of(qualities))
    while not (step := next_step(goal, tried, qualities, start)).done:
        assert step.quality in allowed, "a setting that the encoder has"
        assert step.quality not in tried, "never the same setting again"
        tried[step.quality] = curve(step.quality)
    assert step.quality in tried
    return step.quality, tried


@st.composite
def falling(draw: st.DrawFn) -> tuple[QualityRange, dict[float, float]]:
    """A range, and a score for each setting, which never rises."""
    step = draw(st.sampled_from([0.1, 0.5, 1.0]))
    count = draw(st.integers(1, 80))
    best = draw(st.sampled_from([0.0, 1.0]))
    slope = draw(st.floats(0.01, 2))
    qualities = QualityRange(best, round(best + count * step, 6), step, slope)
    drops = draw(st.lists(st.one_of(st.just(0.0), st.floats(0, 30)), min_size=count, max_size=count))
    scores = [max(score, 0.0) for score in accumulate(drops, lambda score, drop: score - drop, initial=100.0)]
    return qualities, dict(zip(settings_of(qualities), scores, strict=True))


@given(falling(), st.floats(0, 101), st.floats(0.01, 5), st.floats(-10, 100))
def test_the_search_finds_what_it_promises(
    drawn: tuple[QualityRange, dict[float, float]], score: float, tolerance: float, start: float
) -> None:
    qualities, scores = drawn
    goal = Goal(score, tolerance)
    found, tried = search(goal, scores.__getitem__, qualities, start)
    assert len(tried) <= min(len(scores), 4 + 3 * math.log2(len(scores)))
    if scores[qualities.best] < score:
        assert found == qualities.best, "the best there is, if even that misses"
        return
    assert scores[found] >= score
    settings = list(scores)
    following = settings[settings.index(found) + 1 :][:1]
    assert goal.is_met(scores[found]) or not following or scores[following[0]] < score


@given(falling(), st.floats(0, 100))
def test_a_small_range_bounds_the_search(drawn: tuple[QualityRange, dict[float, float]], score: float) -> None:
    """Without any tolerance, it is the last setting that reaches the score, or one with the same score."""
    qualities, scores = drawn
    found, _ = search(Goal(score, 0.0), scores.__getitem__, qualities, qualities.best)
    reaching = [quality for quality, one in scores.items() if one >= score]
    assert scores[found] == scores[max(reaching, default=qualities.best)] or scores[found] == score


def parabola(lossless: float, missing: float, at: float, power: float) -> Curve:
    """100 up to a setting, and 100 less the points that are `missing` at another one."""
    return lambda quality: max(100 - missing * (max(quality - lossless, 0) / (at - lossless)) ** power, 0.0)


@pytest.mark.parametrize("name", DEFAULT_ENCODERS)
@pytest.mark.parametrize("target", [80.0, 90.0, 93.0, 95.0])
def test_typical_curves_need_few_tries(name: str, target: float) -> None:
    """Clips that are easier or harder to encode than most, with curves that are flatter or steeper."""
    encoder = ENCODERS[name]
    first, last = encoder.qualities[0], encoder.qualities[-1]
    tries = []
    for missing in (10, 22, 40):
        for power in (1.5, 2.0, 2.5):
            curve = parabola(first - (last - first) / 2, missing, last, power)
            found, tried = search(Goal(target, 1.0), curve, encoder.range, encoder.typical_quality(target))
            assert curve(found) >= target
            tries.append(len(tried))
    assert max(tries) <= 4, tries


def test_typical_scores_are_found_at_once() -> None:
    for name in DEFAULT_ENCODERS:
        encoder = ENCODERS[name]
        for quality, score in zip(reversed(encoder.qualities), TYPICAL_SCORES, strict=True):
            assert encoder.typical_quality(score) == quality
        assert encoder.typical_quality(99) == encoder.qualities[0]
        assert encoder.typical_quality(10) == encoder.qualities[-1]


def test_the_first_setting_is_within_the_range_and_on_its_steps() -> None:
    qualities = QualityRange(0, 51, 0.1)
    assert next_step(Goal(90), {}, qualities, 23.04).quality == 23.0
    assert next_step(Goal(90), {}, qualities, -4).quality == 0
    assert next_step(Goal(90), {}, qualities, 99).quality == 51


def test_a_setting_that_meets_the_goal_ends_the_search() -> None:
    qualities = QualityRange(0, 51, 1)
    assert next_step(Goal(90, 0.5), {23.0: 90.2}, qualities, 23) == (23.0, True)
    assert not next_step(Goal(90, 0.5), {23.0: 90.6}, qualities, 23).done
    assert next_step(Goal(90, 0.5), {23.0: 90.6, 24.0: 89.9}, qualities, 23) == (23.0, True)
    assert next_step(Goal(90, 0.5), {0.0: 89.0}, qualities, 23) == (0.0, True)
    assert next_step(Goal(90, 0.5), {51.0: 99.0}, qualities, 23) == (51.0, True)
