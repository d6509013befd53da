"""An online training: every sample counts once, whatever happens; checkpoints, rollbacks, pauses."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.support.sample_streams import start
from tests.support.training_samples import BASE, NAMESPACE, batch, frames, job_name, mean_score, push, pushes
from vmafx import segments
from vmafx.scoring.learned import LearnedModel, decode_model
from vmafx.scoring.result import MODEL_FEATURES
from vmafx.segments import LogFull, LogInUse
from vmafx.training import online, versions
from vmafx.training.config import TrainingConfig
from vmafx.training.distillation import StartingModel
from vmafx.training.exclusion import MAX_STRIKES, NodeExcluded
from vmafx.training.network import Array
from vmafx.training.online import MAX_ROLLBACKS, OnlineTraining
from vmafx.training.samples import HumanScore, InvalidSamples, SamplePush, encode_batch

CONFIG = TrainingConfig(
    name="t", namespace=NAMESPACE, base_model=BASE, checkpoint_interval=600.0, min_samples=500, learning_rate=0.01
)


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Site:
    """A folder in which a training is started, and started again after it was killed."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder, self.clock = folder, clock
        self._running: OnlineTraining | None = None

    def start(self, base: Callable[[], StartingModel] = start, **changes: Any) -> OnlineTraining:
        self.kill()
        config = msgspec.structs.replace(CONFIG, **changes)
        self._running = OnlineTraining(config, self.folder, base, self.clock)
        return self._running

    def kill(self) -> None:
        """The training saves nothing."""
        if self._running is not None:
            self._running._log.close()
            with suppress(OSError):  # if it was closed
                os.close(self._running._lock)
            self._running = None

    def files(self, folder: str) -> list[Path]:
        return sorted(path for path in (self.folder / folder).iterdir() if not path.name.startswith("."))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def site(tmp_path: Path, clock: Clock) -> Iterator[Site]:
    site = Site(tmp_path / "site", clock)
    yield site
    site.kill()


def learn_all(training: OnlineTraining) -> None:
    while training.learn(3):
        pass


def fill(training: OnlineTraining, count: int, first: int = 0) -> None:
    for one in pushes(count, first=first):
        assert training.accept(one) == "stored"
    learn_all(training)


def checkpoint(training: OnlineTraining, clock: Clock) -> LearnedModel:
    clock.advance(CONFIG.checkpoint_interval)
    info = training.checkpoint_if_due()
    assert info is not None
    artifact = training.versions.read(info)
    assert artifact is not None
    return decode_model(artifact.model, "latest")


def model_error(model: LearnedModel, shift: float = 0.0) -> float:
    """The root mean square error on frames that are in no batch, whose true scores are shifted."""
    features, scores = frames(seed=1_000_000, count=400)
    predicted = model.predict({name: list(features[:, column]) for column, name in enumerate(MODEL_FEATURES)})
    return float(np.sqrt(np.mean((np.array(predicted) - np.clip(scores + shift, 0, 100)) ** 2)))


def test_a_new_training_is_its_base_model(site: Site) -> None:
    status = site.start().status
    assert (status.phase, status.samples, status.pending, status.checkpoints) == ("Running", 0, 0, ())
    assert status.base_error is not None
    assert status.base_error < 0.5


def test_samples_are_used_once_and_one_clip_in_ten_is_held_out(site: Site) -> None:
    training = site.start()
    fill(training, 20)
    status = training.status
    assert (status.samples, status.held_out, status.pending) == (18 * 50, 2 * 50, 0)
    assert status.quality.pearson is not None
    assert status.quality.pearson > 0.99


def test_an_attempt_that_comes_again_is_a_duplicate(site: Site) -> None:
    training = site.start()
    assert [training.accept(push(1)), training.accept(push(1))] == ["stored", "duplicate"]
    assert training.accept(push(1, attempt=1)) == "stored"
    assert site.start().accept(push(1)) == "duplicate"


