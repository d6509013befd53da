"""What becomes of jobs, in numbers: counted by whoever writes it, all there from the start at zero."""

from datetime import datetime
from typing import get_args

from vmafx.api.job import JobView
from vmafx.jobs.outcome import Fail, FailureReason, Outcome, Retry, Succeed, Suspend
from vmafx.jobs.state import scheduled_condition
from vmafx.meters import Counters, Histograms
from vmafx.runtime.metrics import Metrics

DURATION_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400)


class JobMetrics:
    """Counts what becomes of jobs. Who writes the end of an attempt counts it."""

    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self._waited = Histograms(
            "vmafx_job_queue_wait_seconds",
            "From a job's creation to its first placement.",
            [],
            registry,
            DURATION_BUCKETS,
        ).labels()
        self._ran = Histograms(
            "vmafx_job_run_seconds", "From its last placement to its score.", [], registry, DURATION_BUCKETS
        ).labels()
        self._frames = Counters("vmafx_frames_scored", "Frames of jobs that succeeded.", [], registry).labels()
        attempts = Counters("vmafx_job_attempts", "Attempts that ended, by how.", ["outcome"], registry)
        self._attempts = {
            outcome: attempts.labels(outcome)
            for outcome in ("succeeded", "failed", "refused", "disrupted", "suspended", "stopped")
        }
        ended = Counters("vmafx_jobs_finished", "Jobs that ended, by why.", ["phase", "reason"], registry)
        self._succeeded = ended.labels("Succeeded", "Scored")
        self._failed = {reason: ended.labels("Failed", reason) for reason in get_args(FailureReason)}

    def record_placement(self, job: JobView, now: datetime) -> None:
        if job.status.attempts == 0 and job.metadata.creationTimestamp is not None:
            self._waited.observe(max(0.0, (now - job.metadata.creationTimestamp).total_seconds()))

    def record_outcome(self, job: JobView, step: Outcome, now: datetime) -> None:
        """An attempt is over, or a job that had none."""
        match step:
            case Succeed(answer):
                self._succeeded.inc()
                self._attempts["succeeded"].inc()
                self._frames.inc(answer.frames or 0)
                self._ran.observe(max(0.0, (now - _placed_at(job, now)).total_seconds()))
            case Fail(reason):
                self._failed[reason].inc()
                if job.status.phase == "Running":
                    outcomes = {"BadInput": "refused", "RetriesExhausted": "failed"}
                    self._attempts[outcomes.get(reason, "stopped")].inc()
            case Retry():
                self._attempts["failed" if step.failed else "disrupted"].inc()
            case Suspend() if job.status.phase == "Running":
                self._attempts["suspended"].inc()


def _placed_at(job: JobView, now: datetime) -> datetime:
    """When the current attempt was placed: the Scheduled condition turned then."""
    said = scheduled_condition(job)
    return said.lastTransitionTime if said is not None else now
