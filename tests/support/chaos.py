"""Runs many jobs under injected faults, as planned in chaos_plan.py, and checks the invariants of the whole history.

The plan lists the jobs, the edits of each job and their times, the fate of each attempt, and the faults of the cluster
by number of created jobs. Jobs run on fleets: Pods (chaos_pods.py), agents (chaos_agents.py) or both.
"""

import asyncio
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from tests.support import job_history
from tests.support.chaos_plan import ENDLESS, LONG, SHORT, Fault, Plan, PlannedJob, job_errors
from tests.support.faults import kill, start
from tests.support.fleet import make_clips
from tests.support.invariants import violations
from tests.support.kubelet import VMAFX, Fate
from tests.support.machines import AgentLogEntry
from tests.support.operator_process import Operator, operator
from tests.support.video import ffmpeg
from tests.support.waiting import eventually
from vmafx.api.job import FINISHED, VmafxJob
from vmafx.api.meta import ObjectMeta
from vmafx.devcluster import DevCluster, crds
from vmafx.devcluster.components import APISERVER, ETCD
from vmafx.kube import JOBS, NODES, Client, ObjectKey, load_config
from vmafx.kube.errors import AlreadyExists, ApiError, KubeError, NotFound

NAMESPACE = "default"
LEADER = ("--leader-elect", "--leader-election-namespace", NAMESPACE)
NODE_OUTAGE = 12.0  # seconds that a node is deleted or cordoned: longer than a cache may lag


class ChaosContext(NamedTuple):
    """What fleets need to run jobs."""

    cluster: DevCluster
    client: Client
    folder: Path
    fate: Callable[[str], Fate | None]  # of an attempt, by name of the job and number


class Fleet(Protocol):
    """Something that runs jobs: Pods or agents."""

    def on(self, context: ChaosContext) -> Self: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    @property
    def controller(self) -> str:
        """The controller address for the operator's health probe; empty if this fleet has none."""
        ...

    async def inject(self, fault: Fault) -> None:
        """Inject a fault, if it is one of this fleet."""
        ...

    async def kill_work(self, job: VmafxJob) -> None:
        """Delete the Pod or kill the worker of a job."""
        ...

    async def is_stopped(self, job: VmafxJob) -> bool:
        """Whether nothing runs for this job."""
        ...

    async def is_idle(self) -> bool:
        """Whether nothing runs, or is left, for finished and deleted jobs."""
        ...

    def log_entries(self) -> list[AgentLogEntry]: ...


