"""Samples of attempts, from agents and worker Pods, forwarded to the trainers that want them.

The controller keeps none: it acknowledges samples once every trainer has them on disk. The source of samples is that
of the token that came with them, which the operator or this service signed when the attempt was placed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from vmafx.api.job import JobView
from vmafx.clock import loop_time
from vmafx.controller.caches import BY_NAMESPACE, ControllerCaches, TrainingSourceView
from vmafx.http.errors import StatusError
from vmafx.jobs.sample_keys import SampleKeys
from vmafx.jobs.sample_token import AttemptClaims, TrainerClaims, sign, trainer_audience, unverified_claims
from vmafx.kube import ObjectKey, key_of
from vmafx.kube.fetch import fetch
from vmafx.kube.http1 import HttpResponse
from vmafx.kube.tls import trust_context
from vmafx.logs import log
from vmafx.meters import Counters
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.store import ObjectChange
from vmafx.text import one_line
from vmafx.training.address import SAMPLES_PATH, trainer_url
from vmafx.training.samples import SamplePush, SampleReceipt, SampleSource
from vmafx.wire.controller_pb2 import PushSamplesResponse

FORWARD_TIMEOUT = 4.0  # seconds for a trainer to reply; less than a worker Pod waits
MAX_IN_FLIGHT = 16  # batches on the way to one trainer; further ones are sent again later
PROBE_INTERVAL = 3.0  # seconds without batches for a trainer that took none; then one at a time, until it takes one
# Statuses that say nothing about the samples: another server, another key, or a busy trainer.
TEMPORARY_REFUSALS = frozenset({401, 404, 405, 408, 425, 429})
NO_KEY = "the namespace has no key for samples yet"
INVALID_TOKEN = "the token of the samples is not valid or has expired, or its key was replaced"  # noqa: S105 - a message
TrainerResult = Literal["stored", "duplicate", "refused", "unavailable"]
TRAINER_RESULTS: tuple[TrainerResult, ...] = ("stored", "duplicate", "refused", "unavailable")


class TrainerReply(NamedTuple):
    """A trainer's answer to a batch."""

    result: TrainerResult
    message: str = ""  # for the sender of the samples
    detail: str = ""  # for the log: the text of another server


class PushOutcome(NamedTuple):
    """The fields of PushSamplesResponse."""

    result: PushSamplesResponse.Result.ValueType
    message: str = ""


