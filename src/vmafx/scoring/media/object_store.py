"""Downloads and uploads of objects with fsspec, whose async methods begin with an underscore.

s3.py and gs.py connect to the stores.
"""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import aiohttp
import msgspec
from fsspec.callbacks import Callback

from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.address_guard import AddressGuard
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.retry import TransferInterrupted, retry_transfer
from vmafx.scoring.media.staging import FetchProgress, StagedFile
from vmafx.scoring.media.uri import Location

BLOCK_SIZE = 8 << 20
NETWORK_ERRORS = (OSError, TimeoutError, ValueError, aiohttp.ClientError)
# Properties that identify a version of an object; each store has some of them.
_VERSION_FIELDS = ("size", "ETag", "etag", "generation", "VersionId", "LastModified", "mtime", "created")


class ObjectStore(msgspec.Struct, frozen=True):
    """How to connect to a kind of store, and to interpret its errors."""

    connect: Callable[[], Awaitable[tuple[Any, Any]]]  # fsspec's async file system, and the session to close
    errors: tuple[type[Exception], ...] = NETWORK_ERRORS
    denied: Callable[[Exception], bool] = lambda error: isinstance(error, PermissionError)
    remedy: str = "check the credentials"
    guard: AddressGuard | None = None  # of its connections

    def refused(self) -> str | None:
        """Why its address was refused; None if it was not."""
        if self.guard is None or not self.guard.refused:
            return None
        return (
            "the endpoint in the job's Secret has a private, loopback or link-local address; set"
            " VMAFX_MEDIA_ALLOW_PRIVATE=true on the node to allow that, or set the endpoint on the node"
        )


async def fetch_object(store: ObjectStore, location: Location, staging: StagedFile) -> None:
    """Downloads an object."""
    async with AsyncExitStack() as stack:
        download = ObjectDownload(store, location, staging, stack)
        await retry_transfer(
            download.resume, lambda: staging.size, staging.policy.retry, f"cannot fetch {location.display_name}"
        )


async def put_object(store: ObjectStore, location: Location, content: bytes, policy: MediaPolicy) -> None:
    """Writes an object; retries overwrite it."""

    async def write(filesystem: Any) -> None:
        async with asyncio.timeout(policy.block_seconds):
            await filesystem._pipe_file(location.target, content)  # noqa: SLF001

    await _with_store(store, location, policy, "write", write)


async def put_object_file(
    store: ObjectStore, location: Location, fd: int, policy: MediaPolicy, progress: FetchProgress | None
) -> None:
    """Writes an object from an open file, block by block; retries start over."""
    path, size = f"/proc/self/fd/{fd}", os.fstat(fd).st_size

    async def write(filesystem: Any) -> None:
        async with asyncio.timeout(policy.block_seconds) as limit:
            watch = _UploadWatch(size, limit, policy.block_seconds, progress)
            await filesystem._put_file(path, location.target, callback=watch, chunksize=BLOCK_SIZE)  # noqa: SLF001

    await _with_store(store, location, policy, "write", write)


async def object_size(store: ObjectStore, location: Location, policy: MediaPolicy) -> int | None:
    """The bytes of an object; None if there is none."""
    found: int | None = None

    async def look(filesystem: Any) -> None:
        nonlocal found
        with suppress(FileNotFoundError):
            async with asyncio.timeout(policy.block_seconds):
                info = await filesystem._info(location.target)  # noqa: SLF001
            if info["type"] == "file":
                found = int(info["size"])

    await _with_store(store, location, policy, "look for", look)
    return found


async def _with_store(
    store: ObjectStore,
    location: Location,
    policy: MediaPolicy,
    verb: str,
    work: Callable[[Any], Awaitable[None]],
) -> None:
    """Calls `work` with fsspec's file system of the store, again if the store or the network fails."""
    action = f"cannot {verb} {location.display_name}"
    async with AsyncExitStack() as stack:

        async def attempt() -> None:
            try:
                filesystem, session = await store.connect()
                stack.push_async_callback(session.close)
                await work(filesystem)
            except store.errors as error:
                raise _translated(error, store, action) from None

        await retry_transfer(attempt, lambda: 0, policy.retry, action)


