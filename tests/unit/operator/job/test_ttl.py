"""Jobs with a time to live: what is remembered of them."""

from datetime import UTC, datetime
from typing import Any

from vmafx.api.job import JobSpecView, JobStatusView, JobView
from vmafx.api.meta import MetaView
from vmafx.kube import ObjectKey
from vmafx.operator.job.ttl import SLACK, FinishedJobCleaner
from vmafx.runtime.store import ObjectChange

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def over(number: int, version: int, ttl: int) -> JobView:
    meta = MetaView(f"job-{number}", "ns", f"uid-{number}", str(version))
    status = JobStatusView(phase="Succeeded", finishedAt=NOW)
    return JobView(meta, JobSpecView("s3://b/r", "s3://b/d", ttlSecondsAfterFinished=ttl), status)


def test_jobs_that_went_or_changed_before_their_time_leave_nothing_behind() -> None:
    nobody: Any = None
    finished = FinishedJobCleaner(nobody, "ns", lambda: NOW)
    finished._leading = True
    finished.job_changed(
        ObjectChange(ObjectKey("ns", "job-0"), None, first := over(0, 1, ttl=60))
    )  # due before all others
    for number in range(1, 5 * SLACK):
        key, job = ObjectKey("ns", f"job-{number}"), over(number, 1, ttl=3600)
        finished.job_changed(ObjectChange(key, None, job))
        finished.job_changed(ObjectChange(key, job, None))
        finished.job_changed(ObjectChange(ObjectKey("ns", "last"), None, over(number, number, ttl=7200)))
    assert len(finished._known) == 2
    assert len(finished._line) <= 2 * len(finished._known) + SLACK + 1
    assert finished._line[0].uid == first.metadata.uid
