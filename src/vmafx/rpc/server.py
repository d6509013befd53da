"""A gRPC server for any role: TLS credentials, limits, health and reflection around a servicer."""

import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from prometheus_client import CollectorRegistry

from vmafx.auth.access import AccessControl
from vmafx.http.address import ListenAddress
from vmafx.rpc.handlers import RpcHandlers
from vmafx.rpc.health import HealthService
from vmafx.rpc.messages import MessageReader
from vmafx.rpc.service import RpcLimits, RpcService

OTHER_DESCRIPTORS = 2_048  # kept free for HTTP, the Kubernetes API and files
MAX_PENDING = 10_000  # calls that gRPC has accepted and this process has not seen yet
# Neither the number of calls nor their wait for a message is limited here: gRPC knows no callers, see CallLimits and
# MessageReader.
SERVER_OPTIONS = (
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.max_concurrent_streams", 256),  # per connection
    ("grpc.server_handshake_timeout_ms", 20_000),  # of TLS and HTTP/2
    ("grpc.max_connection_idle_ms", 5 * 60_000),  # without calls; an agent always has one
    # After an outage all agents call at once; above the first limit, grpc rejects calls at random.
    ("grpc.server.max_pending_requests", MAX_PENDING),
    ("grpc.server.max_pending_requests_hard_limit", 2 * MAX_PENDING),
    ("grpc.keepalive_time_ms", 60_000),  # detects peers that vanished without closing the connection
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_connection_age_ms", 30 * 60_000),  # so that clients rebalance over the replicas
    ("grpc.so_reuseport", 0),  # so that a port in use is an error
)
HEALTH: Any = health_pb2.DESCRIPTOR.services_by_name["Health"]


@asynccontextmanager
async def serve_grpc(
    address: ListenAddress,
    credentials: grpc.ServerCredentials | None,
    service: RpcService,
    servicer: object,
    access: AccessControl,
    registry: CollectorRegistry,
    grace: float,
) -> AsyncIterator[int]:
    """Serve until the context ends; yields the port. Unfinished calls then have `grace` seconds to finish."""
    server = grpc.aio.server(options=[*SERVER_OPTIONS, *_options(service.limits)])
    handlers = RpcHandlers(service, access, MessageReader(service, access, registry))
    name, health = service.descriptor.full_name, HealthService(service.descriptor.full_name)
    server.add_generic_rpc_handlers(
        [
            handlers.calls(service.descriptor, servicer),
            handlers.calls(HEALTH, health),
            handlers.reflection(name, HEALTH.full_name),
        ]
    )
    host = address.host or "::"
    target = f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"
    try:
        port = server.add_secure_port(target, credentials) if credentials else server.add_insecure_port(target)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {target} for gRPC; is the port in use?") from error
    await server.start()
    try:
        yield port
    finally:
        health.stop()
        await server.stop(grace)


def max_connections(limits: RpcLimits) -> int:
    """As many as the limits allow, or fewer if this process may not open as many files; others are closed at once."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return limits.connections
    return min(limits.connections, max(descriptors - OTHER_DESCRIPTORS, descriptors // 2))


def _options(limits: RpcLimits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_allowed_incoming_connections", max_connections(limits)),
        ("grpc.max_connection_age_grace_ms", int(limits.last_call_seconds * 1000)),
    ]
