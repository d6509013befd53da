"""Asks another controller about its jobs: gRPC, with whatever it answers put into our terms.

Imported when the first such job is there, since grpc costs more than most operators will ever use it.
"""

from typing import TypeVar

import grpc
import msgspec
from google.protobuf.message import DecodeError, Message

from vmafx.operator.job.foreign import Heard, Said, Says
from vmafx.plain import plain
from vmafx.wire import controller_pb2 as wire

WITHIN = 5.0  # seconds for an answer
SERVICE = wire.DESCRIPTOR.services_by_name["VmafxController"].full_name
OPTIONS = (
    ("grpc.max_receive_message_length", 4 << 20),  # as other clients have it
    ("grpc.enable_http_proxy", 0),  # a proxy for the way out of the cluster is none for the way to a neighbour
    ("grpc.use_local_subchannel_pool", 1),  # or a new channel would wait as long as the old one was going to
    ("grpc.service_config_disable_resolution", 1),
)
SILENCE = Heard("SILENCE")
STATES: dict[int, Says] = {
    wire.PENDING: "PENDING",
    wire.RUNNING: "RUNNING",
    wire.COMPLETED: "COMPLETED",
    wire.FAILED: "FAILED",
    wire.CANCELLED: "CANCELLED",
}
M = TypeVar("M", bound=Message)
Call = grpc.aio.UnaryUnaryMultiCallable[M, bytes]


class Controller:
    """A channel to one controller."""

    def __init__(self, at: str) -> None:
        self._at = at
        self._open()

    def _open(self) -> None:
        self._channel = grpc.aio.insecure_channel(self._at, OPTIONS)
        # Answers are decoded here, not by the library: it would log one that cannot be, and hand out None.
        self._get: Call[wire.GetJobRequest] = self._channel.unary_unary(
            f"/{SERVICE}/GetJob", wire.GetJobRequest.SerializeToString
        )
        self._cancel: Call[wire.CancelJobRequest] = self._channel.unary_unary(
            f"/{SERVICE}/CancelJob", wire.CancelJobRequest.SerializeToString
        )

    async def close(self) -> None:
        await self._channel.close()

    async def reopen(self) -> None:
        """Look up its name and connect anew; not while something is being asked."""
        await self.close()
        self._open()

    async def ask(self, job: str, *, stop: bool) -> Said:
        """How this job does; if it is to stop, after having said so."""
        said = await self._stop(job) if stop else Said()
        return said if said.heard is SILENCE else msgspec.structs.replace(said, heard=await self._look(job))

    async def _look(self, job: str) -> Heard:
        request = wire.GetJobRequest(job_id=job)
        try:
            told = _decoded(wire.Job, await self._get(request, timeout=WITHIN))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return Heard("NOT_FOUND")
            return SILENCE if _is_silence(error) else Heard("NONSENSE", _words(error))
        if told is None:
            return Heard("NONSENSE", "it is no Job")
        return read(told, job)

    async def _stop(self, job: str) -> Said:
        request = wire.CancelJobRequest(job_id=job)
        try:
            told = _decoded(wire.CancelJobResponse, await self._cancel(request, timeout=WITHIN))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:  # there is nothing to stop
                return Said(stopped=True)
            return Said(SILENCE) if _is_silence(error) else Said(refusal=_words(error))
        if told is None:
            return Said(refusal="its answer cannot be used")
        return Said(stopped=True) if told.ok else Said(refusal=plain(told.message) or "it does not say why")


def read(told: wire.Job, asked: str) -> Heard:
    """An answer in our terms. One about another job, or with a status that we do not know, is none."""
    if told.id != asked:
        return Heard("NONSENSE", f"it is about another job, {plain(told.id)!r}")
    says = STATES.get(told.status)
    if says is None:
        return Heard("NONSENSE", f"its status is {told.status}, which this version does not know")
    score = told.final_score if says == "COMPLETED" else 0.0
    return Heard(says, plain(told.error), plain(told.assigned_node), score)


def _decoded(kind: type[M], answer: bytes) -> M | None:
    try:
        return kind.FromString(answer)
    except DecodeError:
        return None


def _is_silence(error: grpc.aio.AioRpcError) -> bool:
    return error.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


def _words(error: grpc.aio.AioRpcError) -> str:
    return plain(f"{error.code().name}: {error.details() or 'no more is said'}")
