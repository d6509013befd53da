"""The calls of a servicer as gRPC handlers: request messages, replies, errors as status codes; and reflection."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection, reflection_pb2

from vmafx.auth.access import AccessControl
from vmafx.auth.credentials import CallerCredentials, from_grpc
from vmafx.auth.fair_limit import FairLimit, sharing_key
from vmafx.http.errors import StatusError
from vmafx.rpc.messages import GrpcContext, MessageReader
from vmafx.rpc.service import RpcService

MAX_REFLECTIONS = 64  # at the same time; a caller gets at most half
REFLECTION: Any = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]

Replies = Callable[[GrpcContext, CallerCredentials], AsyncGenerator[Message]]


class RpcHandlers:
    """Makes the handlers of a server; all of them share the limits and the error messages of `service`."""

    def __init__(self, service: RpcService, access: AccessControl, reader: MessageReader) -> None:
        self._service, self._access, self._reader = service, access, reader

    def calls(self, descriptor: ServiceDescriptor, servicer: object) -> grpc.GenericRpcHandler:
        """A call that the servicer does not have, such as Health.List, is UNIMPLEMENTED."""
        methods = [method for method in descriptor.methods if hasattr(servicer, method.name)]
        handlers = {method.name: self._method(method, getattr(servicer, method.name)) for method in methods}
        return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)

    def reflection(self, *services: str) -> grpc.GenericRpcHandler:
        """Reflection of these services, for authenticated callers."""
        servicer: Any = reflection.aio.ReflectionServicer([*services, REFLECTION.full_name])
        limit, (method,) = FairLimit(MAX_REFLECTIONS, "reflection calls"), REFLECTION.methods

        async def replies(context: GrpcContext, credentials: CallerCredentials) -> AsyncGenerator[Message]:
            # Read before a refusal: a client that still writes may not see its status.
            messages = await self._reader.stream(context, credentials)
            caller = await self._access.authenticate(credentials)
            with limit.hold(sharing_key(caller.user, credentials.peer), caller=caller.user):
                async for reply in servicer.ServerReflectionInfo(messages, context):
                    yield reply

        handler = _streaming(method, self._stream_handler(method.name, replies))
        return grpc.method_handlers_generic_handler(REFLECTION.full_name, {method.name: handler})

    def _method(self, method: MethodDescriptor, call: Callable[..., Any]) -> "grpc.RpcMethodHandler[Any, Any]":
        """All handlers are of the kind that reads its messages itself; for the client there is no difference."""
        read = self._reader.stream if method.client_streaming else self._reader.one
        if not method.server_streaming:
            return grpc.stream_unary_rpc_method_handler(
                self._call_handler(method.name, read, call), _deserializer(method), _serializer(method)
            )

        async def replies(context: GrpcContext, credentials: CallerCredentials) -> AsyncGenerator[Message]:
            async with aclosing(call(await read(context, credentials), credentials)) as messages:
                async for message in messages:
                    yield message

        return _streaming(method, self._stream_handler(method.name, replies))

    def _call_handler(
        self, name: str, read: Callable[..., Awaitable[Any]], call: Callable[..., Awaitable[Message]]
    ) -> Callable[[Any, GrpcContext], Awaitable[Message]]:
        async def handle(_: Any, context: GrpcContext) -> Message:
            try:
                credentials = from_grpc(context)
                return await call(await read(context, credentials), credentials)
            except Exception as error:  # noqa: BLE001 - every error becomes a status code
                status = self._service.status_error(name, error)
            await context.abort(getattr(grpc.StatusCode, status.code), status.message)
            raise AssertionError  # abort raises

        return handle

    def _stream_handler(self, name: str, replies: Replies) -> Callable[[Any, GrpcContext], Awaitable[None]]:
        async def handle(_: Any, context: GrpcContext) -> None:
            try:
                if self._service.limits.write_seconds is not None:
                    # First, or no status could follow a first reply that the client has no room for.
                    await context.send_initial_metadata(())
                async with aclosing(replies(context, from_grpc(context))) as messages:
                    async for message in messages:
                        await self._write(context, message)
            except grpc.aio.BaseError:  # of a write: the client has left, or the server has stopped; gRPC handles it
                raise
            except Exception as error:  # noqa: BLE001 - as above
                status = self._service.status_error(name, error)
            else:
                return
            await context.abort(getattr(grpc.StatusCode, status.code), status.message)

        return handle

    async def _write(self, context: GrpcContext, message: Message) -> None:
        """Return when the client has room for the next message."""
        seconds = self._service.limits.write_seconds
        try:
            async with asyncio.timeout(seconds):
                await context.write(message)
        except TimeoutError:
            raise StatusError("DEADLINE_EXCEEDED", f"no reply was read for {seconds:g} s") from None


def _streaming(
    method: MethodDescriptor, handle: Callable[[Any, GrpcContext], Awaitable[None]]
) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.stream_stream_rpc_method_handler(handle, _deserializer(method), _serializer(method))


def _deserializer(method: MethodDescriptor) -> Callable[[bytes], Message]:
    return GetMessageClass(method.input_type).FromString


def _serializer(method: MethodDescriptor) -> Callable[[Message], bytes]:
    return GetMessageClass(method.output_type).SerializeToString
