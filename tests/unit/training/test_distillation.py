"""Distillation of the models of libvmaf into a network."""

import msgspec
import numpy as np
import pytest

from tests.support.video import FFMPEG
from tests.unit.training.test_base_model import model_json
from vmafx.scoring.errors import BadInput
from vmafx.scoring.learned import decode_model, encode_model
from vmafx.scoring.models import BUILT_IN
from vmafx.training.base_model import embedded_model
from vmafx.training.distillation import continue_from, distill, plausible_features, starting_model
from vmafx.training.samples import FEATURES


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_distilled_model_predicts_as_its_base(name: str) -> None:
    base = embedded_model(name, FFMPEG)
    start = distill(base)
    assert start.rms_error is not None
    assert start.max_error is not None
    features = plausible_features(base, 1000, np.random.default_rng(99))
    columns = {feature: column.tolist() for feature, column in zip(FEATURES, features.T, strict=True)}
    errors = np.array(start.model.predict(columns)) - base.predict(features)
    assert np.sqrt(np.mean(errors**2)) < 0.1
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(start.rms_error, rel=0.5)
    assert start.rms_error < start.max_error < 2
    assert start.model.base == base.engine_model


def test_distillation_is_repeatable_and_its_model_can_be_published() -> None:
    base = embedded_model("vmaf_v0.6.1", FFMPEG)
    first, second = (distill(base) for _ in range(2))
    assert first == second
    assert decode_model(encode_model(first.model), "distilled") == first.model


def test_parameters_are_small_enough_to_be_trained_further() -> None:
    model = distill(embedded_model("vmaf_v0.6.1", FFMPEG)).model
    assert np.abs(model.hidden).max() < 5
    assert np.abs(model.output).max() < 5


def test_a_model_whose_scores_make_no_sense_is_refused() -> None:
    base = embedded_model("vmaf_v0.6.1", FFMPEG)
    with pytest.raises(BadInput, match="far from 0 to 100"):
        distill(msgspec.structs.replace(base, weights=base.weights * 1e9))


def test_a_model_that_knows_a_feature_with_one_value_only_can_be_distilled() -> None:
    base = embedded_model("vmaf_v0.6.1", FFMPEG)
    vectors = base.vectors.copy()
    vectors[:, 1] = base.intercepts[2]  # no motion
    assert np.isfinite(distill(msgspec.structs.replace(base, vectors=vectors)).rms_error or np.nan)


def test_training_starts_from_the_file_of_either_kind_of_model() -> None:
    model = starting_model(model_json(), "base").model
    assert model.base == "vmaf_v0.6.1"
    again = starting_model(encode_model(model), "learned")
    assert again.model == continue_from(model).model == model
    assert again.rms_error is None


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"format": "vmafx.model/v9"}', b'{"format": 1}'])
def test_training_does_not_start_from_another_file(content: bytes) -> None:
    with pytest.raises(BadInput, match="the-file"):
        starting_model(content, "the-file")
