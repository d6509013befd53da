"""An online training: takes samples, learns from them, and writes versions of the model. One thread uses it.

Samples are on disk before they are acknowledged. Learning reads them from there in order, and a snapshot has the
position up to which they are used: after a crash, learning resumes from the last snapshot, and each sample counts once.

One clip in HOLD_OUT_EVERY is held out: it is never trained on, and tells how good the model is.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from vmafx.api.training import TrainingPhase
from vmafx.clock import utc_now
from vmafx.logs import log
from vmafx.training.config import TrainingConfig
from vmafx.training.damage import DamageCounter
from vmafx.training.distillation import StartingModel
from vmafx.training.exclusion import NodeExclusion
from vmafx.training.human_scores import HumanScores
from vmafx.training.learner import Learner
from vmafx.training.learner_state import InvalidState
from vmafx.training.network import from_model, scores
from vmafx.training.sample_log import LogEntry, SampleLog, StoredHumanScore, StoredSamples
from vmafx.training.samples import FEATURES, HumanScore, InvalidSamples, SampleBatch, SamplePush, decode_batch
from vmafx.training.snapshots import Snapshot, SnapshotStore
from vmafx.training.status import CheckpointInfo, TrainerStatus
from vmafx.training.targets import labelled_frames
from vmafx.training.versions import ModelMetadata, VersionStore

HOLD_OUT_EVERY = 10  # clips
STALE_INTERVALS = 3  # checkpoint intervals without samples, after which a training is stale
SNAPSHOT_INTERVAL = timedelta(minutes=1)
MAX_ROLLBACKS = 5  # without a checkpoint between them
MAX_TEACHER_ERROR = 15.0  # points by which scores may differ on average from what their model gives these features
LOG_SHARE = 0.5  # of the storage


class _TrainingState(msgspec.Struct, kw_only=True):
    """What a snapshot has, beside the position in the log."""

    version: Literal[1] = 1
    uid: str | None = None  # of the training
    inherited: int = 0  # number of the latest version that another training has left
    base_model: str
    start: StartingModel
    learner: bytes
    good: bytes  # the learner at the last checkpoint, to return to
    exclusion: bytes
    human_scores: bytes
    samples: int = 0
    checkpoint_samples: int = 0  # at the last checkpoint
    started: datetime
    last_sample: datetime | None = None
    diverged: str = ""
    damage: DamageCounter = msgspec.field(default_factory=DamageCounter)


class OnlineTraining:
    """The training in one folder. Its methods block on the disk; `status` may be read by another thread."""

    status: TrainerStatus

    def __init__(
        self,
        config: TrainingConfig,
        folder: Path,
        start: Callable[[], StartingModel],
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """Continue the training in `folder`, or start one from the model that `start` returns.

        Raises OSError, LogInUse, and what `start` raises.
        """
        self.config, self._now = config, now
        self._snapshots, self.versions = SnapshotStore(folder / "snapshots"), VersionStore(folder / "versions")
        self._position, state = self._load(start)
        self._log = SampleLog(folder / "log", max_bytes=int(config.storage * LOG_SHARE), after=self._position)
        self._log.keep_from(self._snapshots.oldest_position)
        self._start, self._learner, self._good = state.start, Learner.restore(state.learner, config), state.good
        self._teacher = from_model(state.start.model)
        self._exclusion = NodeExclusion.restore(state.exclusion)
        self._human_scores = HumanScores.restore(state.human_scores)
        self._samples, self._checkpoint_samples = state.samples, state.checkpoint_samples
        self._started, self._last_sample, self._diverged = state.started, state.last_sample, state.diverged
        self._rollbacks = 0  # since the last checkpoint
        self._checkpoint_problem = self._store_problem = ""
        self._saved_at, self._saved_position = now(), self._position
        self._inherited, self._damage, damaged = state.inherited, state.damage, state.damage.total
        self._damaged_files = 0  # as counted
        self._pending = 0
        for entry in self._log.read(self._position):
            self._pending += _count(entry)
            if isinstance(entry.record, StoredHumanScore):
                self._human_scores.add(HumanScore(entry.record.job, entry.record.score))
        self._quality = self._learner.quality()
        self._describe()
        if not self._is_saved or self._damage.total > damaged:
            self._try_save()

    def _load(self, start: Callable[[], StartingModel]) -> tuple[int, _TrainingState]:
        """The latest snapshot, or a new training. Another base model is a new start; its samples are not used again."""
        snapshot, state = self._snapshots.load(), None
        if snapshot is not None:
            try:
                state = msgspec.msgpack.decode(snapshot.state, type=_TrainingState)
                Learner.restore(state.learner, self.config)
            except (msgspec.DecodeError, InvalidState) as error:
                log.warn("the snapshot is of another version of vmafx; starting from the base model", error=str(error))
                state = None
        position = snapshot.position if snapshot is not None else 0
        self._is_saved = state is not None and (state.base_model, state.uid) == (
            self.config.base_model,
            self.config.uid,
        )
        if state is not None and state.base_model != self.config.base_model:
            log.info("base model changed; starting from it", before=state.base_model, now=self.config.base_model)
            kept = {"uid": state.uid, "inherited": state.inherited, "damage": state.damage}
            state = msgspec.structs.replace(self._new_state(start()), **kept)
        return position, self._adopted(state or self._new_state(start()))

    def _new_state(self, start: StartingModel) -> _TrainingState:
        learner = Learner(start, self.config).state()
        return _TrainingState(
            base_model=self.config.base_model, start=start, learner=learner, good=learner, started=self._now(),
            exclusion=NodeExclusion().state(), human_scores=HumanScores().state(),
        )  # fmt: skip

    def _adopted(self, state: _TrainingState) -> _TrainingState:
        """The state as one of this training: what another one has left on the volume is inherited."""
        if state.uid == self.config.uid:
            return state
        return msgspec.structs.replace(state, uid=self.config.uid, inherited=self.versions.next_number - 1)

    def accept(self, push: SamplePush) -> Literal["stored", "duplicate"]:
        """Store samples; they are on disk when this returns. Raises InvalidSamples and OSError."""
        now, node = self._now(), push.source.node
        if push.source.namespace != self.config.namespace:
            raise InvalidSamples(f"this training is in namespace {self.config.namespace}")
        if (reason := self._exclusion.reason(node, now)) is not None:
            raise InvalidSamples(f"samples of {node} are refused for now: {reason}")
        try:
            batch = decode_batch(push.batch)
            self._check_teacher(batch)
        except InvalidSamples as error:
            if self._exclusion.strike(node, str(error), now):
                log.warn("node excluded: its samples are unusable", node=node, error=str(error))
            self._describe()
            raise
        self._exclusion.forgive(node)
        try:
            stored = self._log.store(push, now)
        except OSError as error:
            self._store_problem = f"cannot store samples: {error.strerror or error}"
            self._describe()
            raise
        self._store_problem = ""
        if stored:
            self._pending += batch.count
            self._last_sample = now
        self._describe()
        return "stored" if stored else "duplicate"

    def _check_teacher(self, batch: SampleBatch) -> None:
        """Refuse scores that their model cannot have given, if it is the one that this training started from."""
        if batch.model != self.config.base_model:
            return
        rows = np.frombuffer(batch.values, "<f4").reshape(-1, len(FEATURES) + 1).astype(np.float64)
        parameters, normalisation = self._teacher
        error = float(np.abs(scores(parameters, normalisation.inputs(rows[:, :-1])) - rows[:, -1]).mean())
        if error > MAX_TEACHER_ERROR:
            raise InvalidSamples(
                f"these features do not give these scores with {batch.model}: {error:.0f} points apart"
            )

    def add_human_scores(self, given: Sequence[HumanScore]) -> int:
        """Store what people said about clips; returns the number of scores that were not known. Raises OSError."""
        new = [one for one in given if self._human_scores.is_new(one)]
        for score in new:
            if not 0 <= score.score <= 100:
                raise InvalidSamples(f"the score of a clip is {score.score:g}, not 0 to 100")
            self._log.store_human_score(score, self._now())
            self._human_scores.add(score)
        return len(new)

    def learn(self, limit: int) -> bool:
        """Use up to `limit` records of the log; returns whether there may be more."""
        if self.config.paused or self._failed:
            return False
        entries = list(islice(self._log.read(self._position), limit))
        scored = {entry.record.job for entry in entries if isinstance(entry.record, StoredHumanScore)}
        clips = self._log.find_jobs(scored, self._position) if scored else {}
        for entry in entries:
            self._use(entry, clips)
            self._position = entry.position
            if (problem := self._learner.divergence()) and self._roll_back(problem):
                break
        if entries:
            self._quality = self._learner.quality()
            self._describe()
        return len(entries) == limit and not self._failed  # the last positions of the log may have no records

    def _use(self, entry: LogEntry, clips: dict[str, LogEntry]) -> None:
        if isinstance(entry.record, StoredHumanScore):
            clip = clips.get(entry.record.job)
            if clip is None:
                self._human_scores.wait_for(HumanScore(entry.record.job, entry.record.score))
            else:
                self._feed(clip, entry.record.score)
            return
        self._feed(entry, self._human_scores.take(entry.record.source.job))
        clips[entry.record.source.job] = entry
        self._pending -= _count(entry)
        self._samples += 0 if _is_held_out(entry) else _count(entry)

    def _feed(self, clip: LogEntry, human_score: float | None) -> None:
        """Train on a clip, or hold it out, whichever was done with it before."""
        if not isinstance(clip.record, StoredSamples):
            return
        batch = clip.record.decode()
        if human_score is not None:
            batch = msgspec.structs.replace(batch, human_score=human_score)
        frames = labelled_frames(batch)
        if _is_held_out(clip):
            self._learner.hold_out(frames.features, frames.targets)
        else:
            self._learner.learn(*frames)

    def _roll_back(self, problem: str) -> bool:
        """Return to the last checkpoint with a lower learning rate; true if the training has failed."""
        self._learner.roll_back(self._good)
        self._diverged, self._rollbacks = problem, self._rollbacks + 1
        log.warn("training diverged; back to the last checkpoint", error=problem, rate=self._learner.learning_rate)
        return self._failed

    @property
    def _failed(self) -> bool:
        return self._rollbacks >= MAX_ROLLBACKS

    def checkpoint_if_due(self) -> CheckpointInfo | None:
        """Write a version of the model if it is time, and a snapshot if it is time for that."""
        try:
            if self._is_due():
                problem = self._learner.divergence()
                if not problem:
                    return self._checkpoint()
                self._roll_back(problem)
            if self._position != self._saved_position and not _within(self._saved_at, self._now(), SNAPSHOT_INTERVAL):
                self.save()
        except OSError as error:
            self._report_problem(error)
        self._describe()
        return None

    def _is_due(self) -> bool:
        latest = self.versions.latest
        interval = timedelta(seconds=self.config.checkpoint_interval)
        return (
            not self.config.paused
            and not self._failed
            and self._samples - self._checkpoint_samples >= self.config.min_samples
            and not _within(latest.time if latest is not None else self._started, self._now(), interval)
        )

    def _checkpoint(self) -> CheckpointInfo:
        latest = self.versions.latest
        metadata = ModelMetadata(
            training=f"{self.config.namespace}/{self.config.name}",
            number=self.versions.next_number,
            base=self.config.base_model,
            parent=latest.digest if latest is not None else None,
            time=self._now(),
            samples=self._samples,
            quality=self._learner.quality(),
        )
        info = self.versions.add(self._learner.model(), metadata)
        self._learner.accept_checkpoint()
        self._good, self._checkpoint_samples = self._learner.state(), self._samples
        self._diverged, self._rollbacks = "", 0
        self.save()
        log.info("checkpoint", number=info.number, digest=info.digest, samples=info.samples, loss=info.quality.loss)
        return info

    def mark_pushed(self, version: CheckpointInfo) -> None:
        """The version is in the registry. Raises OSError."""
        self.versions.mark_pushed(version)
        self._describe()

    def save(self) -> None:
        """Write a snapshot. Raises OSError."""
        state = _TrainingState(
            uid=self.config.uid,
            inherited=self._inherited,
            base_model=self.config.base_model,
            start=self._start,
            learner=self._learner.state(),
            good=self._good,
            exclusion=self._exclusion.state(),
            human_scores=self._human_scores.state(),
            samples=self._samples,
            checkpoint_samples=self._checkpoint_samples,
            started=self._started,
            last_sample=self._last_sample,
            diverged=self._diverged,
            damage=self._damage,
        )
        self._snapshots.save(Snapshot(self._position, msgspec.msgpack.encode(state)))
        self._log.keep_from(self._snapshots.oldest_position)
        self._saved_at, self._saved_position, self._checkpoint_problem = self._now(), self._position, ""
        self._describe()

    def _try_save(self) -> None:
        try:
            self.save()
        except OSError as error:
            self._report_problem(error)
            self._describe()

    def _report_problem(self, error: OSError) -> None:
        problem = f"cannot write a checkpoint: {error.strerror or error}"
        if problem != self._checkpoint_problem:
            log.error("cannot write a checkpoint; training continues", error=error.strerror or str(error))
        self._checkpoint_problem = problem

    def close(self) -> None:
        """Save what was learned since the last checkpoint, and release the folder."""
        if self._position != self._saved_position:
            self._try_save()  # if it fails, that is learned again after the next start
        self._log.close()

    def _describe(self) -> None:
        """Update the status."""
        phase, message = self._phase()
        self._count_damage()
        now = self._now()  # if it was set back, what has passed is measured from now on
        self._started, self._last_sample = min(self._started, now), self._last_sample and min(self._last_sample, now)
        silence = (now - (self._last_sample or self._started)).total_seconds()
        stale_after = STALE_INTERVALS * self.config.checkpoint_interval
        self.status = TrainerStatus(
            phase=phase,
            message=message,
            samples=self._samples,
            pending=self._pending,
            held_out=self._learner.held_out,
            quality=self._quality,
            base_error=self._start.rms_error,
            learning_rate=self._learner.learning_rate,
            last_sample=self._last_sample,
            stale=not self.config.paused and silence > stale_after,
            diverged=self._diverged,
            checkpoints=self.versions.versions,
            inherited=self._inherited,
            excluded_nodes=self._exclusion.excluded(now),
            rollbacks=self._learner.rollbacks,
            damaged=self._damage.total,
        )

    def _count_damage(self) -> None:
        files = self._snapshots.damaged + self.versions.damaged
        self._damage.add_records(self._log.damage)
        self._damage.add_files(files - self._damaged_files)
        self._damaged_files = files

    def _phase(self) -> tuple[TrainingPhase, str]:
        problem = "; ".join(filter(None, (self._store_problem, self._checkpoint_problem)))
        if self._failed:
            return "Failed", f"diverged {self._rollbacks} times without a checkpoint; lower spec.learningRate"
        if self.config.paused:
            return "Paused", problem or "samples are stored, and used once spec.paused is false"
        return "Running", problem


def _is_held_out(entry: LogEntry) -> bool:
    """By its position, so that the answer is the same when a human score comes later."""
    return entry.position % HOLD_OUT_EVERY == 1


def _count(entry: LogEntry) -> int:
    return entry.record.decode().count if isinstance(entry.record, StoredSamples) else 0


def _within(since: datetime, now: datetime, interval: timedelta) -> bool:
    """Whether `interval` has not passed; a clock that was set back does not stop a training."""
    return timedelta(0) <= now - since < interval
