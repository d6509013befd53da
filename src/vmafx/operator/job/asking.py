"""Asks another controller about its jobs: gRPC, with whatever it answers put into our terms.

Imported when the first such job is there, since grpc costs more than most operators will ever use it.
"""

import grpc
import msgspec

from vmafx.operator.job.foreign import Heard, Said, Says
from vmafx.plain import plain
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.client import CallError, ControllerClient, Endpoint

WITHIN = 5.0  # seconds for an answer
OPTIONS = (("grpc.enable_http_proxy", 0),)  # a proxy for the way out of the cluster is none for the way to a neighbour
SILENCE = Heard("SILENCE")
STATES: dict[int, Says] = {
    wire.PENDING: "PENDING",
    wire.RUNNING: "RUNNING",
    wire.COMPLETED: "COMPLETED",
    wire.FAILED: "FAILED",
    wire.CANCELLED: "CANCELLED",
}


class Controller:
    """One controller, and its jobs."""

    def __init__(self, at: str) -> None:
        self._client = ControllerClient(Endpoint(address=at, insecure=True), OPTIONS)
        self.close, self.reopen = self._client.close, self._client.reopen

    async def ask(self, job: str, *, stop: bool) -> Said:
        """How this job does; if it is to stop, after having said so."""
        said = await self._stop(job) if stop else Said()
        return said if said.heard is SILENCE else msgspec.structs.replace(said, heard=await self._look(job))

    async def _look(self, job: str) -> Heard:
        try:
            told = await self._client.call("GetJob", wire.GetJobRequest(job_id=job), wire.Job, WITHIN)
        except CallError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:
                return Heard("NOT_FOUND")
            return SILENCE if error.silent else Heard("NONSENSE", plain(str(error)))
        return read(told, job)

    async def _stop(self, job: str) -> Said:
        request = wire.CancelJobRequest(job_id=job)
        try:
            told = await self._client.call("CancelJob", request, wire.CancelJobResponse, WITHIN)
        except CallError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:  # there is nothing to stop
                return Said(stopped=True)
            return Said(SILENCE) if error.silent else Said(refusal=plain(str(error)))
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
