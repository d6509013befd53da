"""The Learner: what it learns, that it is deterministic, and that it notices divergence."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sample_streams import Stream, base, config, frames_of_clips, start
from vmafx.scoring.result import MODEL_FEATURES
from vmafx.training.learner import NORMALISE_EVERY, RECOVER_AFTER, Learner
from vmafx.training.learner_state import InvalidState
from vmafx.training.shuffle_buffer import SIZE
from vmafx.training.status import Quality


def learn(learner: Learner, stream: Stream, calls: list[int] | None = None) -> None:
    """Train on the whole stream, in calls that end at these samples, or one for each clip of 300."""
    ends = calls if calls is not None else [*range(300, len(stream.targets), 300), len(stream.targets)]
    for begin, end in pairwise([0, *ends]):
        rows = slice(begin, end)
        learner.learn(stream.features[rows], stream.targets[rows], stream.weights[rows])


def test_a_new_learner_is_the_model_it_starts_from() -> None:
    learner = Learner(start(), config())
    assert learner.model() == start().model
    assert learner.quality() == Quality()
    assert (learner.samples, learner.pending, learner.held_out, learner.rollbacks) == (0, 0, 0, 0)
    assert learner.learning_rate == config().learning_rate
    assert learner.base_error == start().rms_error
    assert not learner.divergence()


def test_samples_are_trained_on_or_wait() -> None:
    learner = Learner(start(), config())
    learn(learner, Stream.of_teacher(frames_of_clips(20, seed=1)))
    assert learner.samples + learner.pending == 6000
    assert learner.samples >= 6000 - SIZE
    assert learner.model() != start().model


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 5999), max_size=5, unique=True), st.integers(0, 5), st.sampled_from([1, 32, 300]))
def test_a_restored_learner_continues_bit_by_bit(cuts: list[int], restart: int, batch_size: int) -> None:
    stream, settings = Stream.of_teacher(frames_of_clips(20, seed=2)), config(batch_size=batch_size)
    whole, restored = Learner(start(), settings), Learner(start(), settings)
    learn(whole, stream)
    for number, (begin, end) in enumerate(pairwise([0, *sorted(cuts), 6000])):
        rows = slice(begin, end)
        restored.learn(stream.features[rows], stream.targets[rows], stream.weights[rows])
        if number == restart:
            restored = Learner.restore(restored.state(), settings)
    assert restored.state() == whole.state()


def test_a_changed_normalisation_does_not_change_the_model() -> None:
    """A rate so small that training itself changes nothing, and features unlike those of the starting model."""
    learner, stream = (
        Learner(start(), config(learning_rate=1e-300)),
        Stream.of_teacher(frames_of_clips(80, seed=3) * 0.7),
    )
    learn(learner, stream)
    model = learner.model()
    assert learner.samples > NORMALISE_EVERY
    assert model.mean != start().model.mean
    assert model.deviation != start().model.deviation
    columns = {name: column[::50].tolist() for name, column in zip(MODEL_FEATURES, stream.features.T, strict=True)}
    assert model.predict(columns) == pytest.approx(start().model.predict(columns), abs=1e-9)


def test_the_normalisation_follows_the_features() -> None:
    learner, stream = Learner(start(), config()), Stream.of_teacher(frames_of_clips(400, seed=4) * 0.5)
    learn(learner, stream)
    model = learner.model()
    normalised = (stream.features - model.mean) / model.deviation
    assert normalised.mean(axis=0) == pytest.approx(np.zeros(6), abs=0.2)
    assert normalised.std(axis=0) == pytest.approx(np.ones(6), abs=0.2)
    before = (stream.features - start().model.mean) / start().model.deviation
    assert np.abs(before.mean(axis=0)).min() > 0.4


def test_held_out_samples_are_kept_and_measured() -> None:
    learner = Learner(start(), config())
    features = frames_of_clips(5, seed=5)
    learner.hold_out(features, base().predict(features), clip=1)
    found = Learner.restore(learner.state(), config()).quality()
    assert learner.held_out == 1500
    assert found == learner.quality()
    assert found.loss is not None
    assert found.loss < 0.5**2
    assert learner.samples + learner.pending == 0


def test_a_learning_rate_that_is_too_high_is_a_divergence_and_rolling_back_helps() -> None:
    stream = Stream.of_teacher(frames_of_clips(40, seed=6))
    learner = Learner(start(), config(learning_rate=1.0))
    learner.hold_out(stream.features, stream.targets, clip=1)
    good = learner.state()
    learn(learner, stream)
    assert "the loss rose to" in learner.divergence()
    assert (learner.quality().loss or 0) > 100
    while learner.divergence():
        learner = learner.rolled_back(good)
        assert not learner.divergence()
        learn(learner, stream)
    assert learner.learning_rate == 0.5**learner.rollbacks
    assert 0 < learner.rollbacks < 10
    assert (learner.quality().loss or np.inf) < 16


def test_a_rollback_is_the_state_of_the_checkpoint_with_a_lower_rate() -> None:
    learner, stream = Learner(start(), config()), Stream.of_teacher(frames_of_clips(60, seed=7))
    good = learner.state()
    learner.hold_out(stream.features[:100], stream.targets[:100], clip=1)
    learn(learner, stream)
    learner = learner.rolled_back(good, factor=0.1)
    assert (learner.samples, learner.pending, learner.held_out, learner.rollbacks) == (0, 0, 0, 1)
    assert learner.learning_rate == pytest.approx(config().learning_rate * 0.1)
    columns = {name: column[::50].tolist() for name, column in zip(MODEL_FEATURES, stream.features.T, strict=True)}
    assert learner.model().predict(columns) == pytest.approx(start().model.predict(columns), abs=1e-9)


def test_a_lowered_rate_recovers_after_good_checkpoints() -> None:
    learner = Learner(start(), config(learning_rate=0.01))
    good = learner.state()
    learner = learner.rolled_back(good).rolled_back(good)
    assert learner.learning_rate == 0.0025
    rates = []
    for _ in range(3 * RECOVER_AFTER):
        learner.accept_checkpoint()
        rates.append(learner.learning_rate)
    assert rates == [0.0025] * (RECOVER_AFTER - 1) + [0.005] * RECOVER_AFTER + [0.01] * (RECOVER_AFTER + 1)


@pytest.mark.parametrize("batch_size", [32, 1024, 4096])
def test_a_divergence_is_found_with_any_batch_size(batch_size: int) -> None:
    stream = Stream.of_teacher(frames_of_clips(200, seed=6))
    learner = Learner(start(), config(learning_rate=1.0, batch_size=batch_size))
    learn(learner, stream)
    assert "the loss rose to" in learner.divergence()


def test_a_flush_trains_on_what_waits_in_the_buffer() -> None:
    learner, stream = Learner(start(), config()), Stream.of_teacher(frames_of_clips(1, seed=7))
    learn(learner, stream)
    total = learner.samples + learner.pending
    assert learner.pending > 32
    learner.flush()
    assert learner.pending < 32
    assert learner.samples + learner.pending == total


def test_a_number_that_is_not_finite_is_a_divergence() -> None:
    learner, stream = Learner(start(), config()), Stream.of_teacher(frames_of_clips(2, seed=8))
    good = learner.state()
    stream.targets[5] = np.nan
    learn(learner, stream)
    assert learner.divergence() == "a weight is not a finite number"
    assert Learner.restore(learner.state(), config()).divergence() == learner.divergence()
    assert not learner.rolled_back(good).divergence()


def test_a_new_learning_rate_in_the_config_takes_effect() -> None:
    learner = Learner(start(), config(learning_rate=0.01))
    learner = learner.rolled_back(learner.state())
    same, changed = (Learner.restore(learner.state(), config(learning_rate=rate)) for rate in (0.01, 0.02))
    assert (same.learning_rate, changed.learning_rate) == (0.005, 0.02)


def test_a_new_batch_size_takes_effect() -> None:
    stream = Stream.of_teacher(frames_of_clips(20, seed=9))
    learner = Learner(start(), config(batch_size=5000))
    learn(learner, stream)
    assert (learner.samples, learner.pending) == (0, 6000)
    learner = Learner.restore(learner.state(), config(batch_size=32))
    learn(learner, stream)
    assert learner.samples + learner.pending == 12_000
    assert learner.pending <= SIZE


@given(st.binary(max_size=100))
def test_bytes_that_are_no_state_are_refused(content: bytes) -> None:
    with pytest.raises(InvalidState):
        Learner.restore(content, config())


@pytest.mark.parametrize("field", ["weights", "moments", "pending", "held_out"])
def test_a_state_with_arrays_of_another_shape_is_refused(field: str) -> None:
    state = msgspec.msgpack.decode(Learner(start(), config()).state())
    state[field] = [[2, 3], bytes(48)]
    with pytest.raises(InvalidState):
        Learner.restore(msgspec.msgpack.encode(state), config())


@pytest.mark.parametrize("change", [{"version": 2}, {"weights": [[-1, 4], b""]}, {"weights": [[4, 129], b"short"]}])
def test_a_state_of_another_version_or_with_damaged_arrays_is_refused(change: dict[str, object]) -> None:
    state = msgspec.msgpack.decode(Learner(start(), config()).state())
    with pytest.raises(InvalidState):
        Learner.restore(msgspec.msgpack.encode({**state, **change}), config())
