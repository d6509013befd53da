"""The arguments of the tools, each declared once: validation and the schemas that clients get come from here."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from vmafx.api.fields import MAX_URI, doc
from vmafx.api.hardware import Backend
from vmafx.api.schema import portable
from vmafx.api.scoring import DEFAULT_MODEL, Pooling, RawFormat
from vmafx.scoring.request import RequestOptions, Source
from vmafx.tune.config import Qualities, Score

MAX_CLIPS = 32
MAX_ENCODERS = 16
MAX_WAIT = 3600  # seconds

Clip = Annotated[str, Meta(min_length=1, max_length=MAX_URI)]
JobId = Annotated[str, Meta(min_length=1, max_length=253), doc("ID of the job, as the tool that started it returned.")]
Wait = Annotated[
    Annotated[int, Meta(ge=0, le=MAX_WAIT)] | None,
    doc(
        "Seconds to wait for the result. After that, the job goes on, and the answer is its ID for get_job. "
        "0: answer at once; null: a time below the timeouts of usual clients."
    ),
]
Model = Annotated[
    str,
    Meta(max_length=MAX_URI),
    doc(f"VMAF model: {DEFAULT_MODEL}, {DEFAULT_MODEL}neg (no credit for sharpening), vmaf_4k_v0.6.1, or a URI."),
]
Number = Annotated[int, Meta(ge=1, le=20)]
Rate = Annotated[float, Meta(gt=0)]


class _Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class ScoreArguments(RequestOptions, frozen=True, kw_only=True):
    """What to score."""

    reference: Annotated[Clip, doc("The original clip: a path in an allowed folder, or a URI.")]
    distorted: Annotated[
        Clip | Annotated[tuple[Clip, ...], Meta(min_length=1, max_length=MAX_CLIPS)],
        doc("The clip to judge, an encode of the reference; or several, which are scored together."),
    ]
    referenceFormat: Annotated[RawFormat | None, doc("Format of a reference that is raw video (.yuv).")] = None
    distortedFormat: Annotated[RawFormat | None, doc("Format of distorted clips that are raw video.")] = None
    model: Model = DEFAULT_MODEL
    backend: Annotated[Backend | None, doc("Backend to score on. Default: the best of the machine.")] = None
    wait: Wait = None

    @property
    def clips(self) -> tuple[str, ...]:
        return (self.distorted,) if isinstance(self.distorted, str) else self.distorted

    @property
    def reference_source(self) -> Source:
        return Source(self.reference, self.referenceFormat)

    @property
    def distorted_sources(self) -> list[Source]:
        return [Source(clip, self.distortedFormat) for clip in self.clips]


class SubmitArguments(ScoreArguments, frozen=True, kw_only=True):
    """A score that runs in the background."""

    wait: Wait = 0

    priority: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000_000)] | None, doc("Priority of a job in a cluster; higher starts first.")
    ] = None


class CompareArguments(_Arguments, frozen=True, kw_only=True):
    """What to encode, and with what."""

    source: Annotated[Clip, doc("The clip to encode: a path in an allowed folder, or a URI.")]
    encoders: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=100)], ...],
        Meta(max_length=MAX_ENCODERS),
        doc(
            "ENCODER or ENCODER:PRESET, such as libx264:slow, libx265, libvpx-vp9, libaom-av1 or libsvtav1:8. The "
            "others are compared with the first one. Default: those of these five that the machine has."
        ),
    ] = ()
    qualities: Annotated[
        Qualities | None, doc("Qualities to encode at, such as CRF; lower is better. Default: four for each encoder.")
    ] = None
    targetVmaf: Annotated[
        Score | None, doc("Find the setting of each encoder that reaches this score, instead of trying qualities.")
    ] = None
    tolerance: Annotated[float, Meta(gt=0, le=20), doc("Points by which a score may exceed targetVmaf.")] = 0.5
    model: Model = DEFAULT_MODEL
    pooling: Annotated[Pooling, doc("How the scores of frames are combined: mean, harmonic_mean, min, p5 …")] = "mean"
    wait: Wait = None


class LadderArguments(_Arguments, frozen=True, kw_only=True):
    """What a ladder should be like."""

    source: Annotated[Clip, doc("The clip to encode: a path in an allowed folder, or a URI.")]
    encoder: Annotated[str, Meta(max_length=100), doc("ENCODER or ENCODER:PRESET, such as libx264:medium.")] = "libx264"
    heights: Annotated[
        tuple[Annotated[int, Meta(ge=64, le=8640)], ...],
        Meta(max_length=16),
        doc("Heights to try. Default: that of the source, and the usual ones below it."),
    ] = ()
    qualities: Annotated[
        Qualities | None, doc("Qualities to try in each size, such as CRF. Default: four of the encoder.")
    ] = None
    top: Annotated[Score, doc("Score of the best rung.")] = 95.0
    spacing: Annotated[float, Meta(ge=0.5, le=50), doc("Points of VMAF between rungs.")] = 6.0
    lowest: Annotated[Score, doc("No rung aims below this score.")] = 40.0
    rungs: Annotated[Number, doc("Maximum number of rungs.")] = 8
    maxRate: Annotated[Rate | None, doc("Maximum bitrate of a rung, in bits per second.")] = None
    minRate: Annotated[Rate | None, doc("Minimum bitrate of a rung, in bits per second.")] = None
    keyFrames: Annotated[float, Meta(ge=0.1, le=60), doc("Seconds between key frames.")] = 2.0
    model: Model = DEFAULT_MODEL
    pooling: Annotated[Pooling, doc("How the scores of frames are combined.")] = "mean"
    wait: Wait = None


class ExplainArguments(RequestOptions, frozen=True, kw_only=True):
    """A job of `score` that has succeeded, or two clips."""

    job: Annotated[
        str, Meta(max_length=253), doc("ID of a job of `score` or `submit_job`; or give reference and distorted.")
    ] = ""
    clip: Annotated[int, Meta(ge=0, le=MAX_CLIPS), doc("Which distorted clip of the job, from 0.")] = 0
    reference: Annotated[str, Meta(max_length=MAX_URI), doc("The original clip, if no job is given.")] = ""
    distorted: Annotated[str, Meta(max_length=MAX_URI), doc("The clip to judge, if no job is given.")] = ""
    model: Model = DEFAULT_MODEL
    wait: Wait = None

    def score_arguments(self) -> ScoreArguments:
        options = {field: getattr(self, field) for field in RequestOptions.__struct_fields__}
        return ScoreArguments(
            reference=self.reference, distorted=self.distorted, model=self.model, wait=self.wait, **options
        )


class GetJobArguments(_Arguments, frozen=True, kw_only=True):
    """Which job."""

    id: JobId
    wait: Wait = 0


class CancelJobArguments(_Arguments, frozen=True, kw_only=True):
    """Which job."""

    id: JobId


class ListJobsArguments(_Arguments, frozen=True, kw_only=True):
    """Which jobs."""

    phase: Annotated[
        Literal["Pending", "Running", "Succeeded", "Failed", "Cancelled"] | None, doc("Only jobs in this phase.")
    ] = None
    limit: Annotated[int, Meta(ge=1, le=200), doc("Maximum number of jobs, the newest first.")] = 20


class ListNodesArguments(_Arguments, frozen=True, kw_only=True):
    """No arguments."""


T = TypeVar("T", bound=msgspec.Struct)


class InvalidArguments(Exception):
    """The arguments of a call do not match the schema of its tool."""


def parse(kind: type[T], given: Mapping[str, Any] | None) -> T:
    """The arguments of a call. Raises InvalidArguments."""
    try:
        arguments = msgspec.convert(given or {}, kind)
        # Jobs are kept as JSON, which has neither unpaired surrogates nor numbers that are not finite.
        if msgspec.json.decode(msgspec.json.encode(arguments), type=kind) != arguments:
            raise InvalidArguments("the arguments are not valid: a number is not finite")
    except msgspec.ValidationError as error:
        raise InvalidArguments(f"the arguments are not valid: {error}") from None
    except UnicodeEncodeError:
        raise InvalidArguments("the arguments are not valid: a text has an unpaired surrogate") from None
    return arguments


def json_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of a Struct, with the object itself at the root, as MCP requires."""
    (reference,), definitions = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    name = str(reference["$ref"]).rpartition("/")[2]
    schemas: dict[str, Any] = portable(definitions)
    root = schemas[name] if f'"#/$defs/{name}"' in msgspec.json.encode(schemas).decode() else schemas.pop(name)
    return {**root, **({"$defs": schemas} if schemas else {})}
