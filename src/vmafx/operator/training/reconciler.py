"""The VmafxModelTraining reconciler: applies the children, follows the trainer, writes the status, emits events."""

from functools import partial

import msgspec

from vmafx.api.meta import API_VERSION
from vmafx.api.training import TrainingView
from vmafx.jobs.sample_keys import KEY_TTL, SampleKeys
from vmafx.kube import TRAININGS, ObjectKey, key_of
from vmafx.kube.core import DEPLOYMENTS, PERSISTENT_VOLUME_CLAIMS, SERVICE_ACCOUNTS, SERVICES
from vmafx.kube.errors import ConfigError, Forbidden
from vmafx.logs import log
from vmafx.operator.context import FIELD_MANAGER, OperatorContext
from vmafx.operator.training import manifests
from vmafx.operator.training.changes import events_of
from vmafx.operator.training.decide import (
    ObservedTraining,
    TrainingDecision,
    TrainingProblem,
    decide,
    is_changing,
    is_undecided,
)
from vmafx.operator.training.gather import live_trainer
from vmafx.operator.training.human_scores import HumanScoreSender
from vmafx.operator.training.settings import TrainingSettings
from vmafx.operator.training.trainers import TrainerClient, TrainerPoller
from vmafx.operator.training.volume import VolumeClaims, VolumeState, training_of
from vmafx.runtime.child import Child
from vmafx.runtime.children import Children, SyncResult
from vmafx.runtime.conditions import with_conditions
from vmafx.runtime.events import EventSubject
from vmafx.runtime.reconcile import ReconcileLoop, ReconcileResult
from vmafx.runtime.status import StatusWriter, changed_fields
from vmafx.runtime.store import ObjectChange

RETRY_INTERVAL = 5.0  # seconds, while a child is blocked or a status is refused
REFUSED_RETRY_INTERVAL = 10.0  # seconds, for a child that the server rejects
KEY_CHECK_INTERVAL = KEY_TTL  # seconds until the key of samples is looked up again: nothing announces its deletion