def _translated(error: Exception, store: ObjectStore, action: str) -> Exception:
    """What an error of a store says about an upload."""
    if refused := store.refused():
        return BadInput("options", f"{action}: {refused}")
    if isinstance(error, FileNotFoundError | ValueError):
        return BadInput("options", f"{action}: there is no such bucket; check its name")
    if store.denied(error):
        return BadInput("options", f"{action}: permission denied; {store.remedy}")
    return TransferInterrupted(f"the store failed ({type(error).__name__})")


class _UploadWatch(Callback):  # type: ignore[misc]
    """Reports the bytes that were sent, and gives each block its own time."""

    def __init__(self, size: int, limit: asyncio.Timeout, seconds: float, progress: FetchProgress | None) -> None:
        super().__init__(size=size)
        self._limit, self._seconds, self._progress = limit, seconds, progress

    def call(self, hook_name: str | None = None, **kwargs: Any) -> None:
        """fsspec calls it after each change of `value`."""
        self._limit.reschedule(asyncio.get_running_loop().time() + self._seconds)
        if self._progress is not None:
            self._progress(self.value, self.size)


class ObjectDownload:
    """Downloads an object block by block. Starts over if the object changes."""

    def __init__(self, store: ObjectStore, location: Location, staging: StagedFile, stack: AsyncExitStack) -> None:
        self._store, self._location, self._staging, self._stack = store, location, staging, stack
        self._filesystem: Any = None
        self._version: tuple[str, ...] = ()

    async def resume(self) -> None:
        try:
            if self._filesystem is None:
                self._filesystem, session = await self._store.connect()
                self._stack.push_async_callback(session.close)
            await self._copy()
        except self._store.errors as error:
            raise self._translated(error) from None

    async def _copy(self) -> None:
        staging = self._staging
        info = await self._info()
        if info["type"] != "file":
            raise self._bad("it is a folder, not an object")
        if _version(info) != self._version:
            await staging.start_over()
            self._version = _version(info)
        size = int(info["size"])
        staging.expect(size)
        while staging.size < size:
            await staging.add(await self._block(staging.size, min(staging.size + BLOCK_SIZE, size)))
        if _version(await self._info()) != self._version:
            raise TransferInterrupted("the object changed during the download")

    async def _info(self) -> dict[str, Any]:
        async with asyncio.timeout(self._staging.policy.block_seconds):
            info: dict[str, Any] = await self._filesystem._info(self._location.target)  # noqa: SLF001
        return info

    async def _block(self, start: int, end: int) -> bytes:
        async with asyncio.timeout(self._staging.policy.block_seconds):
            block: bytes = await self._filesystem._cat_file(self._location.target, start=start, end=end)  # noqa: SLF001
        if len(block) != end - start:
            raise TransferInterrupted("the store sent a block of the wrong size")
        return block

    def _translated(self, error: Exception) -> Exception:
        if refused := self._store.refused():
            return self._bad(refused)
        if isinstance(error, FileNotFoundError):
            return self._bad("there is no such object; check bucket and key")
        if self._store.denied(error):
            return self._bad(f"permission denied, or no such object; {self._store.remedy}")
        # The message of a foreign error may contain credentials; its number and class name do not.
        number = error.errno if isinstance(error, OSError) else None
        if isinstance(error, ValueError) or (number == errno.EINVAL and not self._version):
            return self._bad(f"the store rejected the request; check bucket and key, and {self._store.remedy}")
        return TransferInterrupted(f"the store failed ({os.strerror(number) if number else type(error).__name__})")

    def _bad(self, why: str) -> BadInput:
        return BadInput(self._staging.part, f"cannot fetch {self._location.display_name}: {why}")


def _version(info: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(info.get(name)) for name in _VERSION_FIELDS)
