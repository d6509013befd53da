"""What people are told of an attempt that is over, as events."""

from typing import Literal

from vmafx.api.job import JobView
from vmafx.api.meta import API_VERSION
from vmafx.jobs.outcomes import Fail, Leaving, Succeed, Suspend, TryAgain
from vmafx.kube import JOBS
from vmafx.runtime.events import EventRecorder, Regarding


def tell_end(events: EventRecorder, job: JobView, step: Leaving) -> None:
    match step:
        case Succeed(answer):
            frames = f", {answer.frames} frames" if answer.frames else ""
            tell(events, job, "Normal", "Scored", f"VMAF {answer.score:.3f}{frames}")
        case Fail(reason, message):
            tell(events, job, "Warning", reason, message)
        case TryAgain(message):
            tell(events, job, "Warning" if step.failed else "Normal", "Retrying", message)
        case Suspend():
            tell(events, job, "Normal", "Suspended", "stopped, since spec.suspend is true")


def tell(events: EventRecorder, job: JobView, kind: Literal["Normal", "Warning"], reason: str, note: str) -> None:
    meta = job.metadata
    events.emit(Regarding(API_VERSION, JOBS.kind, meta.namespace, meta.name, meta.uid), kind, reason, "Run", note)
