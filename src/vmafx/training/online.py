"""An online training: takes samples, learns from them, and writes versions of the model. One thread uses it.

Samples are on disk before they are acknowledged. Learning reads them from there in order, and a snapshot has the
position up to which they are used: after a crash, learning resumes from the last snapshot, and each sample counts once.

A training that diverges returns to its last checkpoint, also in the log: what came since is learned again, at a lower
rate. The clips of one job in HOLD_OUT_EVERY are held out: never trained on, and used to measure the model.
"""

import os
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec

from vmafx.api.training import TrainingPhase
from vmafx.clock import utc_now
from vmafx.logs import log
from vmafx.scoring.errors import BadInput
from vmafx.scoring.learned import decode_model
from vmafx.segments import LogFull, lock_folder
from vmafx.training.config import TrainingConfig
from vmafx.training.distillation import StartingModel, continue_from
from vmafx.training.exclusion import NodeExcluded, NodeExclusion
from vmafx.training.held_out import clip_id, is_held_out
from vmafx.training.human_scores import HumanScores
from vmafx.training.learner import Learner
from vmafx.training.learner_state import InvalidState
from vmafx.training.sample_log import LogEntry, SampleLog, StoredHumanScore, StoredSamples
from vmafx.training.samples import HumanScore, InvalidSamples, SampleBatch, SamplePush, decode_batch
from vmafx.training.saved_training import (
    LearningProgress,
    SavedTraining,
    decode_saved,
    new_training,
)
from vmafx.training.snapshots import Snapshot, SnapshotStore
from vmafx.training.status import CheckpointInfo, TrainerStatus
from vmafx.training.targets import labelled_frames
from vmafx.training.teacher import Teacher
from vmafx.training.versions import ModelMetadata, VersionStore