@pytest.mark.parametrize("used", [0, 1, 5, 12])
def test_a_killed_trainer_ends_as_one_that_was_not(site: Site, tmp_path: Path, clock: Clock, used: int) -> None:
    training = site.start()
    for one in pushes(12):
        training.accept(one)
    training.learn(used)
    training.save()
    training.learn(2)  # what was learned after the last snapshot is learned again
    training = site.start()
    assert training.status.pending == (12 - used) * 50
    learn_all(training)
    assert (training.status.samples, training.status.held_out) == (10 * 50, 2 * 50)

    undisturbed = Site(tmp_path / "undisturbed", clock)
    other = undisturbed.start()
    fill(other, 12)
    assert checkpoint(training, clock) == checkpoint(other, clock)
    undisturbed.kill()


def test_a_checkpoint_needs_time_and_samples(site: Site, clock: Clock) -> None:
    training = site.start()
    fill(training, 3)
    clock.advance(601)
    assert training.checkpoint_if_due() is None  # 100 samples
    fill(training, 12, first=3)
    first = training.checkpoint_if_due()
    assert first is not None
    assert (first.number, first.samples) == (1, 13 * 50)
    fill(training, 12, first=15)
    assert training.checkpoint_if_due() is None  # too early
    clock.advance(601)
    second = training.checkpoint_if_due()
    assert second is not None
    assert second.number == 2
    assert training.status.checkpoints == (first, second)
    artifact = training.versions.read(second)
    assert artifact is not None
    assert msgspec.json.decode(artifact.config, type=versions.ModelMetadata).parent == first.digest


def test_a_clock_that_was_set_back_does_not_stop_checkpoints(site: Site, clock: Clock) -> None:
    training = site.start()
    fill(training, 12)
    checkpoint(training, clock)
    clock.advance(-86_400)
    fill(training, 12, first=12)
    assert training.checkpoint_if_due() is not None
    assert not training.status.stale


def test_a_graceful_stop_loses_nothing(site: Site) -> None:
    training = site.start()
    fill(training, 12)
    training.close()
    status = site.start().status
    assert (status.samples, status.pending) == (10 * 50, 0)


def test_the_base_model_is_loaded_for_a_new_training_only(site: Site) -> None:
    training = site.start()
    fill(training, 2)
    training.save()

    def fail() -> StartingModel:
        raise AssertionError("the base model is loaded")

    assert site.start(fail).status.samples == 50
    with pytest.raises(AssertionError, match="loaded"):
        site.start(fail, base_model="vmaf_4k_v0.6.1")


def test_a_changed_spec_keeps_what_was_learned(site: Site) -> None:
    training = site.start()
    fill(training, 12)
    training.save()
    status = site.start(learning_rate=0.005, ema_decay=0.9).status
    assert (status.samples, status.learning_rate) == (10 * 50, 0.005)


def test_a_paused_training_stores_samples_and_uses_them_later(site: Site, clock: Clock) -> None:
    training = site.start(paused=True)
    fill(training, 12)
    clock.advance(10_000)
    assert training.checkpoint_if_due() is None
    status = training.status
    assert (status.phase, status.samples, status.pending, status.stale) == ("Paused", 0, 12 * 50, False)
    training = site.start()
    learn_all(training)
    assert (training.status.phase, training.status.samples) == ("Running", 10 * 50)


def test_a_training_without_samples_is_stale(site: Site, clock: Clock) -> None:
    training = site.start()

    def is_stale_after(seconds: float) -> bool:
        clock.advance(seconds)
        training.checkpoint_if_due()
        return training.status.stale

    assert [is_stale_after(1700), is_stale_after(200)] == [False, True]
    training.accept(push())
    assert not is_stale_after(0)


def diverge(training: OnlineTraining, first: int) -> int:
    """Send samples until the training diverges; returns the number of the next clip."""
    rollbacks = training.status.rollbacks
    while training.status.rollbacks == rollbacks:
        training.accept(push(first))
        training.learn(1)
        first += 1
        assert first < 1000
    return first


