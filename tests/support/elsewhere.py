"""Somebody else's controller: a real gRPC server that says of each job what a test tells it to say."""

from collections import Counter
from types import TracebackType
from typing import Any, Self

import grpc

from vmafx.wire import controller_pb2 as wire

SERVICE = "vmafx.controller.v1.VmafxController"
Told = wire.Job | bytes | grpc.StatusCode


class Elsewhere:
    """Use as an async context manager; `stop` and `start` are an outage."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.jobs: dict[str, Told] = {}  # what is said of each: a job, any bytes, or an error
        self.refusals: dict[str, str] = {}  # why a job will not be stopped
        self.meanwhile: dict[str, wire.Job] = {}  # what has become of a job by the time it is to be stopped
        self.asked: Counter[str] = Counter()
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
        self.asked[request.job_id] += 1
        told = self.jobs.get(request.job_id, grpc.StatusCode.NOT_FOUND)
        if isinstance(told, grpc.StatusCode):
            await context.abort(told, "so it \x1b[31mis")
        return told if isinstance(told, bytes) else told.SerializeToString()  # type: ignore[union-attr]

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
