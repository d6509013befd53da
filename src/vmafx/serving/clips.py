"""The clips of a job: uploaded files or URIs, and what identifies their content without reading it."""

import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from vmafx.dentry_cache import keeps_inodes, open_cached
from vmafx.scoring.errors import InputPart
from vmafx.scoring.media.access import OpenedMedia
from vmafx.scoring.media.local import local_file
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import SCHEMES, Location, locate
from vmafx.scoring.probed import OpenedClip
from vmafx.scoring.request import Source
from vmafx.scoring.score import ProgressListener, Scorer
from vmafx.serving.job import ServedJob
from vmafx.serving.request import ScoreRequest

PARTS: tuple[InputPart, InputPart] = ("reference", "distorted")
SETTLED_NS = 1_000_000_000  # after this time, another change of a file has another ctime on every file system


class ContentIdentity(NamedTuple):
    """Equal for the same content: the digest of an upload, or the file as the kernel knows it.

    A file that is written to gets another ctime, which no program can set back.
    """

    digest: str = ""
    device: int = 0
    inode: int = 0
    size: int = 0
    changed: int = 0

    @classmethod
    def of_file(cls, fd: int) -> "ContentIdentity":
        status = os.fstat(fd)
        return cls("", status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)

    @property
    def is_settled(self) -> bool:
        return time.time_ns() - self.changed > SETTLED_NS


class SeenFile(NamedTuple):
    """A file, and its path without symbolic links."""

    path: bytes
    identity: ContentIdentity

    @classmethod
    def of(cls, path: str, fd: int) -> "SeenFile | None":
        """None if it cannot be found again without waiting for a disk or a server. `path` was opened as `fd`.

        None also if the path has links: where they lead would have to be compared with the allowed folders again.
        """
        real = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - making a Path takes longer than the call
        return cls(os.fsencode(path), ContentIdentity.of_file(fd)) if real == path and keeps_inodes(fd) else None

    def is_unchanged(self) -> bool:
        """Whether the path still leads to this file, with the same content; False if that cannot be told at once."""
        fd = open_cached(self.path)
        if fd is None:
            return False
        try:
            return ContentIdentity.of_file(fd) == self.identity
        finally:
            os.close(fd)


def clip_source(spec: ScoreRequest, part: InputPart, name: str = "") -> Source:
    """A clip of a request; of an uploaded one, `name` is shown."""
    uri = spec.reference if part == "reference" else spec.distorted
    return Source(name or uri, spec.referenceFormat if part == "reference" else spec.distortedFormat)


def clip_location(spec: ScoreRequest, part: InputPart, policy: MediaPolicy) -> Location:
    """Where the clip of a URI is. Raises BadInput if the URI is malformed, or its scheme is not allowed."""
    location = locate(clip_source(spec, part).uri, part)
    policy.check_scheme(location.scheme, part)
    return location


@asynccontextmanager
async def open_clip(
    job: ServedJob, part: InputPart, scorer: Scorer, listener: ProgressListener
) -> AsyncIterator[OpenedClip]:
    """Open a clip of a job; one with a remote URI is downloaded first."""
    upload = job.record.uploads.get(part)
    if upload is None:
        async with scorer.open(clip_source(job.record.spec, part), part, listener) as clip:
            yield clip
        return
    opened = OpenedMedia(job.files[part], upload.size, upload.name, upload.sha256)
    async with scorer.open_file(clip_source(job.record.spec, part, upload.name), part, opened) as clip:
        yield clip


class Identified(NamedTuple):
    """What identifies the clips of a request; `files` are those that can be looked at again without waiting."""

    identities: tuple[ContentIdentity, ...]
    files: tuple[SeenFile, ...]


def identify(spec: ScoreRequest, digests: Mapping[str, str], policy: MediaPolicy) -> Identified | None:
    """Identify both clips; None if one has to be fetched. Raises ScoringError if one cannot be opened.

    It accesses the disk. `digests` are those of uploaded clips.
    """
    found, files = list[ContentIdentity](), list[SeenFile]()
    for part in PARTS:
        if part in digests:
            found.append(ContentIdentity(digests[part]))
            continue
        location = clip_location(spec, part, policy)
        if not SCHEMES[location.scheme].in_place:
            return None
        with local_file(location, part, policy) as fd:
            found.append(ContentIdentity.of_file(fd))
            if (seen := SeenFile.of(location.target, fd)) is not None:
                files.append(seen)
    return Identified(tuple(found), tuple(files))


def opened_identities(job: ServedJob, policy: MediaPolicy, *fds: int) -> tuple[ContentIdentity, ...] | None:
    """Like `identify`, of the clips of a job that are open; None also if one has just been changed.

    A change right after it might not be seen, since the clock of a file system advances in steps.
    """
    found = []
    for part, fd in zip(PARTS, fds, strict=True):
        if (upload := job.record.uploads.get(part)) is not None:
            found.append(ContentIdentity(upload.sha256))
        elif SCHEMES[clip_location(job.record.spec, part, policy).scheme].in_place:
            found.append(ContentIdentity.of_file(fd))
        else:
            return None
    return tuple(found) if all(one.is_settled for one in found) else None
