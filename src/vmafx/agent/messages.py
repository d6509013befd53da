"""What is said on the wire, and what was heard there in our terms. Pure."""

import msgspec

from vmafx.agent.spool import Finished
from vmafx.jobs.work import Work
from vmafx.jobs.worker_process import Task
from vmafx.scoring.result import Progress
from vmafx.wire import controller_pb2 as wire


def task_of(job: wire.Job, backend: str) -> Task:
    """An old controller hands out clips and a model, and no whole work."""
    said, work = job.scoring, job.work
    if not work:
        whole = Work(said.reference, said.distorted, id=job.id)
        if said.model:
            whole = msgspec.structs.replace(whole, model=said.model)
        work = msgspec.json.encode(whole).decode()
    return Task(job.id, work, said.backend or backend)


def result(done: Finished) -> wire.ReportResultRequest:
    """The whole answer, and the parts of it that an old controller knows."""
    answer = done.answer
    return wire.ReportResultRequest(
        job_id=done.id,
        final=True,
        score=answer.score or 0.0,
        features={name: one.mean for name, one in answer.metrics.items() if one.mean is not None},
        error=f"{answer.fault}: {answer.message}" if answer.fault else "",
        answer=msgspec.json.encode(answer).decode(),
        name=done.name,
    )


def progress(attempt: str, name: str, heard: Progress | None) -> wire.ReportResultRequest:
    """Before the first frame, that it has begun is all there is to say."""
    said = wire.Progress()
    if heard is not None and heard.stage == "scoring":
        said = wire.Progress(frames=heard.done, total_frames=heard.total or 0, fps=heard.fps)
    return wire.ReportResultRequest(job_id=attempt, name=name, progress=said)
