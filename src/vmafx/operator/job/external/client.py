"""The gRPC client for external jobs. Imports grpc, so the poller imports it only when the first such job appears."""

import grpc
import msgspec

from vmafx.operator.job.external.decide import ExternalReply, PollResult, ReplyState
from vmafx.text import one_line
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.client import CallError, ControllerClient, Endpoint

CALL_TIMEOUT = 5.0  # seconds
CHANNEL_OPTIONS = (("grpc.enable_http_proxy", 0),)  # external controllers are inside the cluster
NO_REPLY = ExternalReply("NO_REPLY")
STATES: dict[int, ReplyState] = {
    wire.PENDING: "PENDING",
    wire.RUNNING: "RUNNING",
    wire.COMPLETED: "COMPLETED",
    wire.FAILED: "FAILED",
    wire.CANCELLED: "CANCELLED",
}


class ExternalController:
    """A connection to one external controller."""

    def __init__(self, address: str) -> None:
        self._client = ControllerClient(Endpoint(address=address, insecure=True), CHANNEL_OPTIONS)
        self.close, self.reopen = self._client.close, self._client.reopen

    async def poll(self, job: str, *, stop: bool) -> PollResult:
        """The state of a job; with `stop`, after asking the controller to stop it."""
        result = await self._stop(job) if stop else PollResult()
        return result if result.reply is NO_REPLY else msgspec.structs.replace(result, reply=await self._get(job))

    async def _get(self, job: str) -> ExternalReply:
        try:
            reply = await self._client.call("GetJob", wire.GetJobRequest(job_id=job), wire.Job, CALL_TIMEOUT)
        except CallError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:
                return ExternalReply("NOT_FOUND")
            return NO_REPLY if error.unreachable else ExternalReply("INVALID", one_line(str(error)))
        return decode_reply(reply, job)

    async def _stop(self, job: str) -> PollResult:
        request = wire.CancelJobRequest(job_id=job)
        try:
            reply = await self._client.call("CancelJob", request, wire.CancelJobResponse, CALL_TIMEOUT)
        except CallError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:  # nothing to stop
                return PollResult(stopped=True)
            return PollResult(NO_REPLY) if error.unreachable else PollResult(refusal=one_line(str(error)))
        return (
            PollResult(stopped=True) if reply.ok else PollResult(refusal=one_line(reply.message) or "no reason given")
        )


def decode_reply(reply: wire.Job, job: str) -> ExternalReply:
    """A GetJob reply; INVALID if it is about another job or has an unknown status."""
    if reply.id != job:
        return ExternalReply("INVALID", f"it is about another job, {one_line(reply.id)!r}")
    state = STATES.get(reply.status)
    if state is None:
        return ExternalReply("INVALID", f"its status {reply.status} is unknown to this version")
    score = reply.final_score if state == "COMPLETED" else 0.0
    return ExternalReply(state, one_line(reply.error), one_line(reply.assigned_node), score)
