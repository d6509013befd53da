"""What a gRPC server serves: a service, its limits, and the errors of its role as status errors."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
from google.protobuf.descriptor import ServiceDescriptor

from vmafx.http.errors import StatusError
from vmafx.logs import log

ErrorTranslator = Callable[[Exception], StatusError | None]


class RpcLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a gRPC server, where roles differ; server.py and messages.py have the others."""

    message_bytes: int = 1 << 20  # of one message
    connections: int = 1024  # open at the same time
    # Calls whose first message has not arrived. Their callers may be unknown, and each may hold a whole message.
    waiting_calls: int = 8192
    idle_seconds: float = 20.0  # for the next message of a stream to arrive, from when the servicer asks for it
    write_seconds: float | None = None  # for the client to make room for the next reply of a stream; None: no limit
    last_call_seconds: float = 90.0  # for calls that are in progress when their connection is 30 minutes old


class RpcService(NamedTuple):
    """A service of a role."""

    descriptor: ServiceDescriptor
    name: str  # of the process, in messages: "controller"
    metrics_prefix: str  # "vmafx_controller"
    translate: ErrorTranslator = lambda _: None  # turns a role's own errors into a StatusError
    limits: RpcLimits = RpcLimits()

    def known_error(self, error: Exception) -> StatusError | None:
        """The error that the caller sees; None if the error is unexpected."""
        return error if isinstance(error, StatusError) else self.translate(error)

    def status_error(self, call: str, error: Exception) -> StatusError:
        """Log an error that is not a StatusError, and hide the details of an unexpected one from the caller."""
        known = self.known_error(error)
        if known is None:
            log.error("call failed with an unexpected error", call=call, error=repr(error), trace_of=error)
            return StatusError("INTERNAL", f"internal error; the {self.name}'s log has the details")
        if known is not error:
            log.warn("call failed", call=call, error=str(error))
        return known
