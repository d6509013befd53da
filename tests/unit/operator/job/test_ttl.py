"""Scheduled deletions of finished jobs."""

from datetime import UTC, datetime
from typing import Any

from vmafx.api.job import JobSpecView, JobStatusView, JobView
from vmafx.api.meta import MetaView
from vmafx.kube import ObjectKey
from vmafx.operator.job.ttl import MAX_STALE_ENTRIES, FinishedJobCleaner
from vmafx.runtime.store import ObjectChange

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def finished_job(number: int, version: int, ttl: int) -> JobView:
    meta = MetaView(f"job-{number}", "ns", f"uid-{number}", str(version))
    status = JobStatusView(phase="Succeeded", finishedAt=NOW)
    return JobView(meta, JobSpecView("s3://b/r", "s3://b/d", ttlSecondsAfterFinished=ttl), status)


def test_the_heap_drops_entries_of_deleted_and_changed_jobs() -> None:
    not_used: Any = None
    cleaner = FinishedJobCleaner(not_used, not_used, lambda: NOW)
    cleaner._leading = True
    cleaner.job_changed(ObjectChange(ObjectKey("ns", "job-0"), None, first := finished_job(0, 1, ttl=60)))  # due first
    for number in range(1, 5 * MAX_STALE_ENTRIES):
        key, job = ObjectKey("ns", f"job-{number}"), finished_job(number, 1, ttl=3600)
        cleaner.job_changed(ObjectChange(key, None, job))
        cleaner.job_changed(ObjectChange(key, job, None))
        cleaner.job_changed(ObjectChange(ObjectKey("ns", "last"), None, finished_job(number, number, ttl=7200)))
    assert len(cleaner._scheduled) == 2
    assert len(cleaner._heap) <= 2 * len(cleaner._scheduled) + MAX_STALE_ENTRIES + 1
    assert cleaner._heap[0].uid == first.metadata.uid
