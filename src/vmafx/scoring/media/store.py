"""Clips from object stores, by way of fsspec: what they have in common. s3.py and gs.py say how each is reached.

Where the store is, and who we are to it, is between the package and its own variables (AWS_ENDPOINT_URL and the like):
whoever sets them is trusted, so no address is guarded here.
"""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import msgspec

from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.policy import Policy
from vmafx.scoring.media.retry import Lost, until_whole
from vmafx.scoring.media.schemes import Place
from vmafx.scoring.media.staging import Staging

BLOCK = 8 << 20
NETWORK = (OSError, TimeoutError, ValueError, aiohttp.ClientError)
# Whatever of these a store knows: if one changes, it is another object.
_VERSION = ("size", "ETag", "etag", "generation", "VersionId", "LastModified", "mtime", "created")


class Store(msgspec.Struct, frozen=True):
    """How to reach a kind of store, and how to understand its failures."""

    connect: Callable[[], Awaitable[tuple[Any, Any]]]  # fsspec's asynchronous file system, and what to close after it
    errors: tuple[type[Exception], ...] = NETWORK
    denied: Callable[[Exception], bool] = lambda error: isinstance(error, PermissionError)
    cure: str = "ask whoever keeps it"


async def copy(store: Store, place: Place, staging: Staging) -> None:
    """Fetch an object."""
    async with AsyncExitStack() as stack:
        one = Copy(store, place, staging, stack)
        await until_whole(one.go_on, lambda: staging.size, staging.policy.retry, f"cannot fetch {place.shown}")


async def deposit(store: Store, place: Place, content: bytes, policy: Policy) -> None:
    """Write an object whole; a second time gives the same."""
    async with AsyncExitStack() as stack:
        one = Deposit(store, place, content, stack, policy)
        await until_whole(one.go_on, lambda: 0, policy.retry, f"cannot write {place.shown}")


class Copy:
    """One object, block by block. Should it change on the way, it is begun anew."""

    def __init__(self, store: Store, place: Place, staging: Staging, stack: AsyncExitStack) -> None:
        self._store, self._place, self._staging, self._stack = store, place, staging, stack
        self._files: Any = None
        self._version: tuple[str, ...] = ()

    async def go_on(self) -> None:
        try:
            if self._files is None:
                self._files, session = await self._store.connect()
                self._stack.push_async_callback(session.close)
            await self._copy()
        except self._store.errors as error:
            raise self._failed(error) from None

    async def _copy(self) -> None:
        staging = self._staging
        info = await self._info()
        if info["type"] != "file":
            raise self._bad("it is a folder; name one object")
        if _version(info) != self._version:
            await staging.start_over()
            self._version = _version(info)
        size = int(info["size"])
        staging.expect(size)
        while staging.size < size:
            await staging.add(await self._block(staging.size, min(staging.size + BLOCK, size)))
        if _version(await self._info()) != self._version:
            raise Lost("it changed while it was read")

    async def _info(self) -> dict[str, Any]:
        async with asyncio.timeout(self._staging.policy.block_seconds):
            info: dict[str, Any] = await self._files._info(self._place.target)  # noqa: SLF001 fsspec's async names
        return info

    async def _block(self, start: int, end: int) -> bytes:
        async with asyncio.timeout(self._staging.policy.block_seconds):
            block: bytes = await self._files._cat_file(self._place.target, start=start, end=end)  # noqa: SLF001
        if len(block) != end - start:
            raise Lost("the store sent another number of bytes than it said")
        return block

    def _failed(self, error: Exception) -> Exception:
        if isinstance(error, FileNotFoundError):
            return self._bad("there is no such object; check bucket and key")
        if self._store.denied(error):
            return self._bad(f"no permission, or no such object; {self._store.cure}")
        # A foreign error's words may hold anything; its number and its name do not.
        number = error.errno if isinstance(error, OSError) else None
        if isinstance(error, ValueError) or (number == errno.EINVAL and not self._version):
            return self._bad(f"the store refuses the request; check bucket and key, and {self._store.cure}")
        return Lost(f"the store failed ({os.strerror(number) if number else type(error).__name__})")

    def _bad(self, why: str) -> BadInput:
        return BadInput(self._staging.part, f"cannot fetch {self._place.shown}: {why}")


class Deposit:
    """One object, written."""

    def __init__(self, store: Store, place: Place, content: bytes, stack: AsyncExitStack, policy: Policy) -> None:
        self._store, self._place, self._content, self._stack = store, place, content, stack
        self._patience = policy.block_seconds

    async def go_on(self) -> None:
        try:
            files, session = await self._store.connect()
            self._stack.push_async_callback(session.close)
            async with asyncio.timeout(self._patience):
                await files._pipe_file(self._place.target, self._content)  # noqa: SLF001 fsspec's async names
        except self._store.errors as error:
            if isinstance(error, FileNotFoundError | ValueError):
                raise self._bad("there is no such bucket; check its name") from None
            if self._store.denied(error):
                raise self._bad(f"no permission; {self._store.cure}") from None
            raise Lost(f"the store failed ({type(error).__name__})") from None

    def _bad(self, why: str) -> BadInput:
        return BadInput("options", f"cannot write {self._place.shown}: {why}")


def _version(info: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(info.get(name)) for name in _VERSION)
