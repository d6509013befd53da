"""A run of many jobs through many faults, as planned in chaos_plan.py, and judged by its whole history.

The plan says which jobs there are, what people do to each and when after its creation, which of its attempts meet which
end, and which parts of the cluster are killed, stopped or taken away after how many jobs. Who runs the jobs, Pods or
agents or both, are fleets: chaos_pods.py, chaos_agents.py.
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

from tests.support import history
from tests.support.chaos_plan import ENDLESS, LONG, SHORT, Fault, Plan, Planned, verdict
from tests.support.faults import kill, start
from tests.support.fleet import make_clips
from tests.support.kubelet import VMAFX, Fate
from tests.support.laws import broken_laws
from tests.support.machines import Said
from tests.support.operators import Operator, operator
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
AWAY = 12.0  # seconds that a node takes nothing: longer than a cache may lag


class Stage(NamedTuple):
    """Where it all happens."""

    cluster: DevCluster
    client: Client
    folder: Path
    fate: Callable[[str], Fate | None]  # of an attempt, by the job's name and its number


class Fleet(Protocol):
    """Who runs jobs."""

    def on(self, stage: Stage) -> Self: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    @property
    def controller(self) -> str:
        """Where the operator asks for the controller's health; empty if that is no affair of this fleet."""
        ...

    async def harm(self, fault: Fault) -> None:
        """If it is one that can befall this fleet."""
        ...

    async def rob(self, job: VmafxJob) -> None:
        """Take its work away where it is done."""
        ...

    async def rests(self, job: VmafxJob) -> bool:
        """Whether nobody works on it."""
        ...

    async def is_calm(self) -> bool:
        """Whether nothing is done here, or left, for a job that is over or gone."""
        ...

    def said(self) -> list[Said]: ...


