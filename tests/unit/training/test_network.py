"""The network in training: its gradient, its normalisation, and its agreement with the learned model."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vmafx.scoring.errors import BadInput
from vmafx.scoring.learned import LearnedModel
from vmafx.scoring.result import MODEL_FEATURES
from vmafx.training.network import (
    INPUTS,
    Array,
    Backpropagation,
    Normalisation,
    from_model,
    parameter_count,
    predict,
    scores,
    to_model,
    unit_count,
)

SEEDS = st.integers(0, 2**32 - 1)


def network(rng: np.random.Generator, units: int = 5) -> tuple[Array, Normalisation]:
    parameters = rng.normal(size=parameter_count(units)) * 0.3
    return parameters, Normalisation(rng.normal(size=6), rng.uniform(0.05, 5, 6))


def loss(parameters: Array, inputs: Array, targets: Array, weights: Array) -> float:
    return float(np.sum(weights * (predict(parameters, inputs) - targets) ** 2) / 2)


@given(SEEDS, st.integers(1, 8), st.integers(1, 12))
def test_the_gradient_agrees_with_finite_differences(seed: int, units: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    parameters, normalisation = network(rng, units)
    inputs = normalisation.inputs(rng.normal(size=(count, 6)))
    parameters[-1] += 0.5 - predict(parameters, inputs).mean()
    parameters[-1 - units : -1] *= 0.1  # predictions stay between the limits
    targets, weights = rng.uniform(0, 1, count), rng.uniform(0.1, 10, count)
    inside = predict(parameters, inputs)
    assume(inside.min() > 0.01 and inside.max() < 0.99)
    gradient = np.empty_like(parameters)
    Backpropagation(parameters, gradient, count).run(inputs, targets, weights)
    for index in range(len(parameters)):
        step = np.zeros_like(parameters)
        step[index] = 1e-6
        difference = loss(parameters + step, inputs, targets, weights) - loss(
            parameters - step, inputs, targets, weights
        )
        assert gradient[index] == pytest.approx(difference / 2e-6, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("prediction", "target", "error"), [(1.3, 1.0, 0.0), (1.3, 0.9, 0.1), (-0.2, 0.0, 0.0), (-0.2, 0.3, -0.3)]
)
def test_a_prediction_beyond_a_limit_has_the_error_of_the_limit(prediction: float, target: float, error: float) -> None:
    parameters = np.zeros(parameter_count(2))
    parameters[-1] = prediction
    gradient = np.empty_like(parameters)
    backpropagation = Backpropagation(parameters, gradient, 1)
    backpropagation.run(np.ones((1, INPUTS)), np.array([target]), np.ones(1))
    assert backpropagation.errors == pytest.approx(np.array([error]))
    assert gradient[-1] == pytest.approx(error)


@given(SEEDS)
def test_a_new_normalisation_does_not_change_predictions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    old = Normalisation(rng.normal(size=6), rng.uniform(0.05, 5, 6))
    new = Normalisation(rng.normal(size=6), rng.uniform(0.05, 5, 6))
    rows = rng.normal(size=(4, parameter_count(7)))
    features = rng.normal(size=(50, 6))
    before = [predict(row, old.inputs(features)) for row in rows]
    moved = predict(rows[0] + rows[1], old.inputs(features))
    old.convert(rows, new)
    for row, expected in zip(rows, before, strict=True):
        np.testing.assert_allclose(predict(row, new.inputs(features)), expected, atol=1e-9)
    # A velocity converted in the same way moves the weights to the same function.
    np.testing.assert_allclose(predict(rows[0] + rows[1], new.inputs(features)), moved, atol=1e-9)


@given(SEEDS)
def test_the_learned_model_predicts_the_same_scores(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parameters, normalisation = network(rng)
    features = rng.normal(size=(20, 6))
    model = to_model(parameters, normalisation, "vmaf_v0.6.1")
    predicted = model.predict({name: column.tolist() for name, column in zip(MODEL_FEATURES, features.T, strict=True)})
    np.testing.assert_allclose(predicted, scores(parameters, normalisation.inputs(features)), atol=1e-9)
    again, same = from_model(model)
    assert np.array_equal(again, parameters)
    assert np.array_equal(same.mean, normalisation.mean)


def test_a_learned_model_with_features_in_another_order_is_the_same() -> None:
    rng = np.random.default_rng(4)
    model = to_model(*network(rng), "vmaf_v0.6.1")
    backwards = LearnedModel(
        base=model.base,
        features=model.features[::-1],
        mean=model.mean[::-1],
        deviation=model.deviation[::-1],
        hidden=tuple(row[::-1] for row in model.hidden),
        bias=model.bias,
        output=model.output,
        offset=model.offset,
    )
    assert np.array_equal(from_model(backwards)[0], from_model(model)[0])


def test_a_learned_model_of_other_features_is_refused() -> None:
    model = to_model(*network(np.random.default_rng(5)), "vmaf_v0.6.1")
    other = LearnedModel(
        base=model.base,
        features=("psnr", *model.features[1:]),
        mean=model.mean,
        deviation=model.deviation,
        hidden=model.hidden,
        bias=model.bias,
        output=model.output,
        offset=model.offset,
    )
    with pytest.raises(BadInput, match="adm2"):
        from_model(other)


def test_the_number_of_units_follows_from_the_number_of_parameters() -> None:
    assert [unit_count(parameter_count(units)) for units in (1, 2, 16)] == [1, 2, 16]
    for wrong in (0, 1, parameter_count(16) + 1):
        with pytest.raises(ValueError, match="no network"):
            unit_count(wrong)