class TrainingReconciler:
    """Reconciles a training when it, one of its children or the status of its trainer changes."""

    def __init__(self, context: OperatorContext, settings: TrainingSettings) -> None:
        self._context, self._trainings, self._options = context, context.trainings, settings.options
        caches = [context.children(kind) for kind in (DEPLOYMENTS, SERVICES, SERVICE_ACCOUNTS)]
        claims = context.children(PERSISTENT_VOLUME_CLAIMS)
        self._children = Children(context.client, FIELD_MANAGER, self._trainings, caches)
        self._claims = VolumeClaims(context.client, claims)
        self._keys = SampleKeys(context.client, context.clock)
        self._status = StatusWriter(context.client, self._trainings)
        self.loop = ReconcileLoop(
            "vmafxmodeltraining", self.reconcile, context.metrics, max_concurrent=context.max_concurrent
        )
        self.loop.watches(self._trainings, when=self._status.needs_reconcile)
        for cache in caches:
            changed = partial(self._children.needs_reconcile, cache.resource)
            self.loop.owns(cache, TRAININGS.kind, when=changed)
        self.loop.watches(claims, to=training_of)
        client = TrainerClient(settings.trainer_address)
        self.human_scores = HumanScoreSender(context, client, self._keys)
        self.poller = TrainerPoller(
            client, settings.poll_interval, self.loop.queue.add, self.human_scores.trainer_answered
        )
        self._trainings.on_change(self._forget_deleted)

    async def reconcile(self, key: ObjectKey) -> ReconcileResult:
        training = self._trainings.store.get(key)
        if training is None or training.metadata.deletionTimestamp is not None or self._status.must_wait(key, training):
            return ReconcileResult.done()
        if training.status.phase is None:  # on sight: creating the children may take long
            await self._write_status(training, decide(ObservedTraining(training=training)))
            return ReconcileResult.retry() if self._status.is_outdated(key) else ReconcileResult.after(0)
        volume, synced = VolumeState(), SyncResult()
        sample_key = await self._sample_key(training)
        problems = [sample_key] if isinstance(sample_key, TrainingProblem) else []
        if not isinstance(sample_key, TrainingProblem):
            volume = await self._claims.sync(training)
            problems += [volume.problem] if volume.problem is not None else []
            if volume.usable or (volume.waiting and self._deployment(training) is not None):
                bodies = manifests.children(training, self._options, volume.storage, sample_key)
                synced = await self._children.sync(training, bodies)
                problems += [TrainingProblem(failure.reason, failure.message) for failure in synced.failures]
        state = self._follow(key, training, volume, problems)
        written = is_undecided(state) or await self._write_status(training, decide(state))
        if self._status.is_outdated(key) or synced.outdated:
            return ReconcileResult.retry()
        if problems:
            return ReconcileResult.after(REFUSED_RETRY_INTERVAL)
        if not written or not volume.usable or not synced.complete:
            return ReconcileResult.after(RETRY_INTERVAL)
        return ReconcileResult.after(KEY_CHECK_INTERVAL)

    async def _sample_key(self, training: TrainingView) -> bytes | TrainingProblem:
        """The key that samples are signed with, without which no trainer starts; or why no child can be created."""
        if not self._options.image:
            message = "there is no image: set VMAFX_TRAINER_IMAGE or VMAFX_WORKER_IMAGE of the operator"
            return TrainingProblem("NoImage", message)
        try:
            return await self._keys.ensure(training.metadata.namespace)
        except (ConfigError, Forbidden) as error:
            return TrainingProblem("Refused", str(error))

    def _deployment(self, training: TrainingView) -> Child | None:
        return self._children.find(training, DEPLOYMENTS, manifests.child_name(training.metadata.name))

    def _follow(
        self, key: ObjectKey, training: TrainingView, volume: VolumeState, problems: list[TrainingProblem]
    ) -> ObservedTraining:
        """Gather what the status depends on, and read the trainer's status as often as it may change."""
        trainer = live_trainer(self._deployment(training))
        state = ObservedTraining(
            training=training,
            trainer=trainer,
            poll=self.poller.latest(key),
            problems=tuple(problems),
            notes=(volume.note,) if volume.note else (),
            waiting=volume.waiting,
            deleting=volume.deleting,
        )
        if trainer is None:
            self.poller.forget(key)
        else:
            self.poller.follow(key, training.metadata.uid, trainer, changing=is_changing(state))
        return msgspec.structs.replace(state, poll=self.poller.latest(key))

    async def _write_status(self, training: TrainingView, decision: TrainingDecision) -> bool:
        """Whether the status is as decided; not if the training was changed or deleted since it was read."""
        decided = {new.type for new in decision.conditions}
        conditions = with_conditions(training, decision.conditions, decided, self._context.now())
        wanted = {**decision.fields, "conditions": conditions}
        # The first status has a number of samples: `kubectl get` shows nothing for a field that is absent.
        first = {} if training.status.observedGeneration else {"currentSamples": 0}
        changes = {**first, **changed_fields(training.status, wanted)}
        if await self._status.write_last(training, changes) is None:
            return False
        self._report(training, decision)
        return True

    def _report(self, training: TrainingView, decision: TrainingDecision) -> None:
        meta = training.metadata
        subject = EventSubject(API_VERSION, TRAININGS.kind, meta.namespace, meta.name, meta.uid)
        for event in events_of(training, decision):
            write = log.warn if event.type == "Warning" else log.info
            write("training event", training=str(key_of(training)), reason=event.reason, note=event.note)
            self._context.events.emit(subject, event.type, event.reason, "Reconcile", event.note, by_note=True)

    def _forget_deleted(self, change: ObjectChange[TrainingView]) -> None:
        old, new = change.old, change.new
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self.poller.forget(change.key)
