"""Opens a clip by path or URI as a file descriptor, hashes it, and delivers a report to one."""

import hashlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from io import FileIO

import msgspec

from vmafx.scoring.errors import InputPart
from vmafx.scoring.media.local import local_file
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.staging import StagedFile
from vmafx.scoring.media.uri import SCHEMES, locate
from vmafx.tasks import in_thread


class OpenedMedia(msgspec.Struct, frozen=True):
    """A clip at hand. What `fd` says is the clip, whatever happens to its name."""

    fd: int
    size: int
    shown: str  # fit for logs and results: holds no credentials
    digest: str | None = None  # SHA-256, where it came for free

    def again(self) -> int:
        """A fresh descriptor of the same file, with its own offset; the caller closes it."""
        return os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)


@asynccontextmanager
async def open_media(
    uri: str, part: InputPart, policy: MediaPolicy, progress: Callable[[int, int | None], None] | None = None
) -> AsyncIterator[OpenedMedia]:
    """Open a clip, fetching it first if it is elsewhere. `progress` is told the bytes that came, and of how many."""
    place = locate(uri, part)
    policy.allow(place.scheme, part)
    scheme = SCHEMES[place.scheme]
    stack = ExitStack()
    try:
        if scheme.in_place:
            fd = await in_thread(stack.enter_context, local_file(place, part, policy))
            yield OpenedMedia(fd, os.fstat(fd).st_size, place.shown)
        else:
            transfer = await scheme.transfer()
            staging = StagedFile(place.shown, part, policy, progress)
            await in_thread(stack.enter_context, staging)
            await transfer.fetch(place, staging)
            yield OpenedMedia(staging.seal(), staging.size, place.shown, staging.digest)
    finally:
        # The last to close a large unnamed file waits for the disk to forget it.
        await in_thread(stack.close)


BLOCK = 1 << 20


async def sha256(opened: OpenedMedia) -> str:
    """Beside other work: hashing does not hold the interpreter. Cancelled, it stops at once."""
    stop = threading.Event()
    with FileIO(opened.again()) as file:
        return await in_thread(_sha256, file, stop, on_cancel=stop.set)


def _sha256(file: FileIO, stop: threading.Event) -> str:
    digest = hashlib.sha256()
    while not stop.is_set() and (block := file.read(BLOCK)):
        digest.update(block)
    return digest.hexdigest()


async def deliver_report(uri: str, content: bytes, policy: MediaPolicy) -> str:
    """Put it there, and tell where in words fit for a result."""
    place = locate(uri, "options")
    policy.allow(place.scheme, "options")
    transfer = await SCHEMES[place.scheme].transfer()
    await transfer.put(place, content, policy)
    return place.shown