class Chaos:
    """One run with at most `at_once` unfinished jobs; `log` prints its progress."""

    def __init__(
        self,
        cluster: DevCluster,
        folder: Path,
        plan: Plan,
        *fleets: Fleet,
        replicas: int,
        log: Callable[[str], None],
        at_once: int = 24,
    ) -> None:
        self._cluster, self._folder, self._plan, self._log = cluster, folder, plan, log
        self._fleets = fleets
        self._replicas, self._at_once = replicas, at_once
        self._operators: list[tuple[Operator, ExitStack]] = []
        self._flags = LEADER if replicas > 1 else ()
        self._fates: dict[str, Fate] = {
            f"{job.name}-{attempt}": fate for job in plan.jobs for attempt, fate in enumerate(job.fates)
        }
        self.done: Counter[str] = Counter()
        self._errors: list[str] = []
        self._faults, self._injecting = 0, False

    async def run(self, within: float) -> None:
        """Run the plan within `within` seconds; raise AssertionError with all errors."""
        command = await asyncio.to_thread(kill, self._cluster, APISERVER)
        await asyncio.to_thread(start, self._cluster, APISERVER, [*command, *job_history.KEEP_ALL])
        clips = await asyncio.to_thread(make_clips, self._folder)
        await asyncio.to_thread(make_endless, clips)
        scores = asyncio.create_task(_scores(clips))
        async with Client(load_config(self._cluster.kubeconfig)) as client, AsyncExitStack() as cleanup:
            self._client = client
            await crds.install_crds(client)
            context = ChaosContext(self._cluster, client, self._folder, self._fate_of)
            for fleet in self._fleets:
                await cleanup.enter_async_context(fleet.on(context))
            controller = next(filter(None, (fleet.controller for fleet in reversed(self._fleets))))
            self._variables = {"VMAFX_CONTROLLER_HTTP_ADDR": controller, "VMAFX_OPERATOR_LOG_LEVEL": "warn"}
            try:
                for _ in range(self._replicas):
                    self._start_operator()
                async with asyncio.timeout(within):
                    await self._execute(clips)
                    await eventually(self._is_idle, "nothing runs or is left for finished jobs")
                await self._check(await scores)
            finally:
                scores.cancel()
                for _, stack in self._operators:
                    stack.close()
        assert not self._errors, "\n".join(self._errors)

    async def _execute(self, clips: Path) -> None:
        """Create the jobs a few at a time, edit them, and inject the planned faults."""
        slots = asyncio.Semaphore(self._at_once)
        injecting: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as group:
            for number, job in enumerate(self._plan.jobs):
                await slots.acquire()
                if fault := self._plan.faults.get(number):
                    if injecting is not None:
                        await injecting  # one fault at a time
                    self._log(f"{number} jobs created, {self.done.total()} finished: {fault}")
                    injecting = group.create_task(self._inject(fault))
                group.create_task(self._run_job(job, clips, slots))

    async def _run_job(self, job: PlannedJob, clips: Path, slots: asyncio.Semaphore) -> None:
        key = ObjectKey(NAMESPACE, job.name)
        try:
            await self._create(job, clips)
            await self._edit(job, key, clips)
            self.done[await self._until(key, *(("Deleted",) if job.kind == "mortal" else FINISHED))] += 1
        finally:
            slots.release()

    async def _create(self, job: PlannedJob, clips: Path) -> None:
        made = VmafxJob(metadata=ObjectMeta(name=job.name), spec=job.spec(clips))
        await persist(lambda: self._client.create(JOBS, made, NAMESPACE))

    async def _until(self, key: ObjectKey, *phases: str) -> str:
        """Wait for one of these phases, or for Deleted if that is one of them; return it."""
        while True:
            found = await persist(lambda: self._client.get(JOBS, key), ignore_missing="Deleted" in phases)
            phase: str = "Deleted" if found is None else found.status.phase
            if phase in phases:
                return phase
            await asyncio.sleep(0.3)

    async def _edit(self, job: PlannedJob, key: ObjectKey, clips: Path) -> None:
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
                await self._create(job, clips)
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
            await eventually(lambda: self._is_stopped(key), f"the work of the suspended job {key.name} stops")
            await edit(suspend=False)
        elif undisturbed and faults == self._faults:  # else the operator may have been down until the clip was scored
            self._errors.append(f"{key.name} was suspended while it ran, but finished")

    async def _is_stopped(self, key: ObjectKey) -> bool:
        found = await persist(lambda: self._client.get(JOBS, key))
        return all([await fleet.is_stopped(found) for fleet in self._fleets])

    def _fate_of(self, attempt: str) -> Fate | None:
        job = self._plan.jobs[int(attempt[4:8])]
        return "garbage" if job.kind == "hopeless" else self._fates.get(attempt)

    async def _inject(self, fault: Fault) -> None:
        self._faults, self._injecting = self._faults + 1, True
        await self._do_inject(fault)
        self._injecting = False

    async def _do_inject(self, fault: Fault) -> None:
        match fault:
            case "kill operator":
                running, stack = self._operators.pop(0)
                running.process.kill()
                stack.close()
                self._start_operator()
            case "stop leader":
                leader = await self._leader()
                os.kill(leader.process.pid, signal.SIGSTOP)
                await asyncio.sleep(20)
                os.kill(leader.process.pid, signal.SIGCONT)
                await eventually(lambda: leader.process.poll() is not None, "the stopped leader exits")
                self._operators = [one for one in self._operators if one[0] is not leader]
                self._start_operator()
            case "kill apiserver" | "kill etcd":
                component = APISERVER if fault == "kill apiserver" else ETCD
                command = await asyncio.to_thread(kill, self._cluster, component)
                await asyncio.to_thread(start, self._cluster, component, command)
            case _:
                for fleet in self._fleets:
                    await fleet.inject(fault)

    def _start_operator(self) -> None:
        stack = ExitStack()
        process = operator(self._cluster, NAMESPACE, self._folder, *self._flags, **self._variables)
        self._operators.append((stack.enter_context(process), stack))

    async def _leader(self) -> Operator:
        found: list[Operator] = []

        def look() -> bool:
            found[:] = [one for one, _ in self._operators if one.process.poll() is None and one.leads()]
            return bool(found)

        await eventually(lambda: asyncio.to_thread(look), "an operator is the leader")
        return found[0]

    async def _is_idle(self) -> bool:
        return all([await fleet.is_idle() for fleet in self._fleets])

    async def _check(self, scores: dict[tuple[str, str], float]) -> None:
        changes = await job_history.read(self._cluster, NAMESPACE)
        self.changes = len(changes)
        last = {change.name: change for change in changes if change.kind == "job"}
        for job in self._plan.jobs:
            _, _, _, old, new = last.get(job.name, (0, "job", job.name, None, None))
            self._errors += job_errors(job, new or old, scores.get(job.pair), deleted=new is None)
        self._errors += violations(changes, [one for fleet in self._fleets for one in fleet.log_entries()])


def make_endless(clips: Path) -> None:
    """The long clip, repeated: minutes of work."""
    ffmpeg("-i", clips / "long.mkv", "-c:v", "libx264", "-preset", "ultrafast", clips / "long.mp4")
    ffmpeg("-stream_loop", "39", "-i", clips / "long.mp4", "-c", "copy", clips / ENDLESS[0])


async def _scores(clips: Path) -> dict[tuple[str, str], float]:
    return {pair: await asyncio.to_thread(score_of, clips, pair) for pair in (SHORT, LONG)}


def score_of(clips: Path, pair: tuple[str, str]) -> float:
    """The score by `vmafx score`."""
    command = [VMAFX, "score", *(str(clips / name) for name in pair), "--json"]
    done = subprocess.run(command, capture_output=True, timeout=600, check=True)
    score: float = json.loads(done.stdout)["score"]
    return score


async def cordon(client: Client, name: str, *, cordoned: bool) -> None:
    spec = {"spec": {"unschedulable": cordoned}}
    await persist(lambda: client.merge_patch(NODES, ObjectKey(NAMESPACE, name), spec), ignore_missing=True)


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
