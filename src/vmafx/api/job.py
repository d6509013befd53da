"""VmafxJob: score one distorted clip against its reference."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from vmafx.api.fields import (
    Count,
    Generation,
    Identifier,
    Labels,
    Message,
    NonNegative,
    ObjectName,
    Positive,
    SmallCount,
    Time,
    Url,
    doc,
    schema,
)
from vmafx.api.hardware import Backend
from vmafx.api.meta import (
    AGE,
    ApiModel,
    Column,
    Condition,
    Conditions,
    CustomObject,
    LocalSecretRef,
    MetaView,
    Names,
    Rule,
)
from vmafx.api.scoring import ScoringSpec
from vmafx.api.views import unchecked

Phase = Literal["Pending", "Running", "Succeeded", "Failed"]
FINISHED = ("Succeeded", "Failed")

MUTABLE = frozenset({"suspend", "cancel", "priority", "ttlSecondsAfterFinished"})
NAME_MAX = 52  # the name becomes a label value, and with an attempt's number a Pod's name


class VmafxJobSpec(ScoringSpec):
    """What to score, where, and within which limits."""

    backend: Annotated[Backend | None, doc("What to score on; whatever fits where it is not said.")] = None
    priority: Annotated[
        int, Meta(ge=0, le=1_000_000_000), schema(format="int32"), doc("Higher goes first; may be changed.")
    ] = 0
    nodeSelector: Annotated[Labels, doc("Labels a VmafxNode must have to be given this job.")] = {}
    suspend: Annotated[bool, doc("Stop the work, or hold it back, until this is false again; may be changed.")] = False
    cancel: Annotated[bool, doc("Give the job up for good; may be set, never unset.")] = False
    retryLimit: Annotated[
        int, Meta(ge=0, le=100), schema(format="int32"), doc("How many failed attempts are tried again.")
    ] = 3
    activeDeadlineSeconds: Annotated[
        Positive | None,
        doc("Seconds from the first start, over all attempts, after which the job fails."),
    ] = None
    ttlSecondsAfterFinished: Annotated[
        SmallCount | None,
        doc("Seconds after its end at which the job is deleted; kept where it is not said; may be changed."),
    ] = None
    credentialsSecretRef: Annotated[
        LocalSecretRef | None, doc("Secret with the credentials for s3 and gs URIs; for jobs that run as Pods.")
    ] = None
    schedulerName: Annotated[
        ObjectName, doc("Who places the job: vmafx, or another scheduler, whose placement is then waited for.")
    ] = "vmafx"

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            check="!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)",
            message="cancel cannot be taken back; create a new job instead",
        ),
        *(
            Rule(
                check=f"has(self.{clip}Format) || !self.{clip}.lowerAscii().matches('[.]yuv([?#]|$)')",
                message=f"a .yuv clip does not say its size: add {clip}Format with width, height and pixelFormat",
            )
            for clip in ("reference", "distorted")
        ),
    )


class JobProgress(ApiModel):
    """How far a running job is (told by agents)."""

    frames: Annotated[Count, doc("Frames scored so far.")] = 0
    totalFrames: Annotated[Count, doc("Frames in the clip, where known.")] = 0
    fps: Annotated[NonNegative, doc("Frames scored per second.")] = 0.0


class FeatureSummary(ApiModel):
    """One measure over all frames."""

    mean: Annotated[float | None, doc("Arithmetic mean.")] = None
    harmonicMean: Annotated[float | None, doc("Harmonic mean, which bad frames pull down more.")] = None
    min: Annotated[float | None, doc("Worst frame.")] = None
    max: Annotated[float | None, doc("Best frame.")] = None


class VmafxJobStatus(ApiModel):
    """Where the job stands, and its score."""

    phase: Annotated[Phase, schema(default="Pending"), doc("Pending, Running, Succeeded or Failed.")] = "Pending"
    score: Annotated[float | None, doc("The pooled VMAF score.")] = None
    assignedNode: Annotated[Identifier | None, doc("The VmafxNode that has the job.")] = None
    controllerJobID: Annotated[
        Identifier | None, doc("Names the current attempt: results for any other are refused.")
    ] = None
    startedAt: Annotated[
        Time | None, doc("When the job first ran since it was created or resumed; deadlines run from here.")
    ] = None
    finishedAt: Annotated[Time | None, doc("When the job ended.")] = None
    message: Annotated[Message | None, doc("What happened, for people.")] = None
    attempts: Annotated[SmallCount, doc("Placements so far.")] = 0
    failures: Annotated[SmallCount, doc("Attempts that failed; retryLimit limits these.")] = 0
    excludedNodes: Annotated[
        tuple[Identifier, ...],
        Meta(max_length=128),
        schema(x_kubernetes_list_type="set"),
        doc("VmafxNodes on which an attempt failed; others are tried first."),
    ] = ()
    claimedAt: Annotated[Time | None, doc("When an agent took the current attempt.")] = None
    progress: Annotated[
        JobProgress | None,
        doc("How far the current attempt is (agents only); complete once the job succeeded, absent if it failed."),
    ] = None
    metrics: Annotated[
        dict[Annotated[str, Meta(max_length=64)], FeatureSummary],
        Meta(max_length=64),
        doc("Each measure over all frames."),
    ] = {}
    frames: Annotated[Count | None, doc("Frames scored.")] = None
    reportURI: Annotated[Url | None, doc("Where the per-frame report is.")] = None
    observedGeneration: Annotated[Generation, doc("The metadata.generation this status speaks of.")] = 0
    conditions: Annotated[Conditions, doc("Scheduled, Complete and Failed.")] = ()


def _unchangeable(name: str) -> Rule:
    """The rule stands on spec: one on the field itself can be got round by way of null."""
    return Rule(
        check=f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
        message=f"{name} cannot be changed after creation; create a new job instead",
        keeps=name,
    )


VmafxJobSpec.rules += tuple(_unchangeable(name) for name in VmafxJobSpec.__struct_fields__ if name not in MUTABLE)


class VmafxJob(CustomObject, kw_only=True, tag_field="kind", tag="VmafxJob"):
    """A VmafxJob scores one distorted clip against its reference and keeps the score in its status."""

    names: ClassVar[Names] = Names(
        plural="vmafxjobs",
        short="vmjob",
        columns=(
            Column(name="Phase", path=".status.phase"),
            Column(name="Score", path=".status.score", type="number"),
            Column(name="Node", path=".status.assignedNode"),
            AGE,
            Column(name="Backend", path=".spec.backend", wide=True),
            Column(name="Model", path=".spec.model", wide=True),
            Column(name="Priority", path=".spec.priority", type="integer", wide=True),
            Column(name="Message", path=".status.message", wide=True),
        ),
        selectable=(".status.phase", ".status.assignedNode", ".spec.backend", ".spec.ttlSecondsAfterFinished"),
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            check=f"size(self.metadata.name) <= {NAME_MAX}",
            message=f"metadata.name may have at most {NAME_MAX} characters, since Pods are named after the job",
        ),
        Rule(
            check="!has(oldSelf.status) || !has(oldSelf.status.phase) || !(oldSelf.status.phase in "
            "['Succeeded', 'Failed']) || (has(self.status) && has(self.status.phase) && "
            "self.status.phase == oldSelf.status.phase)",
            message="a job ends once: phase Succeeded or Failed never changes; create a new job instead",
        ),
    )

    spec: VmafxJobSpec
    status: Annotated[VmafxJobStatus, schema(default={"phase": "Pending"})] = VmafxJobStatus()


class JobStatusView(ApiModel):
    """The part of the status that decisions are made from."""

    phase: Phase = "Pending"
    assignedNode: str | None = None
    controllerJobID: str | None = None
    startedAt: datetime | None = None
    finishedAt: datetime | None = None
    attempts: int = 0
    failures: int = 0
    excludedNodes: tuple[str, ...] = ()
    claimedAt: datetime | None = None
    observedGeneration: int = 0
    conditions: tuple[Condition, ...] = ()
    message: str | None = None


if TYPE_CHECKING:
    JobSpecView = VmafxJobSpec
else:
    JobSpecView = unchecked(VmafxJobSpec, "JobSpecView")


class JobView(ApiModel):
    """A VmafxJob as caches keep it: everything of the spec, of the status only what decisions need."""

    metadata: MetaView
    spec: JobSpecView
    status: JobStatusView = JobStatusView()
