"""The clips of a job: uploaded files or URIs, and what identifies their content without reading it."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from vmafx.scoring.errors import InputPart, ScoringError
from vmafx.scoring.media.access import OpenedMedia
from vmafx.scoring.media.local import local_file
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import SCHEMES, locate
from vmafx.scoring.probed import OpenedClip
from vmafx.scoring.request import Source
from vmafx.scoring.score import ProgressListener, Scorer
from vmafx.serving.job import ServedJob
from vmafx.serving.request import ScoreRequest
from vmafx.tasks import in_thread

PARTS: tuple[InputPart, InputPart] = ("reference", "distorted")


class Identity(NamedTuple):
    """Equal for the same content: the digest of an upload, or the file as the kernel knows it.

    A file that is written to gets another ctime, which no program can set back.
    """

    digest: str = ""
    device: int = 0
    inode: int = 0
    size: int = 0
    changed: int = 0

    @classmethod
    def of_file(cls, fd: int) -> "Identity":
        status = os.fstat(fd)
        return cls("", status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)


def source_of(spec: ScoreRequest, part: InputPart, name: str = "") -> Source:
    """A clip of a request; of an uploaded one, `name` is shown."""
    uri = spec.reference if part == "reference" else spec.distorted
    return Source(name or uri, spec.referenceFormat if part == "reference" else spec.distortedFormat)


def is_local(spec: ScoreRequest, part: InputPart) -> bool:
    """Whether the URI of a clip names a file of this machine. Raises BadInput if it is malformed."""
    return SCHEMES[locate(source_of(spec, part).uri, part).scheme].in_place


@asynccontextmanager
async def open_clip(
    job: ServedJob, part: InputPart, scorer: Scorer, listener: ProgressListener
) -> AsyncIterator[OpenedClip]:
    """Open a clip of a job; one with a remote URI is downloaded first."""
    upload = job.record.uploads.get(part)
    if upload is None:
        async with scorer.open(source_of(job.record.spec, part), part, listener) as clip:
            yield clip
        return
    opened = OpenedMedia(job.files[part], upload.size, upload.name, upload.sha256)
    async with scorer.open_file(source_of(job.record.spec, part, upload.name), part, opened) as clip:
        yield clip


async def identify(spec: ScoreRequest, digests: dict[str, str], policy: MediaPolicy) -> tuple[Identity, ...] | None:
    """The identities of both clips; None if one has to be fetched, or cannot be opened."""
    if len(digests) == len(PARTS):
        return tuple(Identity(digests[part]) for part in PARTS)
    try:
        return await in_thread(_identify, spec, digests, policy)
    except ScoringError:
        return None  # scoring says why


def _identify(spec: ScoreRequest, digests: dict[str, str], policy: MediaPolicy) -> tuple[Identity, ...] | None:
    found = []
    for part in PARTS:
        if part in digests:
            found.append(Identity(digests[part]))
            continue
        location = locate(source_of(spec, part).uri, part)
        policy.check_scheme(location.scheme, part)
        if not is_local(spec, part):
            return None
        with local_file(location, part, policy) as fd:
            found.append(Identity.of_file(fd))
    return tuple(found)
