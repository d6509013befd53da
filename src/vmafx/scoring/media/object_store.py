"""Clips in object stores, through fsspec; s3.py and gs.py say how each store is reached."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import msgspec

from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.retry import TransferInterrupted, retry_transfer
from vmafx.scoring.media.staging import StagedFile
from vmafx.scoring.media.uri import Location

BLOCK_SIZE = 8 << 20
NETWORK = (OSError, TimeoutError, ValueError, aiohttp.ClientError)
# Whatever of these a store knows: if one changes, it is another object.
_VERSION = ("size", "ETag", "etag", "generation", "VersionId", "LastModified", "mtime", "created")


class ObjectStore(msgspec.Struct, frozen=True):
    """How to reach a kind of store, and how to understand its failures."""

    connect: Callable[[], Awaitable[tuple[Any, Any]]]  # fsspec's asynchronous file system, and what to close after it
    errors: tuple[type[Exception], ...] = NETWORK
    denied: Callable[[Exception], bool] = lambda error: isinstance(error, PermissionError)
    cure: str = "ask whoever keeps it"


async def fetch_object(store: ObjectStore, place: Location, staging: StagedFile) -> None:
    """Fetch an object."""
    async with AsyncExitStack() as stack:
        one = ObjectDownload(store, place, staging, stack)
        await retry_transfer(one.go_on, lambda: staging.size, staging.policy.retry, f"cannot fetch {place.shown}")


async def put_object(store: ObjectStore, place: Location, content: bytes, policy: MediaPolicy) -> None:
    """Write an object whole; a second time gives the same."""
    async with AsyncExitStack() as stack:
        one = ObjectUpload(store, place, content, stack, policy)
        await retry_transfer(one.go_on, lambda: 0, policy.retry, f"cannot write {place.shown}")


class ObjectDownload:
    """One object, block by block. Should it change on the way, it is begun anew."""

    def __init__(self, store: ObjectStore, place: Location, staging: StagedFile, stack: AsyncExitStack) -> None:
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
            await staging.add(await self._block(staging.size, min(staging.size + BLOCK_SIZE, size)))
        if _version(await self._info()) != self._version:
            raise TransferInterrupted("it changed while it was read")

    async def _info(self) -> dict[str, Any]:
        async with asyncio.timeout(self._staging.policy.block_seconds):
            info: dict[str, Any] = await self._files._info(self._place.target)  # noqa: SLF001 fsspec's async names
        return info

    async def _block(self, start: int, end: int) -> bytes:
        async with asyncio.timeout(self._staging.policy.block_seconds):
            block: bytes = await self._files._cat_file(self._place.target, start=start, end=end)  # noqa: SLF001
        if len(block) != end - start:
            raise TransferInterrupted("the store sent another number of bytes than it said")
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
        return TransferInterrupted(f"the store failed ({os.strerror(number) if number else type(error).__name__})")

    def _bad(self, why: str) -> BadInput:
        return BadInput(self._staging.part, f"cannot fetch {self._place.shown}: {why}")


class ObjectUpload:
    """One object, written."""

    def __init__(
        self, store: ObjectStore, place: Location, content: bytes, stack: AsyncExitStack, policy: MediaPolicy
    ) -> None:
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
            raise TransferInterrupted(f"the store failed ({type(error).__name__})") from None

    def _bad(self, why: str) -> BadInput:
        return BadInput("options", f"cannot write {self._place.shown}: {why}")


def _version(info: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(info.get(name)) for name in _VERSION)