def test_a_training_that_diverges_returns_to_its_last_checkpoint(site: Site, clock: Clock) -> None:
    training = site.start()
    fill(training, 12)
    good = checkpoint(training, clock)
    training = site.start(learning_rate=1.0)
    following = diverge(training, 100)
    status = training.status
    assert (status.phase, status.learning_rate, status.rollbacks) == ("Running", 0.5, 1)
    assert "the loss rose" in status.diverged
    assert status.samples == 10 * 50  # what came since is used again
    assert status.pending == (following - 100) * 50
    assert training._learner.model() == good
    assert (after := site.start(learning_rate=1.0).status).diverged
    assert (after.rollbacks, after.learning_rate, after.pending) == (1, 0.5, status.pending)

    training = site.start(learning_rate=0.001)  # as a user would do
    learn_all(training)
    held_out = len(range(100, following, 10))
    assert training.status.samples == (10 + following - 100 - held_out) * 50
    fill(training, 12, first=following)
    assert model_error(checkpoint(training, clock)) < 1
    assert training.status.diverged == ""


def test_no_version_is_written_right_after_a_rollback(site: Site, clock: Clock) -> None:
    training = site.start()
    fill(training, 12)
    checkpoint(training, clock)
    training = site.start(learning_rate=1.0)
    diverge(training, 100)
    clock.advance(601)
    assert training.checkpoint_if_due() is None
    assert training.status.diverged


def test_a_version_that_would_be_worse_is_not_written(site: Site, clock: Clock) -> None:
    """With large batches and few samples between checkpoints, too."""
    training = site.start(learning_rate=1.0, batch_size=1024, ema_decay=0.9)
    first, errors = 0, []
    for _ in range(12):
        fill(training, 30, first)
        first += 30
        clock.advance(601)
        if (info := training.checkpoint_if_due()) is not None:
            errors.append(info.quality.loss or 0)
        if training.status.phase == "Failed":
            break
    assert training.status.rollbacks > 0
    assert max(errors, default=0) < 50


def test_a_training_that_keeps_diverging_fails_until_its_rate_is_changed(site: Site) -> None:
    training = site.start(learning_rate=1.0)
    for _ in range(MAX_ROLLBACKS):
        training._roll_back("the loss rose")
    assert training.status.phase == "Failed"
    assert "set spec.learningRate to that or less" in training.status.message
    training.accept(push(1))
    assert not training.learn(10)
    assert site.start(learning_rate=1.0).status.phase == "Failed"
    training = site.start(learning_rate=0.001)
    learn_all(training)
    assert (training.status.phase, training.status.samples) == ("Running", 50)


def test_human_scores_outweigh_the_teacher(site: Site, clock: Clock) -> None:
    training = site.start(ema_decay=0.9)
    fill(training, 60)
    before = checkpoint(training, clock)
    assert model_error(before) < 1
    given = [HumanScore(job_name(seed), max(mean_score(seed) - 15, 0.0)) for seed in range(60)]
    assert training.add_human_scores(given) == 60
    assert training.add_human_scores(given) == 0
    learn_all(training)
    assert training.status.samples == 54 * 50  # the same samples, with better scores
    fill(training, 12, first=5000)
    moved = checkpoint(training, clock)
    assert model_error(moved, shift=-15) < 0.8 * model_error(before, shift=-15)


