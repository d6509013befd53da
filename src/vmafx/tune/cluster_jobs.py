"""ClusterJobs: VmafxJobs with names of our own, created or found again, and followed to their end."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from vmafx.api.job import VmafxJob
from vmafx.backoff import Backoff, Retries
from vmafx.fleet.errors import FleetError, JobRejected, NameTaken, NoSuchJob, NoSuchNamespace, explain_errors
from vmafx.fleet.reader import FleetJob
from vmafx.fleet.rows import job_row
from vmafx.fleet.submit import create_job
from vmafx.fleet.watch import follow_job
from vmafx.kube import JOBS, Client, ObjectKey
from vmafx.kube.errors import Conflict, KubeError, NotFound, ServerError, TooManyRequests, Unreachable, Untrusted
from vmafx.kube.resources import UntypedObject
from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.text import one_line
from vmafx.tune.upload import UploadFolder

KEY_ANNOTATION = "vmafx.dev/tune-key"  # of a job: the digest of all that it scores and where
DELETION_POLL = 0.5  # seconds
RETRY = Backoff(1.0, 30.0)


class JobState(msgspec.Struct, frozen=True):
    """What a job is doing, and why it waits. `frames` are those that are scored, as far as is known."""

    name: str  # waiting or running
    detail: str = ""
    frames: int = 0


OnState = Callable[[JobState], None]


class ClusterJobs:
    """Runs jobs. Its errors are ScoringErrors."""

    def __init__(self, client: Client, folder: UploadFolder, timeout: float) -> None:
        self._client, self._folder, self._timeout = client, folder, timeout

    async def check(self, job: UntypedObject) -> None:
        """Raises ScoringError if the API server would not accept this job, or jobs cannot be read."""
        with _scoring_errors():
            await create_job(self._client, job, rename=False, dry_run=True)
            with suppress(NotFound), explain_errors():
                await self._client.get(JOBS, _key_of(job))

    async def run(self, job: UntypedObject, on_state: OnState) -> None:
        """Returns once the job has succeeded. Goes on while the API server is down. Raises NodeFault."""
        last = JobState("waiting")

        def show(state: JobState) -> None:
            nonlocal last
            last = state
            on_state(state)

        try:
            with _scoring_errors():
                async with asyncio.timeout(self._timeout) as limit:
                    await self._run(job, show)
        except TimeoutError:
            if not limit.expired():
                raise
            key, detail = _key_of(job), f" ({last.detail})" if last.detail else ""
            raise NodeFault(
                f"job {key.name} has not ended within {self._timeout:.10g} s and is {last.name}{detail}; it goes on: "
                f"run the command again to wait for it, or delete it: kubectl delete vmjob {key.name} "
                f"-n {key.namespace}"
            ) from None

    async def _run(self, job: UntypedObject, on_state: OnState) -> None:
        retries = Retries(RETRY)
        while True:
            try:
                return await self._submit_and_follow(job, on_state)
            except (Unreachable, ServerError, TooManyRequests) as error:
                if isinstance(error, Untrusted):
                    raise
                on_state(JobState("waiting", f"the API server does not answer: {one_line(str(error))}"))
                await asyncio.sleep(retries.next())

    async def _submit_and_follow(self, job: UntypedObject, on_state: OnState) -> None:
        key = _key_of(job)
        if (found := await self._create_or_adopt(job)) is None:
            return
        on_state(JobState("running" if found.status.phase == "Running" else "waiting"))
        with explain_errors():
            async for state in follow_job(self._client, key, found.metadata.resourceVersion):
                on_state(_state_of(state))
        if state.status.phase == "Failed":
            row = job_row(state)
            raise NodeFault(f"job {key.name} failed: {row.reason}: {one_line(row.message or '')}")

    async def _create_or_adopt(self, job: UntypedObject) -> VmafxJob | None:
        """A new job, or that of an earlier run; None if that has succeeded.

        One that has failed, or whose report is gone, is replaced.
        """
        key, report = _key_of(job), job["spec"]["output"].rpartition("/")[2]
        while True:
            with suppress(NameTaken):
                return msgspec.convert(await create_job(self._client, job, rename=False), VmafxJob)
            with suppress(NotFound, Conflict), explain_errors():  # it may be deleted or replaced meanwhile
                found = await self._client.get(JOBS, key)
                check_ours(found, job)
                if found.metadata.deletionTimestamp is not None:
                    await asyncio.sleep(DELETION_POLL)
                elif found.status.phase in {"Pending", "Running"} and not found.spec.cancel:
                    return found
                elif found.status.phase == "Succeeded" and await self._folder.has(report):
                    return None
                else:
                    await self._client.delete(JOBS, key, uid=found.metadata.uid)


def check_ours(found: VmafxJob, job: UntypedObject) -> None:
    """Raises NodeFault if a job with the name of `job` scores something else."""
    spec, key = job["spec"], job["metadata"]["annotations"][KEY_ANNOTATION]
    ours = key, spec["distorted"], spec["output"]
    if (found.metadata.annotations.get(KEY_ANNOTATION), found.spec.distorted, found.spec.output) != ours:
        raise NodeFault(
            f"there is a job {found.metadata.name} in namespace {found.metadata.namespace} that scores something else; "
            "delete it, or use another namespace (-n)"
        )


def _state_of(job: FleetJob) -> JobState:
    row, frames = job_row(job), job.status.progress.frames if job.status.progress is not None else 0
    if row.phase == "Pending":
        return JobState("waiting", f"{row.reason}: {one_line(row.message or '')}" if row.reason else "")
    return JobState("running", frames=frames)


def _key_of(job: UntypedObject) -> ObjectKey:
    return ObjectKey(job["metadata"]["namespace"], job["metadata"]["name"])


@contextmanager
def _scoring_errors() -> Iterator[None]:
    """Raises errors of the cluster as ScoringErrors."""
    try:
        yield
    except (JobRejected, NoSuchNamespace) as error:
        raise BadInput("options", str(error)) from error
    except NoSuchJob as error:
        raise NodeFault(f"{one_line(str(error))}; run the command again to submit it again") from error
    except FleetError as error:
        raise NodeFault(one_line(str(error))) from error
    except KubeError as error:
        raise NodeFault(f"the cluster cannot be used: {one_line(str(error))}") from error
