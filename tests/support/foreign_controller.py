"""A foreign controller: a real gRPC server that knows jobs and replies as set by the test."""

from collections import Counter
from types import TracebackType
from typing import Any, Self

import grpc

from vmafx.wire import controller_pb2 as wire

SERVICE = "vmafx.controller.v1.VmafxController"
JobReply = wire.Job | bytes | grpc.StatusCode


class ForeignController:
    """Use as an async context manager; `stop` and `start` simulate an outage."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.jobs: dict[str, JobReply] = {}  # the reply for each job: a message, raw bytes, or an error
        self.refusals: dict[str, str] = {}  # by job: the reason for refusing to cancel it
        self.meanwhile: dict[str, wire.Job] = {}  # by job: its state when it is cancelled too late
        self.requests: Counter[str] = Counter()
        self.cancelled: list[str] = []

    def say(self, job: str, status: Any, **more: Any) -> None:
        self.jobs[job] = wire.Job(id=job, status=status, **more)

    async def start(self) -> None:
        self._server = grpc.aio.server()
        methods: dict[str, Any] = {
            "GetJob": grpc.unary_unary_rpc_method_handler(self._get, wire.GetJobRequest.FromString),
            "CancelJob": grpc.unary_unary_rpc_method_handler(self._cancel, wire.CancelJobRequest.FromString),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        self._server.add_insecure_port(self.address)
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _get(self, request: wire.GetJobRequest, context: Any) -> bytes:
        self.requests[request.job_id] += 1
        reply = self.jobs.get(request.job_id, grpc.StatusCode.NOT_FOUND)
        if isinstance(reply, grpc.StatusCode):
            await context.abort(reply, "so it \x1b[31mis")
        return reply if isinstance(reply, bytes) else reply.SerializeToString()  # type: ignore[union-attr]

    async def _cancel(self, request: wire.CancelJobRequest, context: Any) -> bytes:
        job = request.job_id
        if job not in self.jobs:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such job")
        self.cancelled.append(job)
        if job in self.meanwhile:
            self.jobs[job] = self.meanwhile[job]
            return wire.CancelJobResponse(ok=False, message="it is over").SerializeToString()
        if job in self.refusals:
            return wire.CancelJobResponse(ok=False, message=self.refusals[job]).SerializeToString()
        self.say(job, wire.CANCELLED)
        return wire.CancelJobResponse(ok=True).SerializeToString()
