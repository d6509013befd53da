"""Sends the scores that people gave to jobs to the trainers that learn from the nodes of these jobs.

Jobs with such a score have a label, so that the cache has only these. What a trainer has acknowledged is remembered
while this process runs; after a restart everything is sent again, and trainers drop what they have.
"""

import asyncio
from collections.abc import Iterator

import msgspec

from vmafx.api.job import LABELLED
from vmafx.api.meta import ApiModel
from vmafx.api.training import TrainingView
from vmafx.jobs.sample_keys import SampleKeys, matching_trainings
from vmafx.jobs.sample_token import TrainerClaims, sign, trainer_audience
from vmafx.kube import JOBS, ObjectKey, key_of
from vmafx.kube.errors import KubeError
from vmafx.logs import log
from vmafx.operator.context import BY_NAMESPACE, OperatorContext
from vmafx.operator.training.trainers import TrainerClient
from vmafx.runtime.informer import Informer
from vmafx.runtime.store import ObjectChange
from vmafx.training.address import LABELS_PATH
from vmafx.training.samples import SCORE_LIMITS, HumanScore

MAX_SCORES = 500  # in a request


class _LabelledMeta(ApiModel):
    name: str
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""


class _LabelledSpec(ApiModel):
    humanScore: float | None = None


class _LabelledStatus(ApiModel):
    assignedNode: str | None = None


class LabelledJob(ApiModel):
    """The fields of a VmafxJob with a score that people gave, as the cache stores them."""

    metadata: _LabelledMeta
    spec: _LabelledSpec = _LabelledSpec()
    status: _LabelledStatus = _LabelledStatus()


class HumanScoreSender:
    """Delivers scores when they change, and again after the next answer of a trainer that did not take them."""

    def __init__(self, context: OperatorContext, client: TrainerClient, keys: SampleKeys) -> None:
        self._trainings, self._nodes, self._client, self._keys = context.trainings, context.nodes, client, keys
        indexes = {BY_NAMESPACE: lambda job: (job.metadata.namespace,)}
        self.jobs: Informer[LabelledJob] = Informer(
            context.client,
            JOBS.decoded_as(LabelledJob),
            namespace=context.namespace,
            labels=",".join("=".join(label) for label in LABELLED.items()),
            indexes=indexes,
        )
        self._sent: dict[str, dict[str, float]] = {}  # by the uid of the training, by the uid of the job
        self._incomplete: set[ObjectKey] = set()  # trainings that lack scores
        self._answering: set[ObjectKey] = set()  # trainings whose trainer took the last request, or answered since
        self._due: set[ObjectKey] = set()
        self._delivering: set[ObjectKey] = set()
        self._wake = asyncio.Event()
        self.jobs.on_change(self._job_changed)
        self._trainings.on_change(self._training_changed)

    def trainer_answered(self, key: ObjectKey) -> None:
        """Deliver what is left to a trainer that has just answered."""
        self._answering.add(key)
        if key in self._incomplete:
            self._request(key)

    async def run(self) -> None:
        """Deliver what is due, to each trainer in a task of its own."""
        async with asyncio.TaskGroup() as deliveries:
            while True:
                await self._wake.wait()
                self._wake.clear()
                due = self._due - self._delivering
                self._due -= due
                self._delivering |= due
                for key in due:
                    deliveries.create_task(self._deliver(key))

    async def _deliver(self, key: ObjectKey) -> None:
        try:
            await self._send(key)
        except Exception as error:  # noqa: BLE001 - a bug that one training reveals must not stop the others
            self._postpone(key)
            log.error("sending human scores failed", training=str(key), trace_of=error)
        finally:
            self._delivering.discard(key)
            self._wake.set()

    async def _send(self, key: ObjectKey) -> None:
        training = self._trainings.store.get(key)
        if training is None:
            return
        self._incomplete.discard(key)  # a change from now on adds it again
        sent = self._sent.setdefault(training.metadata.uid, {})
        scores = [one for one in self._scores(training) if sent.get(one.job) != one.score]
        try:
            for start in range(0, len(scores), MAX_SCORES):
                batch = scores[start : start + MAX_SCORES]
                token = sign(await self._keys.ensure(key.namespace), TrainerClaims(trainer_audience(*key)))
                await self._client.post(key, LABELS_PATH, token, msgspec.msgpack.encode(batch))
                sent |= {one.job: one.score for one in batch}
        except (KubeError, OSError, ValueError) as error:
            self._postpone(key)
            log.warn("could not send human scores, will retry", training=str(key), scores=len(scores), error=str(error))
            return
        if scores:
            log.info("sent human scores", training=str(key), scores=len(scores))

    def _postpone(self, key: ObjectKey) -> None:
        """Deliver again after the next answer of the trainer."""
        self._incomplete.add(key)
        self._answering.discard(key)

    def _scores(self, training: TrainingView) -> Iterator[HumanScore]:
        """The scores of all jobs that ran on a node of the training."""
        namespace, (low, high) = training.metadata.namespace, SCORE_LIMITS
        for job in self.jobs.store.by(BY_NAMESPACE, namespace):
            score, name = job.spec.humanScore, job.status.assignedNode
            if score is None or not name or not low <= score <= high:
                continue
            node = self._nodes.store.get(ObjectKey(namespace, name))
            if matching_trainings([training], node.metadata.labels if node is not None else {}):
                yield HumanScore(job.metadata.uid, score)

    def _job_changed(self, change: ObjectChange[LabelledJob]) -> None:
        """A trainer keeps the score of a job that is deleted."""
        old, new = change.old, change.new
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            for sent in self._sent.values():
                sent.pop(old.metadata.uid, None)
        if new is None or (old is not None and (old.spec, old.status) == (new.spec, new.status)):
            return
        for training in self._trainings.store.by(BY_NAMESPACE, change.key.namespace):
            self._request(key_of(training))

    def _training_changed(self, change: ObjectChange[TrainingView]) -> None:
        old, new = change.old, change.new
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._sent.pop(old.metadata.uid, None)
            self._incomplete.discard(change.key)
            self._answering.discard(change.key)
        if new is not None and (old is None or old.spec.dataSource != new.spec.dataSource):
            self._request(change.key)

    def _request(self, key: ObjectKey) -> None:
        self._incomplete.add(key)
        if key in self._answering:
            self._due.add(key)
            self._wake.set()