STALE_INTERVALS = 3  # checkpoint intervals without samples, after which a training is stale
SNAPSHOT_INTERVAL = timedelta(minutes=1)
MAX_ROLLBACKS = 5  # without a checkpoint between them
LOG_SHARE, MIN_LOG_BYTES = 0.5, 16 << 20  # of the storage


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
        self.config, self._now, self._opened = config, now, now()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = lock_folder(folder)
        try:
            self._snapshots, self.versions = SnapshotStore(folder / "snapshots"), VersionStore(folder / "versions")
            state, is_new = self._load(start)
            max_bytes = max(int(config.storage * LOG_SHARE), MIN_LOG_BYTES)
            self._log = SampleLog(folder / "log", max_bytes=max_bytes, after=state.progress.position)
        except BaseException:
            os.close(self._lock)
            raise
        self._state, self._good = state, state.good
        self._teacher = Teacher(config.base_model, state.start)
        self._exclusion = NodeExclusion.restore(state.exclusion)
        self._checkpoint_problem = self._store_problem = ""
        self._saved_at, self._saved_position = now(), state.progress.position
        damaged, self._damaged_files = state.damage.total, 0
        self._resume(state.progress, Learner.restore(state.progress.learner, config))
        self._log.keep_from(self._snapshots.oldest_position)
        self._describe()
        if is_new or state.damage.total > damaged:
            self._try_save()

    def _load(self, start: Callable[[], StartingModel]) -> tuple[SavedTraining, bool]:
        """The latest snapshot; else the latest version; else a new training. And whether it is not saved as such."""
        snapshots, position = self._snapshots.load(), 0
        for snapshot in snapshots:
            try:
                state = decode_saved(snapshot.state, self.config)
            except InvalidState as error:
                log.warn("cannot use a snapshot", error=str(error))
                position = max(position, snapshot.position)
                continue
            if state.base_model != self.config.base_model:
                log.info("base model changed; starting over", before=state.base_model, now=self.config.base_model)
                fresh = new_training(self.config, start(), state.progress.position, self._now())
                kept = {"uid": state.uid, "inherited": state.inherited, "damage": state.damage}
                return self._adopted(msgspec.structs.replace(fresh, **kept)), True
            return self._adopted(state), state.uid != self.config.uid
        state = new_training(self.config, self._latest_version() or start(), position, self._now())
        return msgspec.structs.replace(state, inherited=self.versions.next_number - 1), True

    def _latest_version(self) -> StartingModel | None:
        """Start from it if there is no snapshot that can be used."""
        latest = self.versions.latest
        artifact = self.versions.read(latest) if latest is not None else None
        if latest is None or artifact is None:
            return None
        try:
            model = continue_from(decode_model(artifact.model, latest.digest))
        except BadInput as error:
            log.warn("cannot use the latest version", number=latest.number, error=str(error))
            return None
        log.warn("no snapshot can be used; starting from the latest version", number=latest.number)
        return model

    def _adopted(self, state: SavedTraining) -> SavedTraining:
        """The state as one of this training, which may have another spec, or be another of the same name."""
        if state.uid != self.config.uid:
            state = msgspec.structs.replace(state, uid=self.config.uid, inherited=self.versions.next_number - 1)
        if state.learning_rate != self.config.learning_rate:
            state = msgspec.structs.replace(state, learning_rate=self.config.learning_rate, rollbacks=0)
        return state

    def _resume(self, progress: LearningProgress, learner: Learner) -> None:
        """Continue with the records behind a position of the log."""
        self._position, self._samples, self._learner = progress.position, progress.samples, learner
        self._human_scores = HumanScores.restore(progress.human_scores)
        self._pending = 0
        for entry in self._log.read(self._position):
            if isinstance(entry.record, StoredHumanScore):
                self._human_scores.store(HumanScore(entry.record.job, entry.record.score))
            else:
                self._pending += entry.record.decode().count
                self._state.last_sample = max(self._state.last_sample or entry.record.time, entry.record.time)
        self._quality = self._learner.quality()

    def accept(self, push: SamplePush) -> Literal["stored", "duplicate"]:
        """Store samples; they are on disk when this returns. Raises InvalidSamples, NodeExcluded and OSError."""
        now, source = self._now(), push.source
        if source.namespace != self.config.namespace:
            raise InvalidSamples(f"this training is in namespace {self.config.namespace}")
        if (reason := self._exclusion.reason(source.node, now)) is not None:
            raise NodeExcluded(f"samples of {source.node} are refused for now: {reason}")
        batch = self._checked(push, now)
        if not self._teacher.scored(batch):
            raise InvalidSamples(f"scored with {batch.model}; this training learns from {self.config.base_model} only")
        self._exclusion.reset(source.node)
        try:
            stored = self._store(push, now)
        except OSError as error:
            self._store_problem = f"cannot store samples: {error.strerror or error}"
            self._describe()
            raise
        self._store_problem = ""
        if stored:
            self._pending += batch.count
            self._state.last_sample = now
        self._describe()
        return "stored" if stored else "duplicate"

    def _checked(self, push: SamplePush, now: datetime) -> SampleBatch:
        node = push.source.node
        try:
            batch = decode_batch(push.batch)
            self._teacher.check(batch)
            if push.source.human_score is not None:
                HumanScore(push.source.job, push.source.human_score).check()
        except InvalidSamples as error:
            if self._exclusion.strike(node, push.source.attempt, str(error), now):
                log.warn("node excluded: its samples are unusable", node=node, error=str(error))
            self._describe()
            raise
        return batch

    def _store(self, push: SamplePush, now: datetime) -> bool:
        try:
            return self._log.store(push, now)
        except LogFull:
            if self._position == self._good.position or self._learner.divergence():
                raise
        # All that protects used records are the point of return, and the snapshot before the latest: move both.
        self._good = self._progress()
        self.save()
        self.save()
        return self._log.store(push, now)

    def add_human_scores(self, given: Sequence[HumanScore]) -> int:
        """Store the human scores of jobs; returns how many are new. Raises InvalidSamples and OSError."""
        for score in given:
            score.check()
        new = [score for score in given if self._human_scores.is_new(score)]
        if new:
            self._log.store_human_scores(new, self._now())
        for score in new:
            self._human_scores.store(score)
        return len(new)

    def learn(self, limit: int) -> bool:
        """Use up to `limit` records of the log; returns whether there may be more. Raises OSError."""
        if self.config.paused or self._failed:
            return False
        entries = list(islice(self._log.read(self._position), limit))
        for entry in entries:
            self._use(entry)
            self._position = entry.position
            if problem := self._learner.divergence():
                self._roll_back(problem)
                return not self._failed
        if len(entries) < limit:  # also if the last positions of the log have no records, because they were damaged
            self._pending = 0
        if entries:
            self._quality = self._learner.quality()
            self._describe()
        return len(entries) == limit

    def _use(self, entry: LogEntry) -> None:
        record = entry.record
        if isinstance(record, StoredHumanScore):
            is_new = self._human_scores.use(record.job, record.score)
            clip = self._log.find_job(record.job, entry.position) if is_new else None
            if clip is not None and isinstance(clip.record, StoredSamples):
                self._feed(record.job, clip.record.decode())
            return
        job, batch = record.source.job, record.decode()
        if record.source.human_score is not None and self._human_scores.of(job) is None:
            self._human_scores.use(job, record.source.human_score)
        self._feed(job, batch)
        self._pending -= batch.count
        self._samples += 0 if is_held_out(job) else batch.count

    def _feed(self, job: str, batch: SampleBatch) -> None:
        """Train on a clip, or hold it out."""
        frames = labelled_frames(batch, self._human_scores.of(job))
        if is_held_out(job):
            self._learner.hold_out(frames.features, frames.targets, clip_id(job))
        else:
            self._learner.learn(*frames)

    def _roll_back(self, problem: str) -> None:
        """Return to the last checkpoint, with a lower learning rate."""
        self._resume(self._good, self._learner.rolled_back(self._good.learner))
        self._state.diverged, self._state.rollbacks = problem, self._state.rollbacks + 1
        log.warn("training diverged; back to the last checkpoint", error=problem, rate=self._learner.learning_rate)
        self._try_save()

    @property
    def _failed(self) -> bool:
        return self._state.rollbacks >= MAX_ROLLBACKS

    def checkpoint_if_due(self) -> CheckpointInfo | None:
        """Write a version and a snapshot, each if due."""
        info = None
        if self._is_due():
            self._learner.flush()  # a version is trained on all the samples that it counts
            if problem := self._learner.divergence():
                self._roll_back(problem)
            else:
                info = self._checkpoint()
        elif self._position != self._saved_position and not _within(self._saved_at, self._now(), SNAPSHOT_INTERVAL):
            self._try_save()
        self._describe()
        return info

    def _is_due(self) -> bool:
        latest = self.versions.latest
        interval = timedelta(seconds=self.config.checkpoint_interval)
        return (
            not self.config.paused
            and not self._failed
            and self._samples - self._state.checkpoint_samples >= self.config.min_samples
            and not _within(latest.time if latest is not None else self._state.started, self._now(), interval)
        )

    def _checkpoint(self) -> CheckpointInfo | None:
        metadata = ModelMetadata(
            training=f"{self.config.namespace}/{self.config.name}",
            number=self.versions.next_number,
            base=self.config.base_model,
            parent=self._state.parent,
            time=self._now(),
            samples=self._samples,
            quality=self._learner.quality(),
        )
        try:
            info = self.versions.add(self._learner.model(), metadata)
        except OSError as error:
            self._report_problem(error)
            return None
        self._learner.accept_checkpoint()
        self._good, self._state.checkpoint_samples = self._progress(), self._samples
        self._state.diverged, self._state.rollbacks, self._state.parent = "", 0, info.digest
        self._try_save()
        log.info("checkpoint", number=info.number, digest=info.digest, samples=info.samples, loss=info.quality.loss)
        return info

    def mark_pushed(self, version: CheckpointInfo) -> None:
        """The version is in the registry. Raises OSError."""
        self.versions.mark_pushed(version)
        self._describe()

    def _progress(self) -> LearningProgress:
        return LearningProgress(self._position, self._learner.state(), self._human_scores.state(), self._samples)

    def save(self) -> None:
        """Write a snapshot. Raises OSError."""
        state = msgspec.structs.replace(
            self._state, progress=self._progress(), good=self._good, exclusion=self._exclusion.state()
        )
        self._snapshots.save(Snapshot(self._good.position, msgspec.msgpack.encode(state)))
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
        os.close(self._lock)

    def _describe(self) -> None:
        """Update the status."""
        phase, message = self._phase()
        self._count_damage()
        state, now = self._state, self._now()  # if it was set back, what has passed is measured from now on
        self._opened, state.started = min(self._opened, now), min(state.started, now)
        state.last_sample = state.last_sample and min(state.last_sample, now)
        silence = now - max(state.last_sample or state.started, self._opened)
        stale_after = STALE_INTERVALS * self.config.checkpoint_interval
        self.status = TrainerStatus(
            uid=self.config.uid,
            phase=phase,
            message=message,
            degraded=self._problem(),
            samples=self._samples,
            pending=self._pending,
            held_out=self._learner.held_out,
            quality=self._quality,
            base_error=state.start.rms_error,
            learning_rate=self._learner.learning_rate,
            last_sample=state.last_sample,
            stale=not self.config.paused and silence.total_seconds() > stale_after,
            diverged=state.diverged,
            checkpoints=self.versions.versions,
            inherited=state.inherited,
            excluded_nodes=self._exclusion.excluded(now),
            rollbacks=self._learner.rollbacks,
            damaged=state.damage.total,
        )

    def _count_damage(self) -> None:
        files = self._snapshots.damaged + self.versions.damaged
        self._state.damage.add_records(self._log.damage)
        self._state.damage.add_files(files - self._damaged_files)
        self._damaged_files = files

    def _problem(self) -> str:
        return "; ".join(filter(None, (self._store_problem, self._checkpoint_problem)))

    def _phase(self) -> tuple[TrainingPhase, str]:
        problem = self._problem()
        if self._failed:
            rate = self._learner.learning_rate
            return "Failed", (
                f"diverged {self._state.rollbacks} times without a checkpoint; the learning rate is down to {rate:g}:"
                " set spec.learningRate to that or less"
            )
        if self.config.paused:
            return "Paused", problem or "samples are stored, and used once spec.paused is false"
        return "Running", problem


def _within(since: datetime, now: datetime, interval: timedelta) -> bool:
    """Whether `interval` has not passed; a clock that was set back does not stop a training."""
    return timedelta(0) <= now - since < interval
