"""Metrics of placements and outcomes, counted by the role that writes the status; present from the start at zero."""

from datetime import datetime
from typing import get_args

from vmafx.api.job import JobView
from vmafx.jobs.outcome import Fail, FailureReason, Outcome, Retry, Succeed, Suspend
from vmafx.jobs.state import placed_at
from vmafx.meters import Counters, Histograms
from vmafx.runtime.metrics import Metrics

DURATION_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400)


class JobMetrics:
    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self._queue_wait = Histograms(
            "vmafx_job_queue_wait_seconds",
            "Time from the creation of a job to its first placement.",
            [],
            registry,
            DURATION_BUCKETS,
        ).labels()
        self._run_time = Histograms(
            "vmafx_job_run_seconds",
            "Time from the last placement of a job to its score.",
            [],
            registry,
            DURATION_BUCKETS,
        ).labels()
        self._frames = Counters("vmafx_frames_scored", "Frames scored in jobs that succeeded.", [], registry).labels()
        attempts = Counters("vmafx_job_attempts", "Attempts that ended, by outcome.", ["outcome"], registry)
        self._attempts = {
            outcome: attempts.labels(outcome)
            for outcome in ("succeeded", "failed", "refused", "disrupted", "suspended", "stopped")
        }
        finished = Counters("vmafx_jobs_finished", "Finished jobs, by phase and reason.", ["phase", "reason"], registry)
        self._succeeded = finished.labels("Succeeded", "Scored")
        self._failed = {reason: finished.labels("Failed", reason) for reason in get_args(FailureReason)}

    def record_placement(self, job: JobView, now: datetime) -> None:
        if job.status.attempts == 0 and job.metadata.creationTimestamp is not None:
            self._queue_wait.observe(max(0.0, (now - job.metadata.creationTimestamp).total_seconds()))

    def record_outcome(self, job: JobView, outcome: Outcome, now: datetime) -> None:
        """Count the end of an attempt, or of a job without one."""
        match outcome:
            case Succeed(result):
                self._succeeded.inc()
                self._attempts["succeeded"].inc()
                self._frames.inc(result.frames or 0)
                self._run_time.observe(max(0.0, (now - (placed_at(job) or now)).total_seconds()))
            case Fail(reason):
                self._failed[reason].inc()
                if job.status.phase == "Running":
                    labels = {"BadInput": "refused", "RetriesExhausted": "failed"}
                    self._attempts[labels.get(reason, "stopped")].inc()
            case Retry():
                self._attempts["failed" if outcome.failed else "disrupted"].inc()
            case Suspend() if job.status.phase == "Running":
                self._attempts["suspended"].inc()
