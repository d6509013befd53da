"""A run of many jobs through many faults, planned by a seed, and judged by its whole history.

The plan is fixed by the seed: which jobs there are, what people do to each and when after its creation, which of its
Pods meet which end, and which parts of the cluster are killed, stopped or taken away after how many jobs.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tests.support import history
from tests.support.faults import kill, start
from tests.support.fleet import make_clips
from tests.support.kubelet import PODS, VMAFX, Fate, Kubelet
from tests.support.laws import broken_laws
from tests.support.operators import Controller, Operator, operator
from tests.support.waiting import eventually
from vmafx.api.job import FINISHED, VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.api.node import VmafxNode, VmafxNodeSpec
from vmafx.devcluster import DevCluster, crds
from vmafx.devcluster.components import APISERVER, ETCD
from vmafx.kube import JOBS, NODES, Client, Key, load_config
from vmafx.kube.errors import AlreadyExists, ApiError, KubeError, NotFound

NAMESPACE = "default"
NODES_THERE = {"small": 1, "middle": 2, "large": 3}  # and how many jobs each takes
AT_ONCE = 24  # jobs that are not over
LEADER = ("--leader-elect", "--leader-election-namespace", NAMESPACE)

Kind = Literal["plain", "bad", "cancelled", "suspended", "promoted", "replaced", "hurt", "robbed", "hopeless"]
WEIGHTS: dict[Kind, int] = {
    "plain": 30, "bad": 8, "cancelled": 10, "suspended": 10, "promoted": 10, "replaced": 8, "hurt": 14, "robbed": 6,
    "hopeless": 4,
}  # fmt: skip
ENDS_OF: dict[Kind, set[str]] = {
    "bad": {"BadInput"},
    "cancelled": {"Cancelled", "Scored"},
    "hopeless": {"RetriesExhausted"},
}
Fault = Literal["kill operator", "stop leader", "kill apiserver", "kill etcd", "delete node", "cordon node"]
BAD_ENDS: tuple[Fate, ...] = ("killed", "oom", "evicted", "empty", "garbage")


class Planned(NamedTuple):
    """A job, and what is in store for it."""

    name: str
    kind: Kind
    moments: tuple[float, ...]  # seconds after its creation, or after the last thing done to it
    fates: tuple[Fate, ...]  # of its first attempts


class Plan(NamedTuple):
    jobs: list[Planned]
    faults: dict[int, Fault]  # by how many jobs were created before


def make_plan(seed: int, jobs: int, faults: Counter[Fault]) -> Plan:
    choice = random.Random(seed)
    kinds = choice.choices(list(WEIGHTS), list(WEIGHTS.values()), k=jobs)
    planned = [
        Planned(
            f"job-{number:04}",
            kind,
            tuple(choice.uniform(0.0, 2.5) for _ in range(3)),
            tuple(choice.choices(BAD_ENDS, k=choice.randint(1, 2))) if kind == "hurt" else (),
        )
        for number, kind in enumerate(kinds)
    ]
    at = choice.sample(range(2, jobs), faults.total())
    return Plan(planned, dict(zip(at, choice.sample(list(faults.elements()), faults.total()), strict=True)))


class Chaos:
    """One run. `say` hears how it goes."""

    def __init__(
        self, cluster: DevCluster, folder: Path, plan: Plan, *, replicas: int, say: Callable[[str], None]
    ) -> None:
        self._cluster, self._folder, self._plan, self._say = cluster, folder, plan, say
        self._replicas = replicas
        self._operators: list[tuple[Operator, ExitStack]] = []
        self._flags = LEADER if replicas > 1 else ()
        self._fates: dict[str, Fate] = {
            f"{job.name}-{attempt}": fate for job in plan.jobs for attempt, fate in enumerate(job.fates)
        }
        self.done: Counter[str] = Counter()

    async def run(self, within: float) -> None:
        """Everything, in `within` seconds; AssertionError with all that went wrong."""
        command = kill(self._cluster, APISERVER)
        start(self._cluster, APISERVER, [*command, *history.KEEP_ALL])
        clips = make_clips(self._folder)
        self._score = await asyncio.to_thread(by_hand, clips / "reference.mkv", clips / "distorted.mp4")
        controller = Controller()
        await controller.start()
        self._variables = {"VMAFX_CONTROLLER_HTTP_ADDR": controller.address, "VMAFX_OPERATOR_LOG_LEVEL": "warn"}
        async with Client(load_config(self._cluster.kubeconfig)) as client:
            self._client = client
            await crds.install(client)
            for name in NODES_THERE:
                await self._add_node(name)
            try:
                for _ in range(self._replicas):
                    self._start_operator()
                async with asyncio.timeout(within), Kubelet(client, NAMESPACE, self._folder) as kubelet:
                    kubelet.fate = self._fate_of
                    await self._carry_out(clips)
                    await self._calm()
                self._wrong = await self._judge()
            finally:
                for _, ending in self._operators:
                    ending.close()
                await controller.runner.cleanup()
        assert not self._wrong, "\n".join(self._wrong)

    async def _carry_out(self, clips: Path) -> None:
        """Create the jobs a few at a time, see to each, and do harm at the planned moments."""
        slots = asyncio.Semaphore(AT_ONCE)
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
        key = Key(NAMESPACE, job.name)
        try:
            await self._create(job, clips)
            await self._meddle(job, key, clips)
            while True:
                found = await persist(lambda: self._client.get(JOBS, key))
                if found.status.phase in FINISHED:
                    break
                await asyncio.sleep(0.5)
            self.done[found.status.phase] += 1
        finally:
            slots.release()

    async def _create(self, job: Planned, clips: Path) -> None:
        distorted = "none.mp4" if job.kind == "bad" else "distorted.mp4"
        limit = 1 if job.kind == "hopeless" else 20
        spec = VmafxJobSpec((clips / "reference.mkv").as_uri(), (clips / distorted).as_uri(), retryLimit=limit)
        made = VmafxJob(metadata=ObjectMeta(name=job.name), spec=spec)
        await persist(lambda: self._client.create(JOBS, made, NAMESPACE))

    async def _meddle(self, job: Planned, key: Key, clips: Path) -> None:
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
            case "robbed":
                await asyncio.sleep(first + second)
                robbed = Key(NAMESPACE, f"{job.name}-0")
                await persist(lambda: self._client.delete(PODS, robbed), gone_is_fine=True)

    def _fate_of(self, pod: str) -> Fate | None:
        job = self._plan.jobs[int(pod[4:8])]
        return "garbage" if job.kind == "hopeless" else self._fates.get(pod)

    async def _harm(self, fault: Fault) -> None:
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
            case "delete node":
                await persist(lambda: self._client.delete(NODES, Key(NAMESPACE, "middle")), gone_is_fine=True)
                await asyncio.sleep(2)
                await self._add_node("middle")
            case "cordon node":
                for cordoned in (True, False):
                    await self._cordon("large", cordoned)
                    await asyncio.sleep(2)

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

    async def _add_node(self, name: str) -> None:
        node = VmafxNode(metadata=ObjectMeta(name=name), spec=VmafxNodeSpec("cpu", capacity=NODES_THERE[name]))
        await persist(lambda: self._client.create(NODES, node, NAMESPACE))

    async def _cordon(self, name: str, cordoned: bool) -> None:
        spec = {"spec": {"unschedulable": cordoned}}
        await persist(lambda: self._client.merge_patch(NODES, Key(NAMESPACE, name), spec))

    async def _calm(self) -> None:
        """Nothing runs for a job that is over."""

        async def ended() -> bool:
            pods = (await persist(lambda: self._client.list(PODS, NAMESPACE))).items
            return all(pod.get("status", {}).get("phase") in FINISHED for pod in pods)

        await eventually(ended, "no Pod is left running")

    async def _judge(self) -> list[str]:
        jobs = {job.metadata.name: job for job in (await self._client.list(JOBS, NAMESPACE)).items}
        wrong = [text for job in self._plan.jobs for text in self._verdict(job, jobs.get(job.name))]
        told = await history.read(self._cluster, NAMESPACE)
        self.moments = len(told)
        return wrong + broken_laws(told)

    def _verdict(self, planned: Planned, job: VmafxJob | None) -> list[str]:
        if job is None:
            return [f"{planned.name} is lost"]
        ended = [one.reason for one in job.status.conditions if one.type in {"Complete", "Failed"}]
        if len(ended) != 1 or ended[0] not in ENDS_OF.get(planned.kind, {"Scored"}):
            return [f"{planned.name} ({planned.kind}) ended as {ended}: {job.status}"]
        if job.status.phase == "Succeeded" and job.status.score != self._score:
            return [f"{planned.name} has score {job.status.score}, and `vmafx score` says {self._score}"]
        return []


def by_hand(reference: Path, distorted: Path) -> float:
    """What `vmafx score` says."""
    command = [VMAFX, "score", str(reference), str(distorted), "--json"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    score: float = json.loads(done.stdout)["score"]
    return score


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
