"""Opens a clip by path or URI as a file descriptor, hashes it, delivers reports, and uploads files."""

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from io import FileIO
from typing import cast

import msgspec

from vmafx.scoring.errors import BadInput, InputPart, NodeFault
from vmafx.scoring.media import local
from vmafx.scoring.media.local import local_file
from vmafx.scoring.media.policy import FETCH_SECONDS, MediaPolicy
from vmafx.scoring.media.staging import FetchProgress, StagedFile
from vmafx.scoring.media.uri import SCHEMES, Location, StorageModule, locate
from vmafx.tasks import in_thread

HASH_BLOCK_SIZE = 1 << 20


class OpenedMedia(msgspec.Struct, frozen=True):
    """An open clip. `fd` stays the same file even if its name is reused."""

    fd: int
    size: int
    display_name: str  # for logs and results: without credentials
    digest: str | None = None  # SHA-256, if computed during the download

    def reopen(self) -> int:
        """A new descriptor of the same file, with its own offset. The caller closes it."""
        return os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)


@asynccontextmanager
async def open_media(
    uri: str, part: InputPart, policy: MediaPolicy, progress: FetchProgress | None = None
) -> AsyncIterator[OpenedMedia]:
    """Opens a clip; a remote one is downloaded first. `progress` is called with the bytes received and the total."""
    location = locate(uri, part)
    policy.check_scheme(location.scheme, part)
    scheme = SCHEMES[location.scheme]
    stack = ExitStack()
    try:
        if scheme.in_place:
            fd = await in_thread(stack.enter_context, local_file(location, part, policy))
            yield OpenedMedia(fd, os.fstat(fd).st_size, location.display_name)
        else:
            transfer = await scheme.load_module()
            staging = StagedFile(location.display_name, part, policy, progress)
            await in_thread(stack.enter_context, staging)
            async with _time_limit(f"cannot fetch {location.display_name}", policy):
                await transfer.fetch(location, staging)
            yield OpenedMedia(staging.seal(), staging.size, location.display_name, staging.digest)
    finally:
        # Closing the last descriptor of a large unnamed file blocks until the file system has freed it.
        await in_thread(stack.close)


@asynccontextmanager
async def _time_limit(action: str, policy: MediaPolicy) -> AsyncIterator[None]:
    """Ends a transfer that takes too long in all: each of its blocks may arrive just in time. Raises NodeFault."""
    try:
        async with asyncio.timeout(policy.fetch_seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise NodeFault(
            f"{action}: the transfer took longer than the {policy.fetch_seconds:.10g} s allowed;"
            f" use a faster server or network, or raise {FETCH_SECONDS}"
        ) from None


async def sha256(opened: OpenedMedia) -> str:
    """The SHA-256 of a clip, computed in a thread; cancellation stops the thread."""
    if opened.digest:
        return opened.digest
    stop = threading.Event()
    with FileIO(opened.reopen()) as file:
        return await in_thread(_sha256, file, stop, on_cancel=stop.set)


def _sha256(file: FileIO, stop: threading.Event) -> str:
    digest = hashlib.sha256()
    while not stop.is_set() and (block := file.read(HASH_BLOCK_SIZE)):
        digest.update(block)
    return digest.hexdigest()


async def check_output(uri: str, policy: MediaPolicy) -> None:
    """Raises the error of `deliver_report` for a scheme or folder that is not allowed, before the clips are scored."""
    location = locate(uri, "options")
    policy.check_scheme(location.scheme, "options")
    if SCHEMES[location.scheme].in_place:
        await local.check_output(location, policy)


async def deliver_report(uri: str, content: bytes, policy: MediaPolicy) -> str:
    """Writes a report to a path or URI and returns its display name."""
    location = locate(uri, "options")
    policy.check_scheme(location.scheme, "options")
    transfer = await SCHEMES[location.scheme].load_module()
    async with _time_limit(f"cannot write {location.display_name}", policy):
        await transfer.put(location, content, policy)
    return location.display_name


async def upload_file(uri: str, fd: int, policy: MediaPolicy, progress: FetchProgress | None = None) -> None:
    """Copies an open file to a folder or a store, where it replaces a file of that name."""
    location, storage = await _storage(uri, policy)
    async with _time_limit(f"cannot write {location.display_name}", policy):
        await storage.put_file(location, fd, policy, progress)


async def stored_size(uri: str, policy: MediaPolicy) -> int | None:
    """The bytes of a file in a folder that may be written to, or in a store; None if there is none."""
    location, storage = await _storage(uri, policy)
    async with _time_limit(f"cannot look for {location.display_name}", policy):
        return await storage.stored_size(location, policy)


async def _storage(uri: str, policy: MediaPolicy) -> tuple[Location, StorageModule]:
    location = locate(uri, "options")
    policy.check_scheme(location.scheme, "options")
    scheme = SCHEMES[location.scheme]
    if not scheme.takes_files:
        raise BadInput("options", f"files are not uploaded by {scheme.name}://; use a folder, or s3:// or gs://")
    return location, cast("StorageModule", await scheme.load_module())