class Chaos:
    """One run. `say` hears how it goes; `at_once` jobs are not over."""

    def __init__(
        self,
        cluster: DevCluster,
        folder: Path,
        plan: Plan,
        *fleets: Fleet,
        replicas: int,
        say: Callable[[str], None],
        at_once: int = 24,
    ) -> None:
        self._cluster, self._folder, self._plan, self._say = cluster, folder, plan, say
        self._fleets = fleets
        self._replicas, self._at_once = replicas, at_once
        self._operators: list[tuple[Operator, ExitStack]] = []
        self._flags = LEADER if replicas > 1 else ()
        self._fates: dict[str, Fate] = {
            f"{job.name}-{attempt}": fate for job in plan.jobs for attempt, fate in enumerate(job.fates)
        }
        self.done: Counter[str] = Counter()
        self._wrong: list[str] = []
        self._harms, self._harming = 0, False

    async def run(self, within: float) -> None:
        """Everything, in `within` seconds; AssertionError with all that went wrong."""
        command = await asyncio.to_thread(kill, self._cluster, APISERVER)
        await asyncio.to_thread(start, self._cluster, APISERVER, [*command, *history.KEEP_ALL])
        clips = await asyncio.to_thread(make_clips, self._folder)
        await asyncio.to_thread(make_endless, clips)
        scores = asyncio.create_task(_scores(clips))
        async with Client(load_config(self._cluster.kubeconfig)) as client, AsyncExitStack() as there:
            self._client = client
            await crds.install_crds(client)
            stage = Stage(self._cluster, client, self._folder, self._fate_of)
            for fleet in self._fleets:
                await there.enter_async_context(fleet.on(stage))
            controller = next(filter(None, (fleet.controller for fleet in reversed(self._fleets))))
            self._variables = {"VMAFX_CONTROLLER_HTTP_ADDR": controller, "VMAFX_OPERATOR_LOG_LEVEL": "warn"}
            try:
                for _ in range(self._replicas):
                    self._start_operator()
                async with asyncio.timeout(within):
                    await self._carry_out(clips)
                    await eventually(self._is_calm, "nothing is done any more, or left of what is gone")
                await self._judge(await scores)
            finally:
                scores.cancel()
                for _, ending in self._operators:
                    ending.close()
        assert not self._wrong, "\n".join(self._wrong)

    async def _carry_out(self, clips: Path) -> None:
        """Create the jobs a few at a time, see to each, and do harm at the planned moments."""
        slots = asyncio.Semaphore(self._at_once)
        harming: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as group:
            for number, job in enumerate(self._plan.jobs):
                await slots.acquire()
                if fault := self._plan.faults.get(number):
                    if harming is not None:
                        await harming  # one harm at a time
                    self._say(f"{number} jobs created, {self.done.total()} over: {fault}")
                    harming = group.create_task(self._harm(fault))
                group.create_task(self._see_to(job, clips, slots))

    async def _see_to(self, job: Planned, clips: Path, slots: asyncio.Semaphore) -> None:
        key = ObjectKey(NAMESPACE, job.name)
        try:
            await self._create(job, clips)
            await self._meddle(job, key, clips)
            self.done[await self._until(key, *(("Deleted",) if job.kind == "mortal" else FINISHED))] += 1
        finally:
            slots.release()

    async def _create(self, job: Planned, clips: Path) -> None:
        made = VmafxJob(metadata=ObjectMeta(name=job.name), spec=job.spec(clips))
        await persist(lambda: self._client.create(JOBS, made, NAMESPACE))

    async def _until(self, key: ObjectKey, *phases: str) -> str:
        """The one of these phases that it reaches; Deleted, if it is to be."""
        while True:
            found = await persist(lambda: self._client.get(JOBS, key), gone_is_fine="Deleted" in phases)
            phase: str = "Deleted" if found is None else found.status.phase
            if phase in phases:
                return phase
            await asyncio.sleep(0.3)

    async def _meddle(self, job: Planned, key: ObjectKey, clips: Path) -> None:
        """What people do to a job while it waits, runs or is over."""
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
                await persist(lambda: self._client.delete(JOBS, key), gone_is_fine=True)
                await self._create(job, clips)
            case "stopped" | "paused":
                await self._interrupt(job, key, edit)
            case "robbed":
                await self._rob(key)

    async def _rob(self, key: ObjectKey) -> None:
        await self._until(key, "Running", *FINISHED)
        found = await persist(lambda: self._client.get(JOBS, key))
        for fleet in self._fleets:
            await fleet.rob(found)

    async def _interrupt(self, job: Planned, key: ObjectKey, edit: Callable[..., Awaitable[None]]) -> None:
        """Cancel it while it runs; or suspend it, see that its work ends, and let it go on."""
        quiet, harms = not self._harming, self._harms
        await self._until(key, "Running", *FINISHED)
        if job.kind == "stopped":
            await edit(cancel=True)
            return
        await edit(suspend=True)
        if await self._until(key, "Pending", *FINISHED) == "Pending":
            await eventually(lambda: self._rests(key), f"{key.name} is suspended, and its work ends")
            await edit(suspend=False)
        elif quiet and harms == self._harms:  # else there may have been nobody to hear of it before the clip was done
            self._wrong.append(f"{key.name} was suspended while it ran, and went on to its end")

    async def _rests(self, key: ObjectKey) -> bool:
        found = await persist(lambda: self._client.get(JOBS, key))
        return all([await fleet.rests(found) for fleet in self._fleets])

    def _fate_of(self, attempt: str) -> Fate | None:
        job = self._plan.jobs[int(attempt[4:8])]
        return "garbage" if job.kind == "hopeless" else self._fates.get(attempt)

    async def _harm(self, fault: Fault) -> None:
        self._harms, self._harming = self._harms + 1, True
        await self._do_harm(fault)
        self._harming = False

    async def _do_harm(self, fault: Fault) -> None:
        match fault:
            case "kill operator":
                running, ending = self._operators.pop(0)
                running.process.kill()
                ending.close()
                self._start_operator()
            case "stop leader":
                leader = await self._leader()
                os.kill(leader.process.pid, signal.SIGSTOP)
                await asyncio.sleep(20)
                os.kill(leader.process.pid, signal.SIGCONT)
                await eventually(lambda: leader.process.poll() is not None, "who was stopped for so long ends")
                self._operators = [one for one in self._operators if one[0] is not leader]
                self._start_operator()
            case "kill apiserver" | "kill etcd":
                part = APISERVER if fault == "kill apiserver" else ETCD
                command = await asyncio.to_thread(kill, self._cluster, part)
                await asyncio.to_thread(start, self._cluster, part, command)
            case _:
                for fleet in self._fleets:
                    await fleet.harm(fault)

    def _start_operator(self) -> None:
        ending = ExitStack()
        made = operator(self._cluster, NAMESPACE, self._folder, *self._flags, **self._variables)
        self._operators.append((ending.enter_context(made), ending))

    async def _leader(self) -> Operator:
        found: list[Operator] = []

        def look() -> bool:
            found[:] = [one for one, _ in self._operators if one.process.poll() is None and one.leads()]
            return bool(found)

        await eventually(lambda: asyncio.to_thread(look), "somebody leads")
        return found[0]

    async def _is_calm(self) -> bool:
        return all([await fleet.is_calm() for fleet in self._fleets])

    async def _judge(self, scores: dict[tuple[str, str], float]) -> None:
        told = await history.read(self._cluster, NAMESPACE)
        self.moments = len(told)
        last = {moment.name: moment for moment in told if moment.kind == "job"}
        for job in self._plan.jobs:
            _, _, _, old, new = last.get(job.name, (0, "job", job.name, None, None))
            self._wrong += verdict(job, new or old, scores.get(job.pair), gone=new is None)
        self._wrong += broken_laws(told, [one for fleet in self._fleets for one in fleet.said()])


def make_endless(clips: Path) -> None:
    """The long clip, over and over: minutes of work."""
    ffmpeg("-i", clips / "long.mkv", "-c:v", "libx264", "-preset", "ultrafast", clips / "long.mp4")
    ffmpeg("-stream_loop", "39", "-i", clips / "long.mp4", "-c", "copy", clips / ENDLESS[0])


async def _scores(clips: Path) -> dict[tuple[str, str], float]:
    return {pair: await asyncio.to_thread(by_hand, clips, pair) for pair in (SHORT, LONG)}


def by_hand(clips: Path, pair: tuple[str, str]) -> float:
    """What `vmafx score` says."""
    command = [VMAFX, "score", *(str(clips / name) for name in pair), "--json"]
    done = subprocess.run(command, capture_output=True, timeout=600, check=True)
    score: float = json.loads(done.stdout)["score"]
    return score


async def cordon(client: Client, name: str, *, cordoned: bool) -> None:
    spec = {"spec": {"unschedulable": cordoned}}
    await persist(lambda: client.merge_patch(NODES, ObjectKey(NAMESPACE, name), spec), gone_is_fine=True)


async def persist(call: Callable[[], Awaitable[Any]], *, gone_is_fine: bool = False) -> Any:
    """Through a server that comes and goes. What was done and only not confirmed is found done."""
    tried = False
    while True:
        try:
            return await call()
        except NotFound:
            if gone_is_fine:
                return None
            raise
        except AlreadyExists:
            if tried:
                return None
            raise
        except (KubeError, ApiError):
            tried = True
            await asyncio.sleep(0.3)