class SampleForwarder:
    """Signs and verifies the tokens of samples, and forwards samples."""

    def __init__(
        self,
        caches: ControllerCaches,
        keys: SampleKeys,
        address: str,
        metrics: Metrics,
        clock: Callable[[], float] = loop_time,
    ) -> None:
        self._caches, self._keys, self._address, self._clock = caches, keys, address, clock
        # Loading the system's certificates takes too long to do it for each batch.
        https = urlsplit(address).scheme == "https"
        self._trust = trust_context(None, "the trainers' address") if https else None
        self._in_flight: Counter[ObjectKey] = Counter()
        self._failed_at: dict[ObjectKey, float] = {}  # trainers whose last batch could not be delivered
        batches = Counters(
            "vmafx_controller_sample_batches",
            "Batches of samples sent to trainers, by result.",
            ["result"],
            registry=metrics.registry,
        )
        self._batches = {result: batches.labels(result) for result in TRAINER_RESULTS}
        caches.trainings.on_change(self._on_training_change)

    async def agent_token(self, job: JobView, node: ObjectKey) -> str:
        """The token for the samples of an attempt that an agent gets; empty if no training wants them."""
        if not self._caches.trainings_of(node):
            return ""
        claims = AttemptClaims(
            node.namespace,
            node.name,
            job.metadata.uid,
            job.status.controllerJobID or "",
            agent=True,
            human_score=job.spec.humanScore,
        )
        return await self._keys.try_sign(claims) or ""

    async def push(self, token: str, batch: bytes, agent: ObjectKey | None) -> PushOutcome:
        """Verify where the samples come from, and forward them. `agent`: the node of an agent's session."""
        if agent is not None and not self._caches.trainings.store.by(BY_NAMESPACE, agent.namespace):
            return PushOutcome(PushSamplesResponse.UNWANTED)
        if agent is not None and self._caches.nodes.store.get(agent) is None:  # it has just registered
            return PushOutcome(PushSamplesResponse.RETRY, f"the VmafxNode {agent} is not in the cache yet")
        claims = await self._verify(token)
        if agent is None and (claims is None or claims.agent):
            raise StatusError("UNAUTHENTICATED", f"{INVALID_TOKEN}, or there is no training in its namespace")
        if claims is None or (agent is not None and agent != (claims.namespace, claims.node)):
            return PushOutcome(PushSamplesResponse.REFUSED, INVALID_TOKEN)
        return await self._forward(claims, batch)

    async def _verify(self, token: str) -> AttemptClaims | None:
        """No key is read for a namespace without trainings: anyone can send a token."""
        claims = unverified_claims(token, AttemptClaims)
        if claims is None or not self._caches.trainings.store.by(BY_NAMESPACE, claims.namespace):
            return None
        return await self._keys.verify(token)

    async def _forward(self, claims: AttemptClaims, batch: bytes) -> PushOutcome:
        trainings = self._caches.trainings_of(ObjectKey(claims.namespace, claims.node))
        if not trainings:
            return PushOutcome(PushSamplesResponse.UNWANTED)
        key = await self._keys.get(claims.namespace)
        if key is None:
            return PushOutcome(PushSamplesResponse.RETRY, NO_KEY)
        source = SampleSource(claims.namespace, claims.node, claims.job, claims.attempt, claims.human_score)
        body = msgspec.msgpack.encode(SamplePush(source, batch))
        replies = await asyncio.gather(*(self._send(key, key_of(training), body) for training in trainings))
        return combined(replies)

    async def _send(self, key: bytes, trainer: ObjectKey, body: bytes) -> TrainerReply:
        reply = self._early_reply(trainer)
        if reply is None:
            self._in_flight[trainer] += 1
            try:
                reply = await self._post(key, trainer, body)
            finally:
                self._in_flight[trainer] -= 1
                if not self._in_flight[trainer]:
                    del self._in_flight[trainer]
            self._on_reply(trainer, reply)
        self._batches[reply.result].inc()
        return reply

    def _early_reply(self, trainer: ObjectKey) -> TrainerReply | None:
        """The reply if the batch is not sent: a Pod should not wait for a trainer that is down."""
        in_flight, failed_at = self._in_flight[trainer], self._failed_at.get(trainer)
        if in_flight >= MAX_IN_FLIGHT:
            return TrainerReply("unavailable", f"the trainer of {trainer} is busy")
        if failed_at is not None and (in_flight or self._clock() - failed_at < PROBE_INTERVAL):
            return TrainerReply("unavailable", f"the trainer of {trainer} did not take the last samples")
        return None

    async def _post(self, key: bytes, trainer: ObjectKey, body: bytes) -> TrainerReply:
        url = trainer_url(self._address, trainer.namespace, trainer.name, SAMPLES_PATH)
        token = sign(key, TrainerClaims(trainer_audience(trainer.namespace, trainer.name)))
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/msgpack"}
        try:
            async with asyncio.timeout(FORWARD_TIMEOUT):
                response = await fetch(url, trust=self._trust, method="POST", headers=headers, body=body)
        except (OSError, ValueError) as error:
            reason = str(error) or f"no reply within {FORWARD_TIMEOUT:.0f} s"
            return TrainerReply("unavailable", f"the trainer of {trainer} cannot be reached", reason)
        return trainer_reply(response, trainer)

    def _on_reply(self, trainer: ObjectKey, reply: TrainerReply) -> None:
        """Log the first failure of an outage and its end; refusals are shown in the status of the training."""
        fields = {"training": str(trainer), "error": reply.message, "detail": reply.detail}
        if reply.result == "unavailable":
            if trainer not in self._failed_at:
                log.warn("trainer does not take samples; agents keep them", **fields)
            self._failed_at[trainer] = self._clock()
            return
        if self._failed_at.pop(trainer, None) is not None:
            log.info("trainer takes samples again", training=str(trainer))
        if reply.result == "refused":
            log.debug("trainer refused samples", **fields)

    def _on_training_change(self, change: ObjectChange[TrainingSourceView]) -> None:
        if change.new is None:
            self._failed_at.pop(change.key, None)


def trainer_reply(response: HttpResponse, trainer: ObjectKey) -> TrainerReply:
    """The answer in the HTTP response of a trainer, or of another server at its address."""
    status = response.status
    if status == 200:
        try:
            return TrainerReply(msgspec.json.decode(response.body, type=SampleReceipt).result)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return TrainerReply("unavailable", f"the trainer of {trainer} sent an invalid reply")
    message = f"the trainer of {trainer} replied with HTTP status {status}"
    detail = one_line(response.body[:1000].decode(errors="replace"))
    refused = 400 <= status < 500 and status not in TEMPORARY_REFUSALS
    return TrainerReply("refused" if refused else "unavailable", message, detail)


def combined(replies: Collection[TrainerReply]) -> PushOutcome:
    """The reply to the sender: samples are done with once no trainer may take them later."""
    by_result = {reply.result: reply for reply in replies}
    if (later := by_result.get("unavailable")) is not None:
        return PushOutcome(PushSamplesResponse.RETRY, later.message)
    if "stored" in by_result:
        return PushOutcome(PushSamplesResponse.STORED)
    if "duplicate" in by_result:
        return PushOutcome(PushSamplesResponse.DUPLICATE)
    return PushOutcome(PushSamplesResponse.REFUSED, by_result["refused"].message)
