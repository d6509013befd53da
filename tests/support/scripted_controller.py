"""A controller servicer with replies set by the test; it records all calls."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, NamedTuple

from vmafx.auth.credentials import CallerCredentials
from vmafx.wire import controller_pb2 as wire

ANSWERS: dict[str, Any] = {
    "SubmitJob": wire.SubmitJobResponse(job_id="u-1", namespace="video", name="vj-1"),
    "GetJob": wire.Job(id="u-1", created_at=1_700_000_000, features={"vmaf": 93.5}, progress=wire.Progress(frames=7)),
    "CancelJob": wire.CancelJobResponse(ok=False, message="it is over"),
    "ListJobs": wire.ListJobsResponse(jobs=[wire.Job(id="one", created_at=1_700_000_000)], continue_token="next"),
    "RegisterNode": wire.RegisterNodeResponse(node_id="video/gpu-1", session_token="s"),
    "Heartbeat": wire.HeartbeatResponse(ok=True, stop_job_ids=["u-1-0"]),
    "PullWork": wire.PullWorkResponse(job=wire.Job(id="u-1-0", status=wire.RUNNING)),
    "ReportResult": wire.ReportResultResponse(ok=True),
    "PushSamples": wire.PushSamplesResponse(result=wire.PushSamplesResponse.RETRY, message="later"),
}


class Call(NamedTuple):
    call: str
    request: Any
    presented: CallerCredentials


class ScriptedController:
    """`answers` by method: a message, an error to raise, or an async function. `jobs` generates the jobs of streams."""

    def __init__(self) -> None:
        self.received: list[Call] = []
        self.answers = dict(ANSWERS)
        self.jobs: Callable[[], AsyncGenerator[wire.Job]] = _two_jobs
        self.closed = 0  # streams that have ended, for any reason

    def __getattr__(self, call: str) -> Callable[[Any, CallerCredentials], Awaitable[Any]]:
        if call not in ANSWERS:
            raise AttributeError(call)

        async def answer(request: Any, presented: CallerCredentials) -> Any:
            self.received.append(Call(call, request, presented))
            reply = self.answers[call]
            if isinstance(reply, Exception):
                raise reply
            return await reply() if callable(reply) else reply

        return answer

    async def StreamJobs(  # noqa: N802
        self, request: wire.StreamJobsRequest, presented: CallerCredentials
    ) -> AsyncGenerator[wire.Job]:
        self.received.append(Call("StreamJobs", request, presented))
        try:
            async for job in self.jobs():
                yield job
        finally:
            self.closed += 1


async def _two_jobs() -> AsyncGenerator[wire.Job]:
    yield wire.Job(id="one")
    yield wire.Job(id="two", status=wire.COMPLETED, final_score=93.25)
