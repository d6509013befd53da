"""The gRPC server: credentials, limits, health and reflection around the servicer."""

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
from vmafx.controller.errors import refusal_for
from vmafx.controller.routes import SERVICE
from vmafx.controller.servicer import ControllerServicer
from vmafx.http.address import ListenAddress
from vmafx.http.errors import CallRefused
from vmafx.kube.errors import KubeError
from vmafx.logs import log

MAX_CALLS = 10_000  # at once; each agent that waits for work is one
MAX_MESSAGE = 1 << 20  # bytes
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.max_concurrent_streams", 256),  # on one connection
    # All agents come at once when a controller was away; beyond these, calls are turned away at random.
    ("grpc.server.max_pending_requests", MAX_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", 2 * MAX_CALLS),
    ("grpc.keepalive_time_ms", 60_000),  # a peer that is gone without a word is noticed
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_connection_age_ms", 30 * 60_000),  # so that agents spread again over replicas that come and go
    ("grpc.max_connection_age_grace_ms", 90_000),
    ("grpc.so_reuseport", 0),  # a port that is taken is an error
)
GrpcContext = grpc.aio.ServicerContext[Any, Any]


@asynccontextmanager
async def serve_grpc(
    address: ListenAddress, credentials: grpc.ServerCredentials | None, calls: ControllerServicer, grace: float
) -> AsyncIterator[int]:
    """Answer for as long as the context lasts; gives the port. What is under way at its end has `grace` seconds."""
    server = grpc.aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
    handlers = {method.name: _handler(method, calls) for method in SERVICE.methods}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)])
    healthy = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    reflection.enable_server_reflection([SERVICE.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    where = f"{_bracketed(address.host) if address.host else '[::]'}:{address.port}"
    try:
        port = server.add_secure_port(where, credentials) if credentials else server.add_insecure_port(where)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {where} for gRPC; is the port taken?") from error
    await server.start()
    for name in ("", SERVICE.full_name):
        await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
    try:
        yield port
    finally:
        await healthy.enter_graceful_shutdown()
        await server.stop(grace)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _handler(method: MethodDescriptor, calls: ControllerServicer) -> "grpc.RpcMethodHandler[Any, Any]":
    read = GetMessageClass(method.input_type).FromString
    write = GetMessageClass(method.output_type).SerializeToString
    call = getattr(calls, method.name)
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(_streamed(method.name, call), read, write)
    return grpc.unary_unary_rpc_method_handler(_answered(method.name, call), read, write)


def _answered(
    name: str, call: Callable[[Any, CallerCredentials], Awaitable[Message]]
) -> Callable[[Any, GrpcContext], Awaitable[Message]]:
    async def answer(request: Any, context: GrpcContext) -> Message:
        try:
            return await call(request, from_grpc(context))
        except Exception as error:  # noqa: BLE001 - the caller is told, whatever it is
            refused = refusal_from(name, error)
        await context.abort(getattr(grpc.StatusCode, refused.code), refused.message)
        raise AssertionError  # abort raises

    return answer


def _streamed(
    name: str, call: Callable[[Any, CallerCredentials], AsyncGenerator[Message]]
) -> Callable[[Any, GrpcContext], AsyncIterator[Message]]:
    async def answer(request: Any, context: GrpcContext) -> AsyncGenerator[Message]:
        try:
            async with aclosing(call(request, from_grpc(context))) as messages:
                async for message in messages:
                    yield message
        except Exception as error:  # noqa: BLE001 - as above
            refused = refusal_from(name, error)
        else:
            return
        await context.abort(getattr(grpc.StatusCode, refused.code), refused.message)

    return answer


def refusal_from(name: str, error: Exception) -> CallRefused:
    """What the caller is told; what nobody foresaw is logged, and told without its details."""
    match error:
        case CallRefused():
            return error
        case KubeError():
            log.warn("a call failed", call=name, error=str(error))
            return refusal_for(error)
    log.error("a call failed unforeseen", call=name, error=repr(error), trace_of=error)
    return CallRefused("INTERNAL", "internal error; the controller's log has the details")
