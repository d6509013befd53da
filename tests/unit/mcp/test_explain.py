"""Explanations of scores: the points of features add up, and the worst parts and features come first."""

import itertools
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.support.reports import make_report
from tests.support.video import FFMPEG
from vmafx.mcp.explain import LOSSLESS, MEANINGS, Explanation, _shapley, explain, known_model
from vmafx.scoring.engines.ffmpeg import BUILT_IN_MODELS
from vmafx.scoring.result import MODEL_FEATURES, Report
from vmafx.scoring.svr_model import SvrModel, embedded_model

MODEL = embedded_model("vmaf_v0.6.1", FFMPEG)
FRAMES = 100


def features(seed: int = 5, frames: int = FRAMES) -> dict[str, list[float]]:
    """Features of plausible size; those of frames 50 to 74 have lost more detail."""
    random = np.random.default_rng(seed)
    values = {name: random.uniform(0.85, 0.99, frames) for name in LOSSLESS}
    values["adm2"][50:75] -= 0.2
    return {**{name: list(column) for name, column in values.items()}, "motion2": list(random.uniform(1, 6, frames))}


def report(model: SvrModel, values: dict[str, list[float]], rate: float | None = 25.0) -> Report:
    rows = np.column_stack([values[name] for name in MODEL_FEATURES])
    extras = {f"integer_{name}": column for name, column in values.items()}
    return make_report(list(model.predict(rows)), extras=extras, rate=rate)


def found(values: dict[str, list[float]] | None = None, rate: float | None = 25.0) -> Explanation:
    return explain(report(MODEL, values or features(), rate), MODEL)


def test_the_points_of_features_and_the_rest_are_all_that_is_lost() -> None:
    explanation = found()
    assert explanation.method == "model"
    assert explanation.rest is not None
    assert sum(cause.points for cause in explanation.causes) + explanation.rest == pytest.approx(
        explanation.lost, abs=0.01
    )
    assert explanation.mean == pytest.approx(explanation.score, abs=0.01)
    for frame in explanation.frames:
        assert sum(frame.causes.values()) <= 100 - frame.score + 0.01


def test_the_points_of_a_feature_are_its_mean_gain_over_all_orders() -> None:
    """As Shapley values are defined, beside the closed form that is used."""
    values = np.column_stack([features(frames=3)[name] for name in MODEL_FEATURES])
    found, orders = _shapley(MODEL, values), list(itertools.permutations(LOSSLESS))
    gains = dict.fromkeys(LOSSLESS, np.zeros(3))
    for order in orders:
        changed = values.copy()
        for name in order:
            before = MODEL.predict(changed)
            changed[:, MODEL_FEATURES.index(name)] = 1.0
            gains[name] = gains[name] + (MODEL.predict(changed) - before) / len(orders)
    for name, points in found.items():
        assert points == pytest.approx(gains[name], abs=1e-9)
    assert sum(found.values()) == pytest.approx(MODEL.predict(changed) - MODEL.predict(values), abs=1e-9)


def test_the_feature_and_the_part_that_are_worst_come_first() -> None:
    explanation = found()
    assert explanation.causes[0].feature == "adm2"
    worst = explanation.parts[0]
    assert (worst.firstFrame, worst.lastFrame, worst.start, worst.end) == (50, 74, 2.0, 3.0)
    assert worst.share > 0.25
    assert max(worst.causes, key=lambda name: worst.causes[name]) == "adm2"
    assert all(50 <= frame.frame < 75 for frame in explanation.frames)
    (contrast,) = [one for one in explanation.contrasts if one.feature == "adm2"]
    assert contrast.worst < contrast.others
    assert contrast.correlation is not None
    assert contrast.correlation > 0.5
    assert "adm2: detail loss" in explanation.summary
    assert "Frames 50 to 74 (2.00 to 3.00 s)" in explanation.summary


def test_a_feature_without_loss_takes_no_points() -> None:
    values = {name: [1.0] * FRAMES for name in LOSSLESS} | {"motion2": [3.0] * FRAMES, "vif_scale3": [0.9] * FRAMES}
    points = {cause.feature: cause.points for cause in found(values).causes}
    assert points.pop("vif_scale3") > 0
    assert set(points.values()) == {0.0}


def test_scores_that_no_model_gives_have_statistics_only() -> None:
    known = report(MODEL, features())
    other = make_report(
        [score - 1 for score in known.values["vmaf"]],
        extras={k: list(v) for k, v in known.values.items() if k != "vmaf"},
    )
    for one, model in ((other, MODEL), (known, None), (make_report(), MODEL)):
        explanation = explain(one, model)
        assert (explanation.method, explanation.rest, explanation.causes) == ("statistics", None, ())
        assert explanation.parts
        assert "Statistics only" in explanation.summary


def test_one_frame_an_unknown_rate_and_a_perfect_score_are_explained() -> None:
    one = explain(report(MODEL, features(frames=1), rate=None), MODEL)
    assert (one.parts[0].start, one.frames[0].time, len(one.parts)) == (None, None, 1)
    assert {contrast.correlation for contrast in one.contrasts} == {None}
    perfect = explain(make_report([100.0] * 50), MODEL)
    assert (perfect.lost, perfect.parts[0].share) == (0.0, 0.0)
    assert msgspec.json.decode(msgspec.json.encode(perfect), type=Explanation) == perfect


def test_long_clips_have_parts_of_more_than_a_second() -> None:
    explanation = explain(report(MODEL, features(frames=5000)), MODEL)
    assert explanation.method == "model"
    assert explanation.parts[0].lastFrame - explanation.parts[0].firstFrame + 1 == 84


def test_models_that_the_engine_does_not_have_are_not_known(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b'\0{"param_dict": {}}\0')
    assert known_model("vmaf_v0.6.1", tmp_path / "program") is None
    assert known_model("vmaf_v0.6.1", tmp_path / "missing") is None
    assert known_model("mine.json", FFMPEG) is None
    assert all(known_model(name, FFMPEG) is not None for name in BUILT_IN_MODELS)
    assert set(MEANINGS) == {*LOSSLESS, "motion2"} == set(MODEL_FEATURES)
