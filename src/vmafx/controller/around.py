"""Something done around every call: counted, or told to the log, whichever door it came by."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing
from types import SimpleNamespace
from typing import Any, cast

from google.protobuf.message import Message

from vmafx.auth.credentials import Presented
from vmafx.controller.calls import Calls
from vmafx.controller.routes import SERVICE

Within = Callable[[str, Presented], AbstractContextManager[None]]  # by the call's name, and by who calls


def around(calls: Calls, within: Within) -> Calls:
    """The same calls, each within such a context."""
    made = SimpleNamespace()
    for method in SERVICE.methods:
        wrap = _stream if method.server_streaming else _call
        setattr(made, method.name, wrap(method.name, getattr(calls, method.name), within))
    return cast("Calls", made)


def _call(name: str, call: Callable[[Any, Presented], Awaitable[Message]], within: Within) -> Callable[..., Any]:
    async def wrapped(request: Any, shown: Presented) -> Message:
        with within(name, shown):
            return await call(request, shown)

    return wrapped


def _stream(name: str, call: Callable[[Any, Presented], AsyncGenerator[Message]], within: Within) -> Callable[..., Any]:
    async def wrapped(request: Any, shown: Presented) -> AsyncGenerator[Message]:
        with within(name, shown):
            async with aclosing(call(request, shown)) as messages:
                async for message in messages:
                    yield message

    return wrapped
