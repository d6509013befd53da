"""The search for a setting of each shot, with encoders that are curves."""

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from vmafx.tune.encoders import ENCODERS
from vmafx.tune.results import EncodeResult, LadderPoint
from vmafx.tune.search import QualityRange
from vmafx.tune.shot_ladder import MAX_ROUNDS, REACH, Measured, RungSearch, ShotScore, likely_setting, near
from vmafx.tune.shot_targets import ShotPoint
from vmafx.tune.shots import ShotEncoder

RANGES = [ENCODERS[name].range for name in ("libx264", "libsvtav1", "libvpx-vp9")]


@given(st.sampled_from(RANGES), st.floats(0, 1))
def test_settings_of_shots_are_settings_of_the_encoder_around_that_of_the_rung(of: QualityRange, place: float) -> None:
    quality = of.nearest(of.best + place * (of.worst - of.best))
    found = near(of, quality)
    assert of.best <= found.best <= found.worst <= of.worst
    assert found.best - 0.5 <= quality <= found.worst + 0.5
    assert found.worst - found.best <= 2 * REACH * (of.worst - of.best) + 1
    for one in (found.best, found.worst, found.nearest(quality)):
        assert of.nearest(one) == one


@given(st.dictionaries(st.floats(1, 99), st.floats(1, 50), min_size=1, max_size=6), st.floats(0, 100))
def test_a_search_starts_between_what_was_tried(curve: dict[float, float], score: float) -> None:
    points = [ShotPoint(1.0, reached, quality) for reached, quality in curve.items()]
    assert min(curve.values()) <= likely_setting(points, score, 99.0) <= max(curve.values())
    assert likely_setting([], score, 99.0) == 99.0


def score_at(quality: float, easy: float, steep: float) -> float:
    """100 minus a parabola: the usual curve of an encoder."""
    return max(0.0, 100 - steep * max(quality - easy, 0.0) ** 2)


@given(
    st.lists(st.tuples(st.floats(0, 30), st.floats(0.01, 0.3), st.floats(30, 95)), min_size=1, max_size=6),
    st.integers(20, 35),
)
def test_every_shot_has_its_target_or_the_best_setting_and_all_are_measured_together(
    given_shots: list[tuple[float, float, float]], quality: int
) -> None:
    shots, targets = [(easy, steep) for easy, steep, _ in given_shots], [target for *_, target in given_shots]
    rung = LadderPoint(64, 64, EncodeResult(quality=quality, score=60.0))
    of = ENCODERS["libx264"].range
    search = RungSearch(rung, targets, cast("ShotEncoder", None), of, [[] for _ in shots])
    allowed, measured = near(of, quality), set[tuple[float, ...]]()
    for number in range(1, MAX_ROUNDS + 1):
        if not search.is_pending(last=number == MAX_ROUNDS):
            break
        assert search.wanted not in measured, "nothing is measured twice"
        measured.add(search.wanted)
        scores = [score_at(one, *shot) for one, shot in zip(search.wanted, shots, strict=True)]
        search.note(Measured(EncodeResult(quality=0), [ShotScore(score, score) for score in scores]))
    assert not search.is_pending(last=True), "what was found was measured as one file"
    for found, shot, target in zip(search.wanted, shots, targets, strict=True):
        assert allowed.best <= found <= allowed.worst
        if score_at(allowed.best, *shot) >= target:
            assert score_at(found, *shot) >= target
        else:
            assert found == allowed.best
