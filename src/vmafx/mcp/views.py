"""What clients get from tools: structured, and as a few lines of text."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from vmafx.api.fields import doc
from vmafx.fleet.rows import JobRow, NodeRow
from vmafx.hardware.backends import BackendRow
from vmafx.mcp.explain import Explanation
from vmafx.mcp.job import ClipScore, Job, JobFailure, ScoreOutcome, WorkOutcome, WorkProgress
from vmafx.text import one_line
from vmafx.tune.results import CompareResult, EncodeResult, LadderPoint, LadderResult

REPORTS = {
    "score": ("report.html", "report.json", "report.csv", "report.svg", "report.png"),
    "compare": ("report.html", "report.json", "report.csv"),
    "ladder": ("report.html", "report.json", "report.csv", "report.m3u8"),
}
CLUSTER_KIND = "VmafxJob"
MAX_LINE = 2000  # characters


def report_uri(job_id: str, name: str) -> str:
    return f"vmafx://jobs/{job_id}/{name}"


class McpJobView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job, with its result once it has ended."""

    id: Annotated[str, doc("ID of the job, for get_job; it stays valid when the server is restarted.")]
    kind: Annotated[str, doc("score, compare or ladder of this server, or VmafxJob of the cluster.")]
    phase: Annotated[str, doc("Pending, Running, Succeeded, Failed or Cancelled.")]
    created: datetime | None = None
    started: datetime | None = None
    finished: datetime | None = None
    progress: Annotated[WorkProgress | None, doc("While it runs.")] = None
    score: Annotated[ScoreOutcome | None, doc("The result of a score.")] = None
    compare: Annotated[CompareResult | None, doc("The result of a comparison.")] = None
    ladder: Annotated[LadderResult | None, doc("The result of a ladder.")] = None
    clusterJob: Annotated[JobRow | None, doc("A job in the cluster.")] = None
    failure: Annotated[JobFailure | None, doc("Why it failed.")] = None
    reports: Annotated[tuple[str, ...], doc("URIs of resources with the whole report.")] = ()


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs without their results, the newest first."""

    jobs: tuple[McpJobView, ...]
    total: Annotated[int, doc("Jobs in all, which may be more than are listed.")]


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of the cluster; without one, what this machine has."""

    cluster: Annotated[bool, doc("Whether the server uses a cluster.")]
    namespace: str = ""
    nodes: tuple[NodeRow, ...] = ()
    cores: Annotated[int, doc("CPU cores of this machine that may be used.")] = 0
    machine: tuple[BackendRow, ...] = ()


