"""The standard health service of gRPC, open to every caller: for load balancers and probes."""

import asyncio
from collections.abc import AsyncGenerator

from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from vmafx.auth.credentials import CallerCredentials
from vmafx.auth.fair_limit import FairLimit, sharing_key
from vmafx.http.errors import StatusError

MAX_WATCHES = 1024  # at the same time; an address gets at most half


class HealthService:
    """Every service is SERVING until the process stops.

    The one of grpcio-health-checking would wait for a watch that is not read, also to stop.
    """

    def __init__(self, *services: str) -> None:
        self._services = {"", *services}
        self._stopping = asyncio.Event()
        self._watches = FairLimit(MAX_WATCHES, "health watches")

    def stop(self) -> None:
        """Report NOT_SERVING, and end all watches."""
        self._stopping.set()

    async def Check(self, request: HealthCheckRequest, _: CallerCredentials) -> HealthCheckResponse:
        if request.service not in self._services:
            raise StatusError("NOT_FOUND", f"no service is called {request.service[:100]!r}")
        return self._response(request)

    async def Watch(
        self, request: HealthCheckRequest, credentials: CallerCredentials
    ) -> AsyncGenerator[HealthCheckResponse]:
        with self._watches.hold(sharing_key("", credentials.peer)):
            yield self._response(request)
            if not self._stopping.is_set():
                await self._stopping.wait()
                yield self._response(request)

    def _response(self, request: HealthCheckRequest) -> HealthCheckResponse:
        if request.service not in self._services:
            return HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
        stopping = self._stopping.is_set()
        return HealthCheckResponse(status=HealthCheckResponse.NOT_SERVING if stopping else HealthCheckResponse.SERVING)
