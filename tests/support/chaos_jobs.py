"""Creates the jobs of a plan, edits them as users do, injects the planned faults meanwhile, and checks the history.

The plan is in chaos_plan.py. A subclass says where jobs run: on processes of this machine (chaos.py), or on a real
cluster (tests/e2e/chaos_cluster.py).
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from tests.support.chaos_plan import Fault, Plan, PlannedJob, job_errors
from tests.support.invariants import violations
from tests.support.job_history import Change, written_at
from tests.support.machines import AgentLogEntry
from tests.support.waiting import PATIENCE, eventually
from vmafx.api.job import FINISHED, VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.kube import JOBS, Client, ObjectKey
from vmafx.kube.errors import AlreadyExists, ApiError, KubeError, NotFound

Scores = Mapping[tuple[str, str], float]  # by `vmafx score`, of reference and distorted clip


class JobFleet(Protocol):
    """Something that runs jobs: Pods, agents or both."""

    async def inject(self, fault: Fault) -> None:
        """Inject a fault, if it is one of this fleet."""
        ...

    async def kill_work(self, job: VmafxJob) -> None:
        """Delete the Pod of a job, or kill its agent or worker."""
        ...

    async def is_stopped(self, job: VmafxJob) -> bool:
        """Whether nothing runs for this job."""
        ...

    async def is_idle(self) -> bool:
        """Whether nothing runs, or is left, for finished and deleted jobs."""
        ...

    def log_entries(self) -> list[AgentLogEntry]: ...


class ChaosJobs(ABC):
    """The jobs of a plan, at most `at_once` of them unfinished; `log` prints the progress."""

    _client: Client
    patience = PATIENCE  # seconds for one step, as for `eventually`

    def __init__(
        self, plan: Plan, fleets: Sequence[JobFleet], namespace: str, log: Callable[[str], None], at_once: int
    ) -> None:
        self._plan, self._fleets, self._namespace = plan, fleets, namespace
        self._log, self._at_once = log, at_once
        self.done: Counter[str] = Counter()  # jobs by their last phase, or Deleted
        self.changes = 0  # of jobs, Pods and nodes
        self._errors: list[str] = []
        self._faults, self._injecting = 0, False

    @abstractmethod
    def _spec(self, job: PlannedJob) -> VmafxJobSpec: ...

    async def _execute(self) -> None:
        """Create the jobs a few at a time, edit them, inject the planned faults, and wait until nothing is left."""
        slots = asyncio.Semaphore(self._at_once)
        injecting: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as group:
            for number, job in enumerate(self._plan.jobs):
                await slots.acquire()
                if fault := self._plan.faults.get(number):
                    if injecting is not None:
                        await injecting  # one fault at a time
                    self._log(f"{number} jobs created, {self.done.total()} finished: {fault}")
                    injecting = group.create_task(self._record_and_inject(fault))
                group.create_task(self._run_job(job, slots))
        await eventually(self._is_idle, "nothing runs or is left for finished jobs", self.patience)

    async def _run_job(self, job: PlannedJob, slots: asyncio.Semaphore) -> None:
        key = ObjectKey(self._namespace, job.name)
        try:
            await self._create(job)
            await self._edit(job, key)
            self.done[await self._until(key, *(("Deleted",) if job.kind == "mortal" else FINISHED))] += 1
        finally:
            slots.release()

    async def _create(self, job: PlannedJob) -> None:
        made = VmafxJob(metadata=ObjectMeta(name=job.name), spec=self._spec(job))
        await persist(lambda: self._client.create(JOBS, made, self._namespace))

    async def _until(self, key: ObjectKey, *phases: str) -> str:
        """Wait for one of these phases, or for Deleted if that is one of them; return it."""
        while True:
            found = await persist(lambda: self._client.get(JOBS, key), ignore_missing="Deleted" in phases)
            phase: str = "Deleted" if found is None else found.status.phase
            if phase in phases:
                return phase
            await asyncio.sleep(0.3)

    async def _edit(self, job: PlannedJob, key: ObjectKey) -> None:
        """Edit a job as a user might, while it waits, runs or is finished."""
        first, second, third = job.moments

        async def edit(**spec: object) -> None:
            await persist(lambda: self._client.merge_patch(JOBS, key, {"spec": spec}))

        match job.kind:
            case "cancelled":
                await asyncio.sleep(first)
                await edit(cancel=True)
            case "suspended":
                for moment, suspended in ((first, True), (second, False)):
                    await asyncio.sleep(moment)
                    await edit(suspend=suspended)
            case "promoted":
                for priority, moment in enumerate((first, second, third), 1):
                    await asyncio.sleep(moment)
                    await edit(priority=priority)
            case "replaced":
                await asyncio.sleep(first)
                await persist(lambda: self._client.delete(JOBS, key), ignore_missing=True)
                await self._create(job)
            case "stopped" | "paused":
                await self._interrupt(job, key, edit)
            case "robbed":
                await self._kill_work(key)

    async def _kill_work(self, key: ObjectKey) -> None:
        await self._until(key, "Running", *FINISHED)
        found = await persist(lambda: self._client.get(JOBS, key))
        for fleet in self._fleets:
            await fleet.kill_work(found)

    async def _interrupt(self, job: PlannedJob, key: ObjectKey, edit: Callable[..., Awaitable[None]]) -> None:
        """Cancel a running job; or suspend it, wait until its work stops, and resume it."""
        undisturbed, faults = not self._injecting, self._faults
        await self._until(key, "Running", *FINISHED)
        if job.kind == "stopped":
            await edit(cancel=True)
            return
        await edit(suspend=True)
        if await self._until(key, "Pending", *FINISHED) == "Pending":
            stops = f"the work of the suspended job {key.name} stops"
            await eventually(lambda: self._is_stopped(key), stops, self.patience)
            await edit(suspend=False)
        elif undisturbed and faults == self._faults:  # else the operator may have been down until the clip was scored
            self._errors.append(f"{key.name} was suspended while it ran, but finished")

    async def _is_stopped(self, key: ObjectKey) -> bool:
        found = await persist(lambda: self._client.get(JOBS, key))
        return all([await fleet.is_stopped(found) for fleet in self._fleets])

    async def _is_idle(self) -> bool:
        return all([await fleet.is_idle() for fleet in self._fleets])

    async def _record_and_inject(self, fault: Fault) -> None:
        self._faults, self._injecting = self._faults + 1, True
        await self._inject(fault)
        self._injecting = False

    async def _inject(self, fault: Fault) -> None:
        for fleet in self._fleets:
            await fleet.inject(fault)

    def _check(self, changes: list[Change], scores: Scores) -> None:
        """Raise AssertionError with all errors, of the ends of jobs and of their history, and that history."""
        self.changes = len(changes)
        last = {change.name: change for change in changes if change.kind == "job"}
        for job in self._plan.jobs:
            _, _, _, old, new = last.get(job.name, (0, "job", job.name, None, None))
            self._errors += job_errors(job, new or old, scores.get(job.pair), deleted=new is None)
        self._errors += violations(changes, [one for fleet in self._fleets for one in fleet.log_entries()])
        assert not self._errors, "\n".join([*self._errors, *self._history_of_errors(changes)])

    def _history_of_errors(self, changes: list[Change]) -> Iterator[str]:
        """The changes of all jobs that the errors name, and of their Pods."""
        named = [job.name for job in self._plan.jobs if any(job.name in error for error in self._errors)]
        for change in changes:
            if change.name.startswith(tuple(named)):
                status = (change.new or {}).get("status", "deleted")
                yield f"revision {change.revision} at {written_at(change.new)}: {change.kind} {change.name}: {status}"


async def persist(call: Callable[[], Awaitable[Any]], *, ignore_missing: bool = False) -> Any:
    """Retry until the API server answers. A creation whose reply was lost is found to exist."""
    tried = False
    while True:
        try:
            return await call()
        except NotFound:
            if ignore_missing:
                return None
            raise
        except AlreadyExists:
            if tried:
                return None
            raise
        except (KubeError, ApiError):
            tried = True
            await asyncio.sleep(0.3)
