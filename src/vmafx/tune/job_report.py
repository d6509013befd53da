"""The report that a job has written, read back. Its content is not trusted: anything in the folder may have made it."""

from array import array
from math import isfinite, nan
from typing import Annotated

import msgspec
from msgspec import Meta

from vmafx.scoring.errors import NodeFault
from vmafx.scoring.result import Report, ScoreResult
from vmafx.text import one_line

MAX_REPORT_BYTES = 256 << 20  # half a million frames of 15 features have 140 MB


class ExpectedReport(msgspec.Struct, frozen=True):
    """What a report must be about: the digests of both clips, `sha256:...`, and how they are scored."""

    reference: str
    distorted: str
    model: str  # as reports name it; empty if that is unknown
    pooling: str
    subsample: int
    frames: int  # of the distorted clip


class _Frames(msgspec.Struct, frozen=True):
    frame: list[Annotated[int, Meta(ge=0, le=1 << 32)]]
    vmaf: list[float | None]


class _JobReport(ScoreResult, frozen=True, kw_only=True):
    perFrame: _Frames


def parse_report(content: bytes, name: str, expected: ExpectedReport) -> Report:
    """The report, with the VMAF of each frame only. Raises NodeFault if it is malformed, or of something else."""
    try:
        found = msgspec.json.decode(content, type=_JobReport)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _unusable(name, f"is not a report of vmafx: {one_line(str(error))}") from error
    frames = found.perFrame
    vmaf = found.features.get("vmaf")
    if vmaf is None or "p5" not in vmaf.percentiles or not (isfinite(found.score) and 0 <= found.score <= 100):
        raise _unusable(name, "has no valid score")
    if (found.reference.digest, found.distorted.digest) != (expected.reference, expected.distorted):
        raise _unusable(name, "is about other clips than those that were sent (their digests differ)")
    asked = expected.model or found.model, expected.pooling, expected.subsample
    if (found.model, found.pooling, found.subsample) != asked:
        raise _unusable(name, "was made with another model or other options")
    scored = -(-expected.frames // expected.subsample)
    if not found.frames == len(frames.frame) == len(frames.vmaf) == scored:
        raise _unusable(name, f"is about {found.frames:,} frames, but the encode has {expected.frames:,}")
    fields = {field: getattr(found, field) for field in ScoreResult.__struct_fields__}
    values = array("d", [nan if value is None else value for value in frames.vmaf])
    return Report(ScoreResult(**fields), array("q", frames.frame), {"vmaf": values})


def _unusable(name: str, why: str) -> NodeFault:
    return NodeFault(f"the report {name} {why}; delete it, and run the command again")
