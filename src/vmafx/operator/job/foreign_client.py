"""The gRPC client for jobs of another controller; imported only when the first such job appears."""

import grpc
import msgspec

from vmafx.operator.job.foreign import ForeignReplies, ForeignReply, ReplyKind
from vmafx.text import one_line
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.client import CallError, ControllerClient, Endpoint

CALL_TIMEOUT = 5.0  # seconds for an answer
CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
)  # a proxy for the way out of the cluster is none for the way to a neighbour
SILENCE = ForeignReply("SILENCE")
STATES: dict[int, ReplyKind] = {
    wire.PENDING: "PENDING",
    wire.RUNNING: "RUNNING",
    wire.COMPLETED: "COMPLETED",
    wire.FAILED: "FAILED",
    wire.CANCELLED: "CANCELLED",
}


class ForeignController:
    """One controller, and its jobs."""

    def __init__(self, at: str) -> None:
        self._client = ControllerClient(Endpoint(address=at, insecure=True), CHANNEL_OPTIONS)
        self.close, self.reopen = self._client.close, self._client.reopen

    async def ask(self, job: str, *, stop: bool) -> ForeignReplies:
        """How this job does; if it is to stop, after having said so."""
        said = await self._stop(job) if stop else ForeignReplies()
        return said if said.heard is SILENCE else msgspec.structs.replace(said, heard=await self._look(job))

    async def _look(self, job: str) -> ForeignReply:
        try:
            told = await self._client.call("GetJob", wire.GetJobRequest(job_id=job), wire.Job, CALL_TIMEOUT)
        except CallError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:
                return ForeignReply("NOT_FOUND")
            return SILENCE if error.silent else ForeignReply("NONSENSE", one_line(str(error)))
        return reply_of(told, job)

    async def _stop(self, job: str) -> ForeignReplies:
        request = wire.CancelJobRequest(job_id=job)
        try:
            told = await self._client.call("CancelJob", request, wire.CancelJobResponse, CALL_TIMEOUT)
        except CallError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:  # there is nothing to stop
                return ForeignReplies(stopped=True)
            return ForeignReplies(SILENCE) if error.silent else ForeignReplies(refusal=one_line(str(error)))
        return (
            ForeignReplies(stopped=True)
            if told.ok
            else ForeignReplies(refusal=one_line(told.message) or "it does not say why")
        )


def reply_of(told: wire.Job, asked: str) -> ForeignReply:
    """An answer in our terms. One about another job, or with a status that we do not know, is none."""
    if told.id != asked:
        return ForeignReply("NONSENSE", f"it is about another job, {one_line(told.id)!r}")
    says = STATES.get(told.status)
    if says is None:
        return ForeignReply("NONSENSE", f"its status is {told.status}, which this version does not know")
    score = told.final_score if says == "COMPLETED" else 0.0
    return ForeignReply(says, one_line(told.error), one_line(told.assigned_node), score)
