"""Reports of jobs as resources: vmafx://jobs/ID/report.html and others."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from vmafx.auth.callers import ServedCaller
from vmafx.mcp.job import Job, WorkOutcome
from vmafx.mcp.jobs import Jobs
from vmafx.mcp.views import REPORTS, ladder_without_files, report_uri, without_files
from vmafx.scoring.cache import ResultCache
from vmafx.scoring.result import Report
from vmafx.tasks import in_thread
from vmafx.tune.outputs import as_csv, as_json, ladder_csv
from vmafx.tune.results import LadderResult

TYPES = {
    "html": "text/html", "json": "application/json", "csv": "text/csv", "svg": "image/svg+xml", "png": "image/png",
    "m3u8": "application/vnd.apple.mpegurl",
}  # fmt: skip
MAX_BYTES = 32 << 20  # of a report
MAX_LISTED = 100  # jobs whose reports are listed
MAX_AT_ONCE = 2  # reports that are made at the same time: records of jobs are written by the same threads
_URI = re.compile(r"vmafx://jobs/(?P<job>[a-z0-9-]{1,100})/(?P<name>report\.(?P<kind>html|json|csv|svg|png|m3u8))")


T = TypeVar("T")


class NoReport(Exception):
    """There is no such report; the message says why."""


class JobReport(NamedTuple):
    uri: str
    title: str
    mime_type: str


class Reports:
    """The reports of the jobs of a caller."""

    def __init__(self, jobs: Jobs, cache: ResultCache) -> None:
        self._jobs, self._cache = jobs, cache
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)

    def listed(self, caller: ServedCaller) -> list[JobReport]:
        """Those of the newest jobs."""
        finished = [job for job in self._jobs.of(caller) if job.record.phase == "Succeeded"][:MAX_LISTED]
        return [
            JobReport(report_uri(job.id, name), f"{name} of {job.id}", TYPES[name.rpartition(".")[2]])
            for job in finished
            for name in REPORTS[job.record.kind]
        ]

    async def read(self, uri: str, caller: ServedCaller) -> tuple[str, bytes]:
        """The MIME type and the content. Raises NoReport."""
        match = _URI.fullmatch(uri)
        job = self._jobs.find(match["job"], caller) if match is not None else None
        if match is None or job is None:
            raise NoReport("there is no such report; list_jobs lists your jobs, and get_job the URIs of their reports")
        if job.record.phase != "Succeeded":
            raise NoReport(f"job {job.id} is {job.record.phase.lower()}, and has no reports")
        if match["name"] not in REPORTS[job.record.kind]:
            raise NoReport(f"a job of {job.record.kind} has {', '.join(REPORTS[job.record.kind])}")
        content = await self.in_turn(self._render, job, match["kind"])
        if len(content) > MAX_BYTES:
            raise NoReport(f"the report has {len(content):,} bytes, more than {MAX_BYTES:,}; read another format")
        return TYPES[match["kind"]], content

    async def score(self, job: Job, number: int) -> Report:
        """The values of all frames of one clip of a job. Raises NoReport."""
        outcome = (job.record.outcome or WorkOutcome()).score
        if outcome is None or number >= len(outcome.clips):
            raise NoReport(f"job {job.id} has no clip {number}; the first one is 0")
        clip = outcome.clips[number]
        if not clip.key:
            raise NoReport(f"{clip.distorted} has no score: {clip.error}")
        return await in_thread(self._kept, clip.key)

    async def in_turn(self, work: Callable[..., T], *arguments: object) -> T:
        """Do in a thread what takes much CPU time, when it is its turn."""
        async with self._turns:
            return await in_thread(work, *arguments)

    def _kept(self, key: str) -> Report:
        report = self._cache.get(key)
        if report is None:
            raise NoReport("the values of its frames are not kept any more; score the clips again")
        return report

    def _render(self, job: Job, kind: str) -> bytes:
        outcome = job.record.outcome or WorkOutcome()
        if outcome.compare is not None:
            from vmafx.tune.page import comparison_page  # noqa: PLC0415 - imports matplotlib, which takes time

            return {"html": comparison_page, "json": as_json, "csv": as_csv}[kind](without_files(outcome.compare))
        if outcome.ladder is not None:
            return _ladder_report(outcome.ladder, kind)
        from vmafx.reports import chart_file, csv_report, html, json_report  # noqa: PLC0415

        clips = outcome.score.clips if outcome.score is not None else ()
        reports = [self._kept(clip.key) for clip in clips if clip.key]
        match kind:
            case "html":
                return html(reports, {}).encode()
            case "json":
                return b"".join(json_report(reports))
            case "csv":
                return b"".join(csv_report(reports))
        return chart_file(reports, "vmaf", "svg" if kind == "svg" else "png")


def _ladder_report(ladder: LadderResult, kind: str) -> bytes:
    from vmafx.tune.page import ladder_as_page  # noqa: PLC0415

    if kind == "m3u8":
        return _playlist(ladder)
    return {"html": ladder_as_page, "json": as_json, "csv": ladder_csv}[kind](ladder_without_files(ladder))


def _playlist(ladder: LadderResult) -> bytes:
    """Raises NoReport if an encode is not kept any more, since the playlist has facts that only the encode has."""
    from vmafx.tune.hls import playlist  # noqa: PLC0415 - loads FFmpeg's libraries

    if missing := [rung for rung in ladder.rungs if not Path(rung.encode.file).exists()]:
        raise NoReport(f"{len(missing)} of the encodes are not kept any more; make the ladder again")
    return playlist(ladder)
