"""Samples of attempts, from agents and worker Pods, forwarded to the trainers that want them.

The controller keeps none: it acknowledges samples once every trainer has them on disk. The source of samples is that
of the token that came with them, which the operator or this service signed when the attempt was placed.
"""

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Literal, NamedTuple

import msgspec

from vmafx.api.job import JobView
from vmafx.controller.caches import BY_NAMESPACE, ControllerCaches
from vmafx.http.errors import StatusError
from vmafx.jobs.sample_keys import SampleKeys
from vmafx.jobs.sample_token import AttemptClaims, TrainerClaims, sign, trainer_audience, unverified_claims
from vmafx.kube import ObjectKey, key_of
from vmafx.kube.fetch import fetch
from vmafx.kube.http1 import HttpResponse
from vmafx.logs import log
from vmafx.meters import Counters
from vmafx.runtime.metrics import Metrics
from vmafx.text import one_line
from vmafx.training.address import trainer_url
from vmafx.training.samples import SamplePush, SampleReceipt, SampleSource
from vmafx.wire.controller_pb2 import PushSamplesResponse

SAMPLES_PATH = "/v1/samples"
FORWARD_TIMEOUT = 4.0  # seconds for a trainer to reply; less than a worker Pod waits
MAX_IN_FLIGHT = 16  # batches on the way to one trainer; further ones are sent again later
# Replies of something that is not this trainer, of one with another key, or of a busy one: not about the samples.
TEMPORARY_REFUSALS = frozenset({401, 404, 405, 408, 425, 429})
NO_KEY = "the namespace has no key for samples yet"
INVALID_TOKEN = "the token of the samples is not valid, or its key was replaced"  # noqa: S105 - a message
TrainerResult = Literal["stored", "duplicate", "refused", "unavailable"]
TRAINER_RESULTS: tuple[TrainerResult, ...] = ("stored", "duplicate", "refused", "unavailable")


class TrainerReply(NamedTuple):
    """What became of a batch at one trainer."""

    result: TrainerResult
    message: str = ""


class PushOutcome(NamedTuple):
    """The fields of PushSamplesResponse."""

    result: PushSamplesResponse.Result.ValueType
    message: str = ""


class SampleForwarder:
    """Signs and verifies the tokens of samples, and forwards samples."""

    def __init__(self, caches: ControllerCaches, keys: SampleKeys, address: str, metrics: Metrics) -> None:
        self._caches, self._keys, self._address = caches, keys, address
        self._in_flight: Counter[ObjectKey] = Counter()
        self._failing: set[ObjectKey] = set()  # trainers whose last batch could not be delivered
        batches = Counters(
            "vmafx_controller_sample_batches",
            "Batches of samples sent to trainers, by result.",
            ["result"],
            registry=metrics.registry,
        )
        self._batches = {result: batches.labels(result) for result in TRAINER_RESULTS}
        caches.trainings.on_change(lambda change: self._failing.discard(change.key))

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
        if self._in_flight[trainer] >= MAX_IN_FLIGHT:
            reply = TrainerReply("unavailable", f"the trainer of {trainer} is busy")
        else:
            self._in_flight[trainer] += 1
            try:
                reply = await self._post(key, trainer, body)
            finally:
                self._in_flight[trainer] -= 1
                if not self._in_flight[trainer]:
                    del self._in_flight[trainer]
        self._batches[reply.result].inc()
        self._log_outage(trainer, reply)
        return reply

    async def _post(self, key: bytes, trainer: ObjectKey, body: bytes) -> TrainerReply:
        url = trainer_url(self._address, trainer.namespace, trainer.name, SAMPLES_PATH)
        token = sign(key, TrainerClaims(trainer_audience(trainer.namespace, trainer.name)))
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/msgpack"}
        try:
            async with asyncio.timeout(FORWARD_TIMEOUT):
                response = await fetch(url, method="POST", headers=headers, body=body)
        except (OSError, ValueError) as error:
            reason = str(error) or f"no reply within {FORWARD_TIMEOUT:.0f} s"
            return TrainerReply("unavailable", f"the trainer of {trainer} cannot be reached: {reason}")
        return trainer_reply(response, trainer)

    def _log_outage(self, trainer: ObjectKey, reply: TrainerReply) -> None:
        """Log the first failure of an outage and its end; refusals are shown in the status of the training."""
        if reply.result == "unavailable" and trainer not in self._failing:
            self._failing.add(trainer)
            log.warn("trainer does not take samples; agents keep them", training=str(trainer), error=reply.message)
        elif reply.result != "unavailable" and trainer in self._failing:
            self._failing.discard(trainer)
            log.info("trainer takes samples again", training=str(trainer))


def trainer_reply(response: HttpResponse, trainer: ObjectKey) -> TrainerReply:
    """What a trainer's response says about the batch."""
    status = response.status
    if status == 200:
        try:
            return TrainerReply(msgspec.json.decode(response.body, type=SampleReceipt).result)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return TrainerReply("unavailable", f"the trainer of {trainer} sent an invalid reply")
    message = f"the trainer of {trainer} replied with HTTP status {status}: " + one_line(
        response.body[:1000].decode(errors="replace")
    )
    refused = 400 <= status < 500 and status not in TEMPORARY_REFUSALS
    return TrainerReply("refused" if refused else "unavailable", message)


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