class Fed(list[tuple[str, float]]):
    """What a training fed to its learner: the kind, and the weight or the mean target."""

    def __init__(self, training: OnlineTraining, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        learner = training._learner
        learn, hold_out = learner.learn, learner.hold_out

        def note_learn(features: Array, targets: Array, weights: Array) -> None:
            self.append(("trained", float(weights[0])))
            learn(features, targets, weights)

        def note_hold_out(features: Array, targets: Array, clip: int) -> None:
            self.append(("held out", round(float(targets.mean()), 1)))
            hold_out(features, targets, clip)

        monkeypatch.setattr(learner, "learn", note_learn)
        monkeypatch.setattr(learner, "hold_out", note_hold_out)


def test_a_human_score_is_used_once_however_it_comes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    training = site.start()
    fed = Fed(training, monkeypatch)
    training.accept(push(7, human_score=20.0))  # with the submission, and then with the label
    training.add_human_scores([HumanScore(job_name(7), 20.0)])
    learn_all(training)
    assert fed == [("trained", 10.0)]
    training.add_human_scores([HumanScore(job_name(8), 30.0)])  # before the samples
    training.accept(push(8))
    training.accept(push(8, attempt=1))  # for every attempt
    learn_all(training)
    assert fed[1:] == [("trained", 10.0)] * 2
    training.accept(push(9))
    learn_all(training)
    training.add_human_scores([HumanScore(job_name(9), 40.0)])  # after them
    learn_all(training)
    assert fed[3:] == [("trained", 1.0), ("trained", 10.0)]
    training.add_human_scores([HumanScore(job_name(9), 50.0)])  # another one
    learn_all(training)
    assert fed[5:] == [("trained", 10.0)]


def test_the_human_score_of_a_held_out_clip_replaces_its_targets(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    training = site.start()
    fed = Fed(training, monkeypatch)
    training.accept(push(10))
    training.add_human_scores([HumanScore(job_name(10), 50.0)])
    learn_all(training)
    assert [kind for kind, _ in fed] == ["held out", "held out"]
    assert training.status.held_out == 50


def test_human_scores_that_were_stored_before_a_kill_are_known(site: Site) -> None:
    training = site.start()
    training.accept(push(7))
    training.add_human_scores([HumanScore(job_name(7), 20.0)])
    assert site.start().add_human_scores([HumanScore(job_name(7), 20.0)]) == 0


def test_a_human_score_out_of_range_is_refused(site: Site) -> None:
    with pytest.raises(InvalidSamples, match="not 0 to 100"):
        site.start().add_human_scores([HumanScore("job-1", 101.0)])


def test_scores_of_other_models_are_not_learned(site: Site) -> None:
    """Neither those of its own versions: it would learn what it believes already."""
    for model in ("vmaf_4k_v0.6.1", "oci://registry/model@sha256:00"):
        other = msgspec.structs.replace(batch(1), model=model)
        with pytest.raises(InvalidSamples, match=f"scored with {model}"):
            site.start().accept(SamplePush(push(1).source, encode_batch(other)))
    assert site.start().status.excluded_nodes == {}


def accept_until_full(training: OnlineTraining) -> int:
    """The number of the first clip that is refused."""
    for number in range(1000):
        try:
            training.accept(push(number))
        except LogFull:
            return number
    raise AssertionError("the log is not full")


def test_a_full_log_is_freed_once_its_samples_are_used(
    site: Site, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(online, "MIN_LOG_BYTES", 60_000)
    small: dict[str, Any] = {"storage": 120_000, "min_samples": 10**9}
    number = accept_until_full(site.start(paused=True, **small))
    training = site.start(**small)
    with pytest.raises(LogFull):
        training.accept(push(number))
    assert "cannot store samples" in training.status.message
    learn_all(training)
    clock.advance(61)
    training.checkpoint_if_due()
    assert training.accept(push(number)) == "stored"
    assert training.status.message == ""


def test_a_log_that_cannot_be_read_loses_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    training = site.start()
    for one in pushes(12):
        training.accept(one)

    def fail(*_: object) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(segments, "_read_from", fail)
        with pytest.raises(OSError, match="Too many"):
            training.learn(100)
    learn_all(training)
    assert (training.status.samples, training.status.damaged) == (10 * 50, 0)


def test_two_damaged_snapshots_leave_the_latest_version(site: Site, clock: Clock) -> None:
    training = site.start(learning_rate=0.1, ema_decay=0.5)
    fill(training, 12)
    model = checkpoint(training, clock)
    training.save()
    site.kill()
    for path in site.files("snapshots"):
        path.write_bytes(path.read_bytes()[:-1])
    training = site.start()
    assert training._learner.model() == model
    assert training.status.damaged == 2


def test_another_base_model_is_a_new_line_of_versions(site: Site, clock: Clock) -> None:
    training = site.start()
    fill(training, 12)
    checkpoint(training, clock)
    training = site.start(base_model="vmaf_4k_v0.6.1")
    made = msgspec.structs.replace(batch(1), model="vmaf_4k_v0.6.1")
    for number in range(100, 112):
        source = push(number).source
        training.accept(SamplePush(source, encode_batch(made)))
    learn_all(training)
    clock.advance(601)
    info = training.checkpoint_if_due()
    assert info is not None
    artifact = training.versions.read(info)
    assert artifact is not None
    metadata = msgspec.json.decode(artifact.config, type=versions.ModelMetadata)
    assert (metadata.number, metadata.parent, metadata.base) == (2, None, "vmaf_4k_v0.6.1")


def test_one_process_uses_a_folder(site: Site) -> None:
    training = site.start()
    with pytest.raises(LogInUse):
        OnlineTraining(CONFIG, site.folder, start, site.clock)
    training.close()
    OnlineTraining(CONFIG, site.folder, start, site.clock).close()


def wrong_push(seed: int, node: str) -> SamplePush:
    """Scores that these features cannot have."""
    made, good = batch(seed), push(seed, node=node)
    rows = np.frombuffer(made.values, "<f4").reshape(-1, len(MODEL_FEATURES) + 1).copy()
    rows[:, -1] = (rows[:, -1] + 50) % 100
    return SamplePush(good.source, encode_batch(msgspec.structs.replace(made, values=rows.tobytes())))


@pytest.mark.parametrize("garbage", ["bytes", "scores"])
def test_a_node_that_sends_garbage_is_left_out_and_named(site: Site, clock: Clock, garbage: str) -> None:
    training = site.start()
    for seed in range(MAX_STRIKES):
        bad = wrong_push(seed, "bad") if garbage == "scores" else SamplePush(push(seed, node="bad").source, b"garbage")
        with pytest.raises(InvalidSamples):
            training.accept(bad)
    with pytest.raises(NodeExcluded, match="refused for now"):
        training.accept(push(99, node="bad"))
    assert training.accept(push(100, node="good")) == "stored"
    assert list(training.status.excluded_nodes) == ["bad"]
    learn_all(training)
    training.save()
    assert list(site.start().status.excluded_nodes) == ["bad"]
    clock.advance(3600)
    assert site.start().accept(push(99, node="bad")) == "stored"


def test_a_clock_that_was_set_back_does_not_exclude_a_node_for_longer(site: Site, clock: Clock) -> None:
    training = site.start()
    for seed in range(MAX_STRIKES):
        with pytest.raises(InvalidSamples):
            training.accept(wrong_push(seed, "bad"))
    clock.advance(-86_400)
    assert training.accept(push(99, node="bad")) == "stored"


def test_a_clock_that_was_set_back_does_not_hide_that_no_samples_come(site: Site, clock: Clock) -> None:
    training = site.start()
    fill(training, 3)
    clock.advance(-86_400)
    training.checkpoint_if_due()
    assert not training.status.stale
    clock.advance(3 * CONFIG.checkpoint_interval + 1)
    training.checkpoint_if_due()
    assert training.status.stale


def test_samples_of_another_namespace_are_refused(site: Site) -> None:
    source = msgspec.structs.replace(push().source, namespace="other")
    with pytest.raises(InvalidSamples, match="namespace"):
        site.start().accept(SamplePush(source, push().batch))


def test_a_damaged_snapshot_costs_only_the_work_since_the_one_before(site: Site) -> None:
    training = site.start()
    fill(training, 6)
    training.save()
    fill(training, 6, first=6)
    training.save()
    site.kill()
    latest = site.files("snapshots")[-1]
    latest.write_bytes(latest.read_bytes()[:-10])
    training = site.start()
    assert (training.status.damaged, training.status.pending) == (1, 6 * 50)
    learn_all(training)
    assert training.status.samples == 10 * 50


def test_a_damaged_record_is_skipped_and_counted(site: Site) -> None:
    training = site.start()
    for one in pushes(12):
        training.accept(one)
    site.kill()
    (segment,) = site.files("log")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    training = site.start()
    learn_all(training)
    assert training.status.damaged == 1
    assert training.status.samples + training.status.held_out == 11 * 50


def test_a_record_that_was_cut_off_by_a_kill_leaves_nothing_to_learn(site: Site) -> None:
    """Else the trainer would look for it again and again, without a pause."""
    training = site.start()
    fill(training, 3)
    training.close()
    (segment,) = site.files("log")
    with segment.open("ab") as file:
        file.write(bytes.fromhex(segment.stem[-16:]) + bytes(10))
    training = site.start()
    assert not training.learn(3)
    assert (training.status.samples, training.status.held_out, training.status.damaged) == (100, 50, 0)


def test_a_damaged_version_is_set_aside(site: Site, clock: Clock) -> None:
    training = site.start()
    fill(training, 12)
    checkpoint(training, clock)
    site.kill()
    (version,) = site.files("versions")
    version.write_bytes(version.read_bytes()[:100])
    training = site.start()
    assert (training.status.damaged, training.status.checkpoints) == (1, ())
    fill(training, 12, first=12)
    clock.advance(601)
    info = training.checkpoint_if_due()
    assert info is not None
    assert info.number == 2


def test_all_damage_is_counted_once_across_restarts(site: Site, clock: Clock) -> None:
    """So that the operator sees the number grow whenever something is found damaged."""
    training = site.start()
    fill(training, 12)
    checkpoint(training, clock)
    for number, folder in enumerate(("snapshots", "versions", "log", "snapshots"), 1):
        training.close()
        latest = site.files(folder)[-1]
        latest.write_bytes(latest.read_bytes()[:-10])
        for _ in range(2):
            training = site.start()
            learn_all(training)
            assert training.status.damaged == number
        fill(training, 12, first=12 * number)
        checkpoint(training, clock)


def test_versions_of_an_earlier_training_are_told_apart_without_a_clock(site: Site, clock: Clock) -> None:
    training = site.start(uid="first")
    fill(training, 12)
    checkpoint(training, clock)
    assert training.status.inherited == 0
    clock.advance(-86_400)
    training = site.start(uid="second")
    assert training.status.inherited == 1
    fill(training, 12, first=100)
    checkpoint(training, clock)
    status = site.start(uid="second").status
    assert (status.inherited, [one.number for one in status.checkpoints]) == (1, [1, 2])


def test_a_full_disk_delays_checkpoints_only(site: Site, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    training = site.start()
    fill(training, 12)
    clock.advance(601)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(versions, "write_atomic", full)
        assert training.checkpoint_if_due() is None
        assert training.status.message == "cannot write a checkpoint: No space left on device"
        fill(training, 1, first=12)
        patch.setattr(training._log._log, "append", full)
        with pytest.raises(OSError, match="No space"):
            training.accept(push(13))
        assert training.status.message == (
            "cannot store samples: No space left on device; cannot write a checkpoint: No space left on device"
        )
    assert training.accept(push(13)) == "stored"
    assert training.checkpoint_if_due() is not None
    assert training.status.message == ""


def test_a_full_disk_does_not_hide_a_divergence(site: Site, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """What diverges is measured by the last version that was written."""
    training = site.start()
    fill(training, 12)
    clock.advance(601)
    before = training._learner._state.comparison.rows
    with monkeypatch.context() as patch:

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(versions, "write_atomic", full)
        assert training.checkpoint_if_due() is None
    assert training._learner._state.comparison.rows >= before > 0
