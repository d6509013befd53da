"""Clips from object stores, s3 and gs, by way of fsspec. Its packages are extras, imported when a clip asks for them.

Where the store is, and who we are to it, is between the package and its own variables (AWS_ENDPOINT_URL and the like):
whoever sets them is trusted, so no address is guarded here.
"""

import asyncio
import errno
import importlib
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import msgspec

from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.media.policy import Policy
from vmafx.scoring.media.retry import Lost, until_whole
from vmafx.scoring.media.staging import Staging
from vmafx.scoring.media.uri import Place
from vmafx.threads import in_thread

BLOCK = 8 << 20
_NETWORK = (OSError, TimeoutError, ValueError, aiohttp.ClientError)
# Whatever of these a store knows: if one changes, it is another object.
_VERSION = ("size", "ETag", "etag", "generation", "VersionId", "LastModified", "mtime", "created")


class Store(msgspec.Struct, frozen=True):
    """How to reach a kind of store, and how to understand its failures."""

    connect: Callable[[], Awaitable[tuple[Any, Any]]]  # fsspec's asynchronous file system, and what to close after it
    errors: tuple[type[Exception], ...] = _NETWORK
    denied: Callable[[Exception], bool] = lambda error: isinstance(error, PermissionError)
    cure: str = "ask whoever keeps it"


async def fetch(place: Place, staging: Staging) -> None:
    store = await (_s3 if place.scheme == "s3" else _gs)(staging.policy)
    await copy(store, place, staging)


async def put(place: Place, content: bytes, policy: Policy) -> None:
    """Write an object whole; a second time gives the same."""
    store = await (_s3 if place.scheme == "s3" else _gs)(policy)
    async with AsyncExitStack() as stack:
        one = Deposit(store, place, content, stack, policy)
        await until_whole(one.go_on, lambda: 0, policy.retry, f"cannot write {place.shown}")


async def copy(store: Store, place: Place, staging: Staging) -> None:
    async with AsyncExitStack() as stack:
        one = Copy(store, place, staging, stack)
        await until_whole(one.go_on, lambda: staging.size, staging.policy.retry, f"cannot fetch {place.shown}")


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


async def _s3(policy: Policy) -> Store:
    s3fs = await _package("s3fs", "s3", "s3")
    foreign = importlib.import_module("botocore.exceptions")
    missing = (foreign.NoCredentialsError, foreign.PartialCredentialsError, foreign.ProfileNotFound)

    def files() -> Any:
        made = s3fs.S3FileSystem(
            asynchronous=True,
            skip_instance_cache=True,
            use_listings_cache=False,
            config_kwargs={
                "connect_timeout": policy.connect_seconds,
                "read_timeout": policy.stall_seconds,
                "retries": {"total_max_attempts": 1},  # ours are enough
            },
        )
        made.retries = 1
        return made

    async def connect() -> tuple[Any, Any]:
        made = await in_thread(files)
        return made, await made.set_session()

    return Store(
        connect,
        (*_NETWORK, foreign.BotoCoreError, foreign.ClientError),
        lambda error: isinstance(error, (PermissionError, *missing)),
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, to an account that may read it",
    )


async def _gs(_policy: Policy) -> Store:
    gcsfs = await _package("gcsfs.core", "gs", "gcs")  # the plain one: others ask a second API about each bucket
    answers = importlib.import_module("gcsfs.retry")
    auth = importlib.import_module("google.auth.exceptions")
    requests = importlib.import_module("requests.exceptions")

    def files() -> Any:
        return gcsfs.GCSFileSystem(asynchronous=True, skip_instance_cache=True, use_listings_cache=False)

    async def connect() -> tuple[Any, Any]:
        made = await in_thread(files)  # looks for credentials, maybe over the network
        return made, await made._set_session()  # noqa: SLF001 fsspec's async names

    def denied(error: Exception) -> bool:
        if isinstance(error, answers.HttpError):
            return error.code in {401, 403}
        # gcsfs makes of a 403 an OSError that only its text tells from others.
        plain = type(error) is OSError and error.errno is None and str(error).startswith("Forbidden")
        return plain or isinstance(error, PermissionError | auth.DefaultCredentialsError)

    return Store(
        connect,
        (*_NETWORK, answers.HttpError, auth.GoogleAuthError, requests.RequestException),
        denied,
        "set GOOGLE_APPLICATION_CREDENTIALS to the key of an account that may read it",
    )


async def _package(name: str, scheme: str, extra: str) -> Any:
    try:
        return await in_thread(importlib.import_module, name)
    except ImportError:
        raise NodeFault(f"{scheme}:// needs `pip install 'vmafx[{extra}]'`") from None
