"""Tools: what each tool does for a caller."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmafx.auth.callers import ServedCaller
from vmafx.clock import loop_time
from vmafx.cores import usable_cores
from vmafx.hardware.backends import find_backends
from vmafx.mcp.arguments import (
    CancelJobArguments,
    CompareArguments,
    ExplainArguments,
    GetJobArguments,
    LadderArguments,
    ListJobsArguments,
    ListNodesArguments,
    ScoreArguments,
    SubmitArguments,
)
from vmafx.mcp.cluster import Cluster
from vmafx.mcp.explain import Explanation, explain, known_model
from vmafx.mcp.job import Job, Kind, WorkProgress
from vmafx.mcp.jobs import Jobs
from vmafx.mcp.resources import Reports
from vmafx.mcp.views import (
    ExplainView,
    JobList,
    McpJobView,
    NodeList,
    cluster_job_view,
    explain_text,
    job_text,
    job_view,
    jobs_text,
    nodes_text,
)
from vmafx.mcp.work import Work, check_work
from vmafx.scoring.engines.ffmpeg import ffmpeg_path
from vmafx.scoring.result import Report

PROGRESS_SECONDS = 0.5  # between two reports of progress
CLUSTER_POLL = 2.0  # seconds


class ToolFailed(Exception):
    """A call cannot be answered; the message says what to do."""


class ToolReply(NamedTuple):
    content: msgspec.Struct
    text: str
    failed: bool = False


class Call(NamedTuple):
    """Who calls, and who wants to know how far the work is."""

    caller: ServedCaller
    report: Callable[[WorkProgress], Awaitable[None]]


class Tools:
    """`wait` is how long a call waits for its job, in seconds, if it does not say."""

    def __init__(self, jobs: Jobs, reports: Reports, wait: float, cluster: Cluster | None = None) -> None:
        self._jobs, self._reports, self._wait, self._cluster = jobs, reports, wait, cluster

    async def score(self, arguments: ScoreArguments, call: Call) -> ToolReply:
        return await self._do("score", arguments, arguments.wait, call)

    async def compare(self, arguments: CompareArguments, call: Call) -> ToolReply:
        return await self._do("compare", arguments, arguments.wait, call)

    async def ladder(self, arguments: LadderArguments, call: Call) -> ToolReply:
        return await self._do("ladder", arguments, arguments.wait, call)

    async def submit_job(self, arguments: SubmitArguments, call: Call) -> ToolReply:
        if self._cluster is None:
            if arguments.priority is not None:
                raise ToolFailed("priority is for jobs of a cluster, and the server has none; leave it out")
            return await self._do("score", arguments, arguments.wait, call)
        view = cluster_job_view(await self._cluster.submit(arguments, call.caller))
        seconds = self._wait if arguments.wait is None else arguments.wait
        return await self._wait_for_cluster(view.id, seconds, call)

    async def get_job(self, arguments: GetJobArguments, call: Call) -> ToolReply:
        seconds = self._wait if arguments.wait is None else arguments.wait
        job = self._jobs.find(arguments.id, call.caller)
        if job is not None:
            job.told = True
            await self._wait_for(job, seconds, call)
            return _job_reply(job_view(job))
        return await self._wait_for_cluster(arguments.id, seconds, call)

    async def cancel_job(self, arguments: CancelJobArguments, call: Call) -> ToolReply:
        job = self._jobs.find(arguments.id, call.caller)
        if job is not None:
            await self._jobs.cancel(job)
            return _job_reply(job_view(job))
        return _job_reply(cluster_job_view(await self._known_cluster(arguments.id).cancel(arguments.id, call.caller)))

    async def list_jobs(self, arguments: ListJobsArguments, call: Call) -> ToolReply:
        views = []
        for job in self._jobs.of(call.caller):
            job.told = True
            views.append(job_view(job, whole=False))
        if self._cluster is not None:
            views += [cluster_job_view(row) for row in await self._cluster.jobs(call.caller)]
            views.sort(key=lambda view: view.created.timestamp() if view.created is not None else 0.0, reverse=True)
        chosen = [view for view in views if arguments.phase in {None, view.phase}]
        found = JobList(jobs=tuple(chosen[: arguments.limit]), total=len(chosen))
        return ToolReply(found, jobs_text(found))

    async def list_nodes(self, _arguments: ListNodesArguments, _call: Call) -> ToolReply:
        if self._cluster is not None:
            found = NodeList(cluster=True, namespace=self._cluster.namespace, nodes=tuple(await self._cluster.nodes()))
        else:
            found = NodeList(cluster=False, cores=usable_cores(), machine=tuple(await find_backends()))
        return ToolReply(found, nodes_text(found))

    async def explain_score(self, arguments: ExplainArguments, call: Call) -> ToolReply:
        job = await self._job_to_explain(arguments, call)
        view = job_view(job)
        if job.record.phase != "Succeeded":
            reply = _job_reply(view)
            return ToolReply(ExplainView(job=view), reply.text, reply.failed)
        explanation = await self._reports.in_turn(_explain, await self._reports.score(job, arguments.clip))
        found = ExplainView(job=view, explanation=explanation)
        return ToolReply(found, explain_text(found))

    async def _job_to_explain(self, arguments: ExplainArguments, call: Call) -> Job:
        if not arguments.job:
            if not arguments.reference or not arguments.distorted:
                raise ToolFailed("give the ID of a job, or a reference and a distorted clip")
            score = arguments.score_arguments()
            return await self._start("score", score, arguments.wait, call)
        if arguments.reference or arguments.distorted:
            raise ToolFailed("give the ID of a job, or a reference and a distorted clip, but not both")
        job = self._jobs.find(arguments.job, call.caller)
        if job is None:
            raise _unknown(arguments.job)
        if job.record.kind != "score":
            raise ToolFailed(f"job {job.id} is a {job.record.kind}; explain_score needs a job of score, or two clips")
        await self._wait_for(job, self._wait if arguments.wait is None else arguments.wait, call)
        return job

    async def _do(self, kind: Kind, work: Work, wait: float | None, call: Call) -> ToolReply:
        return _job_reply(job_view(await self._start(kind, work, wait, call)))

    async def _start(self, kind: Kind, work: Work, wait: float | None, call: Call) -> Job:
        """Start a job, and wait for its end.

        If the request is cancelled while it waits, so is the job, since no client has its ID. A server that stops
        cancels its requests, too, but continues their jobs after the next start.
        """
        check_work(work)
        job = await self._jobs.submit(kind, work, call.caller)
        try:
            await self._wait_for(job, self._wait if wait is None else wait, call)
        except asyncio.CancelledError:
            if not job.told and not self._jobs.stopping:
                self._jobs.cancel_soon(job)
            raise
        job.told = True
        return job

    async def _wait_for(self, job: Job, seconds: float, call: Call) -> None:
        """Wait for the end of a job, at most so long, and report its progress."""
        deadline, shown = loop_time() + seconds, -1.0
        while not job.record.is_finished and (left := deadline - loop_time()) > 0:
            if job.progress is not None and (share := round(job.progress.share, 4)) > shown:
                shown = share
                await call.report(job.progress)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(PROGRESS_SECONDS, left)):
                    await job.ended()

    async def _wait_for_cluster(self, name: str, seconds: float, call: Call) -> ToolReply:
        cluster, deadline = self._known_cluster(name), loop_time() + seconds
        while True:
            row = await cluster.job(name, call.caller)
            left = deadline - loop_time()
            if row.phase in {"Succeeded", "Failed", "Cancelled"} or left <= 0:
                return _job_reply(cluster_job_view(row))
            await asyncio.sleep(min(CLUSTER_POLL, left))

    def _known_cluster(self, job_id: str) -> Cluster:
        if self._cluster is None:
            raise _unknown(job_id)
        return self._cluster


def _unknown(job_id: str) -> ToolFailed:
    return ToolFailed(f"you have no job {job_id[:100]!r}, or it is not kept any more; list_jobs lists your jobs")


def _job_reply(view: McpJobView) -> ToolReply:
    return ToolReply(view, job_text(view), failed=view.phase == "Failed")


def _explain(report: Report) -> Explanation:
    return explain(report, known_model(report.result.model, Path(ffmpeg_path())))
