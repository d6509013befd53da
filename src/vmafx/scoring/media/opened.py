"""The way in: a clip by path or URI becomes an open descriptor of a regular file."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

import msgspec

from vmafx.scoring.errors import Part
from vmafx.scoring.media.local import local_file
from vmafx.scoring.media.policy import Policy
from vmafx.scoring.media.schemes import SCHEMES
from vmafx.scoring.media.staging import Staging
from vmafx.scoring.media.uri import locate
from vmafx.threads import in_thread


class Opened(msgspec.Struct, frozen=True):
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
    uri: str, part: Part, policy: Policy, progress: Callable[[int, int | None], None] | None = None
) -> AsyncIterator[Opened]:
    """Open a clip, fetching it first if it is elsewhere. `progress` is told the bytes that came, and of how many."""
    place = locate(uri, part)
    policy.allow(place.scheme, part)
    scheme = SCHEMES[place.scheme]
    stack = ExitStack()
    try:
        if scheme.in_place:
            fd = await in_thread(stack.enter_context, local_file(place, part, policy))
            yield Opened(fd, os.fstat(fd).st_size, place.shown)
        else:
            transfer = await scheme.transfer()
            staging = Staging(place.shown, part, policy, progress)
            await in_thread(stack.enter_context, staging)
            await transfer.fetch(place, staging)
            yield Opened(staging.seal(), staging.size, place.shown, staging.digest)
    finally:
        # The last to close a large unnamed file waits for the disk to forget it.
        await in_thread(stack.close)
