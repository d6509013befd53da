"""The gRPC server: TLS credentials, limits, health and reflection around the servicer."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from vmafx.auth.credentials import CallerCredentials, from_grpc
from vmafx.controller.errors import kube_status_error
from vmafx.controller.routes import SERVICE
from vmafx.controller.servicer import ControllerServicer
from vmafx.http.address import ListenAddress
from vmafx.http.errors import StatusError
from vmafx.kube.errors import KubeError
from vmafx.logs import log

MAX_CALLS = 10_000  # at the same time; each agent's long poll is one
MAX_MESSAGE = 1 << 20  # bytes
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.max_concurrent_streams", 256),  # per connection
    # After an outage all agents call at once; above the first limit, grpc rejects calls at random.
    ("grpc.server.max_pending_requests", MAX_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", 2 * MAX_CALLS),
    ("grpc.keepalive_time_ms", 60_000),  # detects peers that vanished without closing the connection
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_connection_age_ms", 30 * 60_000),  # so that agents rebalance over the replicas
    ("grpc.max_connection_age_grace_ms", 90_000),
    ("grpc.so_reuseport", 0),  # so that a port in use is an error
)
GrpcContext = grpc.aio.ServicerContext[Any, Any]


@asynccontextmanager
async def serve_grpc(
    address: ListenAddress, credentials: grpc.ServerCredentials | None, servicer: ControllerServicer, grace: float
) -> AsyncIterator[int]:
    """Serve until the context ends; yields the port. Unfinished calls then have `grace` seconds to finish."""
    server = grpc.aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
    handlers = {method.name: _method_handler(method, servicer) for method in SERVICE.methods}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)])
    health_servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    reflection.enable_server_reflection([SERVICE.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    host = address.host or "::"
    target = f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"
    try:
        port = server.add_secure_port(target, credentials) if credentials else server.add_insecure_port(target)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {target} for gRPC; is the port in use?") from error
    await server.start()
    for name in ("", SERVICE.full_name):
        await health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    try:
        yield port
    finally:
        await health_servicer.enter_graceful_shutdown()
        await server.stop(grace)


def _method_handler(method: MethodDescriptor, servicer: ControllerServicer) -> "grpc.RpcMethodHandler[Any, Any]":
    deserialize = GetMessageClass(method.input_type).FromString
    serialize = GetMessageClass(method.output_type).SerializeToString
    call = getattr(servicer, method.name)
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(_stream_handler(method.name, call), deserialize, serialize)
    return grpc.unary_unary_rpc_method_handler(_call_handler(method.name, call), deserialize, serialize)


def _call_handler(
    name: str, call: Callable[[Any, CallerCredentials], Awaitable[Message]]
) -> Callable[[Any, GrpcContext], Awaitable[Message]]:
    async def handle(request: Any, context: GrpcContext) -> Message:
        try:
            return await call(request, from_grpc(context))
        except Exception as error:  # noqa: BLE001 - every error becomes a status code
            status = to_status_error(name, error)
        await context.abort(getattr(grpc.StatusCode, status.code), status.message)
        raise AssertionError  # abort raises

    return handle


def _stream_handler(
    name: str, call: Callable[[Any, CallerCredentials], AsyncGenerator[Message]]
) -> Callable[[Any, GrpcContext], AsyncIterator[Message]]:
    async def handle(request: Any, context: GrpcContext) -> AsyncGenerator[Message]:
        try:
            async with aclosing(call(request, from_grpc(context))) as messages:
                async for message in messages:
                    yield message
        except Exception as error:  # noqa: BLE001 - as above
            status = to_status_error(name, error)
        else:
            return
        await context.abort(getattr(grpc.StatusCode, status.code), status.message)

    return handle


def to_status_error(name: str, error: Exception) -> StatusError:
    """Log an error that is not a StatusError, and hide the details of an unexpected one from the caller."""
    match error:
        case StatusError():
            return error
        case KubeError():
            log.warn("call failed", call=name, error=str(error))
            return kube_status_error(error)
    log.error("call failed with an unexpected error", call=name, error=repr(error), trace_of=error)
    return StatusError("INTERNAL", "internal error; the controller's log has the details")
