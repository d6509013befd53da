"""VmafxJob: scores one distorted clip against its reference."""

from collections.abc import Mapping
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

MUTABLE = frozenset({"suspend", "cancel", "priority", "ttlSecondsAfterFinished", "humanScore"})
LABELLED = {"vmafx.dev/labelled": "true"}  # label of jobs with a humanScore: the operator caches only these
MAX_JOB_NAME = 52  # a Pod name, which is also a label value, is the job's name and the number of the attempt


class VmafxJobSpec(ScoringSpec):
    """Desired state of a VmafxJob: the clips, how and where to score them, and the limits."""

    priority: Annotated[
        int,
        Meta(ge=0, le=1_000_000_000),
        schema(format="int32"),
        doc("Jobs with a higher priority are placed first. Can be changed. Defaults to 0."),
    ] = 0
    nodeSelector: Annotated[
        Labels, doc("Labels that a VmafxNode must have to be assigned the job. If unset, any node matches.")
    ] = {}
    suspend: Annotated[
        bool,
        doc("If true, the running attempt is stopped and no other is started. Can be changed. Defaults to false."),
    ] = False
    cancel: Annotated[bool, doc("Stops the job and marks it as Failed. Can be set to true, but not back to false.")] = (
        False
    )
    retryLimit: Annotated[
        int,
        Meta(ge=0, le=100),
        schema(format="int32"),
        doc("Number of failed attempts that are retried before the job is marked as Failed. Defaults to 3."),
    ] = 3
    activeDeadlineSeconds: Annotated[
        Positive | None,
        doc(
            "Seconds that the job may take from status.startedAt, across all attempts, before it is marked as Failed. "
            "If unset, there is no deadline."
        ),
    ] = None
    ttlSecondsAfterFinished: Annotated[
        SmallCount | None,
        doc("Seconds after which a finished job is deleted. If unset, the job is kept. Can be changed."),
    ] = None
    credentialsSecretRef: Annotated[
        LocalSecretRef | None,
        doc(
            "Secret with credentials for s3 and gs URIs, under the names of their environment variables; the worker "
            "takes only the keys listed in docs/clips.md. "
            "Such a job is not placed on nodes with runtime Agent."
        ),
    ] = None
    humanScore: Annotated[
        Annotated[float, Meta(ge=0, le=100)] | None,
        doc(
            "Score that people gave the distorted clip, from 0 to 100. Trainings learn more from it than from the "
            "score of the model. Can be changed: by `vmafx label`, or together with the label vmafx.dev/labelled=true."
        ),
    ] = None
    schedulerName: Annotated[
        ObjectName,
        doc("Scheduler that places the job. The operator places only jobs with the default, vmafx."),
    ] = "vmafx"

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            check="self || !oldSelf",
            message="cancel must not be unset; create a new job instead",
            field="cancel",
        ),
        *(
            Rule(
                check=f"!self.{clip}.matches('(?i)[.]yuv([?#]|$)') || has(self.{clip}Format)",
                message=f"{clip}Format must be set for a .yuv clip, with width, height and pixelFormat",
            )
            for clip in ("reference", "distorted")
        ),
    )
    immutable: ClassVar[Mapping[str, str]]  # see below


VmafxJobSpec.immutable = {
    name: f"{name} is immutable; create a new job instead"
    for name in VmafxJobSpec.__struct_fields__
    if name not in MUTABLE
}


class JobProgress(ApiModel):
    """Progress of the current attempt, as reported by an agent."""

    frames: Annotated[Count, doc("Number of frames scored so far.")] = 0
    totalFrames: Annotated[Count, doc("Number of frames in the clip; 0 if unknown.")] = 0
    fps: Annotated[NonNegative, doc("Frames scored per second.")] = 0.0


class FeatureSummary(ApiModel):
    """Summary of a feature over all scored frames."""

    mean: Annotated[float | None, doc("Arithmetic mean.")] = None
    harmonicMean: Annotated[float | None, doc("Harmonic mean, which gives more weight to low values.")] = None
    min: Annotated[float | None, doc("Lowest value of a frame.")] = None
    max: Annotated[float | None, doc("Highest value of a frame.")] = None


class VmafxJobStatus(ApiModel):
    """Observed state of a VmafxJob, and its score."""

    phase: Annotated[
        Phase, schema(default="Pending"), doc("Phase of the job: Pending, Running, Succeeded or Failed.")
    ] = "Pending"
    score: Annotated[float | None, doc("Pooled VMAF score of the clip, from 0 to 100.")] = None
    assignedNode: Annotated[Identifier | None, doc("Name of the VmafxNode that the job is placed on.")] = None
    controllerJobID: Annotated[
        Identifier | None,
        doc(
            "ID of the current attempt, or of the job at an external controller. Results with another ID are rejected."
        ),
    ] = None
    startedAt: Annotated[
        Time | None,
        doc("Time of the first placement since the job was created or resumed. activeDeadlineSeconds counts from it."),
    ] = None
    finishedAt: Annotated[Time | None, doc("Time when the job reached Succeeded or Failed.")] = None
    message: Annotated[Message | None, doc("Details of the current state, in plain text.")] = None
    attempts: Annotated[SmallCount, doc("Number of attempts so far.")] = 0
    failures: Annotated[SmallCount, doc("Number of failed attempts, which retryLimit limits.")] = 0
    excludedNodes: Annotated[
        tuple[Identifier, ...],
        Meta(max_length=128),
        schema(x_kubernetes_list_type="set"),
        doc("VmafxNodes on which an attempt failed. They are used again only if no other node fits."),
    ] = ()
    claimedAt: Annotated[Time | None, doc("Time of the agent's first report about the current attempt.")] = None
    progress: Annotated[
        JobProgress | None,
        doc("Progress of the current attempt. Set only on nodes with runtime Agent, and removed if the job fails."),
    ] = None
    metrics: Annotated[
        dict[Annotated[str, Meta(max_length=64)], FeatureSummary],
        Meta(max_length=64),
        doc("Summary of vmaf and each feature over all scored frames, by name."),
    ] = {}
    frames: Annotated[Count | None, doc("Number of frames scored.")] = None
    reportURI: Annotated[Url | None, doc("URI of the report. Unset if spec.output is unset.")] = None
    observedGeneration: Annotated[Generation, doc("Most recent metadata.generation that the status is based on.")] = 0
    conditions: Annotated[Conditions, doc("Conditions of the job: Scheduled, Complete and Failed.")] = ()

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            check="!(oldSelf in ['Succeeded', 'Failed']) || self == oldSelf",
            message="phase must not change after Succeeded or Failed; create a new job instead",
            field="phase",
        ),
    )


class VmafxJob(CustomObject, kw_only=True, tag_field="kind", tag="VmafxJob"):
    """A VmafxJob scores one distorted clip against its reference and stores the score in its status."""

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
    name_rule: ClassVar[Rule | None] = Rule(
        check=f"size(self) <= {MAX_JOB_NAME}",
        message=f"metadata.name must have at most {MAX_JOB_NAME} characters, because Pods are named after the job",
    )

    spec: VmafxJobSpec
    status: Annotated[VmafxJobStatus, schema(default={"phase": "Pending"})] = VmafxJobStatus()


class JobStatusView(ApiModel):
    """The status fields that the reconciler and the scheduler need."""

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
    """A VmafxJob as caches store it: the whole spec, and a part of the status."""

    metadata: MetaView
    spec: JobSpecView
    status: JobStatusView = JobStatusView()