class ExplainView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a clip has its score; without an explanation, the job has not ended yet."""

    job: McpJobView
    explanation: Explanation | None = None


def job_view(job: Job, *, whole: bool = True) -> McpJobView:
    """`whole`: with the result."""
    record = job.record
    outcome = (record.outcome if whole else None) or WorkOutcome()
    succeeded = record.phase == "Succeeded"
    return McpJobView(
        id=record.id,
        kind=record.kind,
        phase=record.phase,
        created=record.created,
        started=record.started,
        finished=record.finished,
        progress=job.progress,
        score=outcome.score,
        compare=without_files(outcome.compare) if outcome.compare is not None else None,
        ladder=ladder_without_files(outcome.ladder) if outcome.ladder is not None else None,
        failure=record.failure,
        reports=tuple(report_uri(record.id, name) for name in REPORTS[record.kind]) if succeeded else (),
    )


def cluster_job_view(row: JobRow) -> McpJobView:
    return McpJobView(
        id=row.name, kind=CLUSTER_KIND, phase=row.phase, created=row.created, started=row.started,
        finished=row.finished, clusterJob=row,
    )  # fmt: skip


def without_files(result: CompareResult) -> CompareResult:
    """The paths of encodes are of this machine, which a client may not be."""
    variants = [
        msgspec.structs.replace(one, encodes=tuple(_without_file(encode) for encode in one.encodes))
        for one in result.variants
    ]
    return msgspec.structs.replace(result, variants=tuple(variants))


def ladder_without_files(result: LadderResult) -> LadderResult:
    return msgspec.structs.replace(result, rungs=_points(result.rungs), encodes=_points(result.encodes))


def _points(points: Sequence[LadderPoint]) -> tuple[LadderPoint, ...]:
    return tuple(msgspec.structs.replace(one, encode=_without_file(one.encode)) for one in points)


def _without_file(encode: EncodeResult) -> EncodeResult:
    return msgspec.structs.replace(encode, file="")


def job_text(view: McpJobView) -> str:
    """A job in a few lines."""
    lines = [*_state_lines(view)]
    if view.score is not None:
        lines += [_clip_line(clip, view.score.pooling) for clip in view.score.clips]
    if view.compare is not None:
        lines += _compare_lines(view.compare)
    if view.ladder is not None:
        lines += _ladder_lines(view.ladder)
    if view.reports:
        lines.append(f"Reports: {', '.join(view.reports)}")
    return "\n".join(one_line(line, MAX_LINE) for line in lines)  # parts of them come from clips and encoders


def _state_lines(view: McpJobView) -> list[str]:
    match view.phase:
        case "Succeeded" if view.clusterJob is not None:
            score = view.clusterJob.score
            return [f"Job {view.id} of the cluster has succeeded: VMAF {score if score is None else round(score, 3)}."]
        case "Succeeded":
            return [f"Job {view.id} has succeeded."]
        case "Failed":
            reason = view.failure.text if view.failure is not None else _cluster_message(view)
            return [f"Job {view.id} has failed: {reason}"]
        case "Running" | "Pending":
            done = ""
            if view.progress is not None:
                detail = f", {view.progress.detail}" if view.progress.detail else ""
                done = f" ({view.progress.stage}, {view.progress.share:.0%}{detail})"
            state = "is running" if view.phase == "Running" else "is waiting"
            return [f"Job {view.id} {state}{done}. Call get_job with this ID for its result."]
    return [f"Job {view.id}: {view.phase}."]


def _cluster_message(view: McpJobView) -> str:
    row = view.clusterJob
    return (row.message or row.reason or "no reason given") if row is not None else "no reason given"


def _clip_line(clip: ClipScore, pooling: str) -> str:
    if clip.error or clip.score is None:
        return f"{clip.distorted}: failed: {clip.error}"
    notes = f"; {'; '.join(clip.notes)}" if clip.notes else ""
    return (
        f"{clip.distorted}: VMAF {clip.score:.3f} ({pooling}), lowest frame {clip.lowest:.2f}, "
        f"95 % of {clip.frames} frames above {clip.p5:.2f}{notes}"
    )


def _compare_lines(result: CompareResult) -> list[str]:
    lines = []
    for variant in result.variants:
        if variant.summary:
            lines.append(f"{variant.name}: {variant.summary}")
        else:
            shown = ", ".join(f"{one.quality:g}: {one.score:.2f} at {_kbits(one)}" for one in variant.scored)
            lines.append(f"{variant.name} (quality: VMAF at bitrate): {shown or 'no encode was scored'}")
        if variant.bdRate is not None and variant.bdScore is not None:
            anchor = result.variants[0].name
            lines.append(
                f"{variant.name}: BD-rate {variant.bdRate:+.1f} % against {anchor}, {variant.bdScore:+.2f} VMAF"
            )
    return [*lines, *(f"failed: {error}" for error in result.errors), *result.notes]


def _ladder_lines(result: LadderResult) -> list[str]:
    lines = [f"{len(result.rungs)} rungs with {result.variant}, of {len(result.encodes)} encodes:"]
    for rung in result.rungs:
        encode = rung.encode
        lines.append(
            f"{rung.width}x{rung.height}, quality {rung.quality}: {_kbits(encode)}, VMAF {encode.score or 0:.2f}"
        )
    return [*lines, *(f"failed: {error}" for error in result.errors), *result.notes]


def _kbits(encode: EncodeResult) -> str:
    return f"{encode.bitrate / 1000:,.0f} kbit/s"


def jobs_text(found: JobList) -> str:
    if not found.jobs:
        return "There are no jobs."
    lines = [f"{view.id}: {view.kind}, {view.phase}" for view in found.jobs]
    return "\n".join([f"{len(found.jobs)} of {found.total} jobs, the newest first:", *lines])


def nodes_text(found: NodeList) -> str:
    if found.cluster:
        lines = [
            f"{node.name}: {'healthy' if node.healthy else 'not healthy'}, {node.used} of {node.capacity} slots used"
            for node in found.nodes
        ]
        return "\n".join([f"{len(found.nodes)} nodes in namespace {found.namespace}:", *lines])
    lines = [f"{one.backend}: {one.device or 'no device'}, {one.engine or one.problem}" for one in found.machine]
    return "\n".join([f"No cluster is configured; jobs run on this machine, with {found.cores} cores:", *lines])


def explain_text(found: ExplainView) -> str:
    return found.explanation.summary if found.explanation is not None else job_text(found.job)
