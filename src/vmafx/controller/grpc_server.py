"""The gRPC server: TLS credentials, limits, health and reflection around the servicer."""

import resource
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from vmafx.auth.access import AccessControl
from vmafx.auth.credentials import CallerCredentials, from_grpc
from vmafx.auth.fair_limit import FairLimit, sharing_key
from vmafx.controller.errors import kube_status_error
from vmafx.controller.grpc_messages import GrpcContext, MessageReader
from vmafx.controller.health import HealthService
from vmafx.controller.routes import SERVICE
from vmafx.controller.servicer import ControllerServicer
from vmafx.http.address import ListenAddress
from vmafx.http.errors import StatusError
from vmafx.kube.errors import KubeError
from vmafx.logs import log
from vmafx.runtime.metrics import Metrics

MAX_PENDING = 10_000  # calls that gRPC has accepted and this process has not seen yet
MAX_MESSAGE = 1 << 20  # bytes
MAX_CONNECTIONS = 30_000  # one for each agent, and some for clients
OTHER_DESCRIPTORS = 2_048  # kept free for HTTP, the Kubernetes API and files
MAX_REFLECTIONS = 64  # at the same time; a caller gets at most half
# Neither the number of calls nor their wait for a message is limited here: gRPC knows no callers, see CallLimits and
# MessageReader.
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
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
    ("grpc.max_connection_age_ms", 30 * 60_000),  # so that agents rebalance over the replicas
    ("grpc.max_connection_age_grace_ms", 90_000),
    ("grpc.so_reuseport", 0),  # so that a port in use is an error
)
HEALTH: Any = health_pb2.DESCRIPTOR.services_by_name["Health"]
REFLECTION: Any = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]


@asynccontextmanager
async def serve_grpc(
    address: ListenAddress,
    credentials: grpc.ServerCredentials | None,
    servicer: ControllerServicer,
    access: AccessControl,
    metrics: Metrics,
    grace: float,
) -> AsyncIterator[int]:
    """Serve until the context ends; yields the port. Unfinished calls then have `grace` seconds to finish."""
    options = (*SERVER_OPTIONS, ("grpc.max_allowed_incoming_connections", max_connections()))
    server, reader = grpc.aio.server(options=options), MessageReader(access, metrics)
    health = HealthService(SERVICE.full_name)
    server.add_generic_rpc_handlers(
        [
            _service_handler(SERVICE, servicer, reader),
            _service_handler(HEALTH, health, reader),
            _reflection_handler(access, reader),
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


def max_connections() -> int:
    """At most MAX_CONNECTIONS, and fewer if this process may not open as many files; others are closed at once."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, max(descriptors - OTHER_DESCRIPTORS, descriptors // 2))


def _service_handler(service: ServiceDescriptor, servicer: object, reader: MessageReader) -> grpc.GenericRpcHandler:
    """A call that the servicer does not have, such as Health.List, is UNIMPLEMENTED."""
    methods = [method for method in service.methods if hasattr(servicer, method.name)]
    handlers = {method.name: _method_handler(method, servicer, reader) for method in methods}
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _method_handler(
    method: MethodDescriptor, servicer: object, reader: MessageReader
) -> "grpc.RpcMethodHandler[Any, Any]":
    """All handlers are of the kind that reads its messages itself; for the client there is no difference."""
    deserialize = GetMessageClass(method.input_type).FromString
    serialize = GetMessageClass(method.output_type).SerializeToString
    call = getattr(servicer, method.name)
    if method.server_streaming:
        return grpc.stream_stream_rpc_method_handler(_stream_handler(method.name, call, reader), deserialize, serialize)
    return grpc.stream_unary_rpc_method_handler(_call_handler(method.name, call, reader), deserialize, serialize)


def _call_handler(
    name: str, call: Callable[[Any, CallerCredentials], Awaitable[Message]], reader: MessageReader
) -> Callable[[Any, GrpcContext], Awaitable[Message]]:
    async def handle(_: Any, context: GrpcContext) -> Message:
        try:
            credentials = from_grpc(context)
            return await call(await reader.one(context, credentials), credentials)
        except Exception as error:  # noqa: BLE001 - every error becomes a status code
            status = to_status_error(name, error)
        await context.abort(getattr(grpc.StatusCode, status.code), status.message)
        raise AssertionError  # abort raises

    return handle


def _stream_handler(
    name: str, call: Callable[[Any, CallerCredentials], AsyncGenerator[Message]], reader: MessageReader
) -> Callable[[Any, GrpcContext], AsyncIterator[Message]]:
    async def replies(context: GrpcContext) -> AsyncGenerator[Message]:
        credentials = from_grpc(context)
        async with aclosing(call(await reader.one(context, credentials), credentials)) as messages:
            async for message in messages:
                yield message

    return _generator_handler(name, replies)


def _reflection_handler(access: AccessControl, reader: MessageReader) -> grpc.GenericRpcHandler:
    """Reflection, for authenticated callers."""
    servicer: Any = reflection.aio.ReflectionServicer([SERVICE.full_name, HEALTH.full_name, REFLECTION.full_name])
    limit, (method,) = FairLimit(MAX_REFLECTIONS, "reflection calls"), REFLECTION.methods

    async def replies(context: GrpcContext) -> AsyncGenerator[Message]:
        credentials = from_grpc(context)
        messages = reader.all(context, credentials)
        first = await anext(messages, None)  # before a refusal: a client that still writes may not see its status
        caller = await access.authenticate(credentials)
        with limit.hold(sharing_key(caller.user, credentials.peer), caller=caller.user):
            async for reply in servicer.ServerReflectionInfo(_followed_by(first, messages), context):
                yield reply

    handler = grpc.stream_stream_rpc_method_handler(
        _generator_handler(method.name, replies),
        GetMessageClass(method.input_type).FromString,
        GetMessageClass(method.output_type).SerializeToString,
    )
    return grpc.method_handlers_generic_handler(REFLECTION.full_name, {method.name: handler})


async def _followed_by(first: Message | None, others: AsyncGenerator[Message]) -> AsyncGenerator[Message]:
    if first is not None:
        yield first
    async with aclosing(others):
        async for message in others:
            yield message


def _generator_handler(
    name: str, replies: Callable[[GrpcContext], AsyncGenerator[Message]]
) -> Callable[[Any, GrpcContext], AsyncIterator[Message]]:
    async def handle(_: Any, context: GrpcContext) -> AsyncGenerator[Message]:
        try:
            async with aclosing(replies(context)) as messages:
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
