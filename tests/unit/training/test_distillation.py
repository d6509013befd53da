"""Distillation of the models of libvmaf into a network."""

import msgspec
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from tests.support.sample_streams import base, start
from tests.support.video import FFMPEG
from tests.unit.scoring.test_svr_model import model_json
from vmafx.scoring.errors import BadInput
from vmafx.scoring.learned import decode_model, encode_model
from vmafx.scoring.result import MODEL_FEATURES
from vmafx.scoring.svr_model import embedded_model, parse_model
from vmafx.training.distillation import continue_from, distill, plausible_features


@pytest.mark.parametrize("name", ["vmaf_v0.6.1", "vmaf_4k_v0.6.1"])
def test_a_distilled_model_predicts_as_its_base(name: str) -> None:
    model = embedded_model(name, FFMPEG)
    distilled = distill(model)
    assert distilled.rms_error is not None
    assert distilled.max_error is not None
    features = plausible_features(model, 1000, np.random.default_rng(99))
    columns = {feature: column.tolist() for feature, column in zip(MODEL_FEATURES, features.T, strict=True)}
    errors = np.array(distilled.model.predict(columns)) - model.predict(features)
    assert np.sqrt(np.mean(errors**2)) < 0.1
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(distilled.rms_error, rel=0.5)
    assert distilled.rms_error < distilled.max_error < 2
    assert distilled.model.base == name


def test_distillation_is_repeatable_on_any_number_of_threads() -> None:
    with threadpool_limits(2, "blas"):
        assert distill(base()) == start()


def test_a_distilled_model_can_be_published_and_trained_further() -> None:
    model = start().model
    assert decode_model(encode_model(model), "distilled") == model
    assert np.abs(model.hidden).max() < 5
    assert np.abs(model.output).max() < 5


def test_a_model_whose_scores_make_no_sense_is_refused() -> None:
    with pytest.raises(BadInput, match="far from 0 to 100"):
        distill(msgspec.structs.replace(base(), weights=base().weights * 1e9))


def test_a_model_that_knows_a_feature_with_one_value_only_can_be_distilled() -> None:
    vectors = base().vectors.copy()
    vectors[:, 1] = base().intercepts[2]  # no motion
    distilled = distill(msgspec.structs.replace(base(), vectors=vectors))
    assert distilled.rms_error is not None
    assert distilled.rms_error < 0.5


def test_training_continues_from_a_learned_model_as_it_is() -> None:
    model = distill(parse_model(model_json(), "base")).model
    assert model.base == "vmaf_v0.6.1"
    again = continue_from(model)
    assert again.model == model
    assert again.rms_error is None
