"""A run of many jobs through many faults, as planned in chaos_plan.py, and judged by its whole history.

The plan says which jobs there are, what people do to each and when after its creation, which of its Pods meet which
end, and which parts of the cluster are killed, stopped or taken away after how many jobs.
"""

import asyncio
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.support import history
from tests.support.chaos_plan import ENDLESS, LONG, SHORT, Fault, Plan, Planned, verdict
from tests.support.faults import kill, start
from tests.support.fleet import make_clips
from tests.support.kubelet import PODS, VMAFX, Fate, Kubelet
from tests.support.laws import broken_laws
from tests.support.operators import Controller, Operator, operator
from tests.support.video import ffmpeg
from tests.support.waiting import eventually
from vmafx.api.job import FINISHED, VmafxJob
from vmafx.api.meta import ObjectMeta
from vmafx.api.node import VmafxNode, VmafxNodeSpec
from vmafx.devcluster import DevCluster, crds
from vmafx.devcluster.components import APISERVER, ETCD
from vmafx.kube import JOBS, NODES, Client, Key, load_config
from vmafx.kube.errors import AlreadyExists, ApiError, KubeError, NotFound
from vmafx.operator.job.podview import JOB_LABEL

NAMESPACE = "default"
NODES_THERE = {"small": 1, "middle": 2, "large": 3}  # and how many jobs each takes
AT_ONCE = 24  # jobs that are not over
LEADER = ("--leader-elect", "--leader-election-namespace", NAMESPACE)
AWAY = 12.0  # seconds that a node takes nothing: longer than a cache may lag


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
        self._wrong: list[str] = []
        self._harms, self._harming = 0, False

    async def run(self, within: float) -> None:
        """Everything, in `within` seconds; AssertionError with all that went wrong."""
        command = kill(self._cluster, APISERVER)
        start(self._cluster, APISERVER, [*command, *history.KEEP_ALL])
        clips = make_clips(self._folder)
        make_endless(clips)
        self._scores = {pair: await asyncio.to_thread(by_hand, clips, pair) for pair in (SHORT, LONG)}
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
                await self._judge()
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
            self.done[await self._until(key, *(("Deleted",) if job.kind == "mortal" else FINISHED))] += 1
        finally:
            slots.release()

    async def _create(self, job: Planned, clips: Path) -> None:
        made = VmafxJob(metadata=ObjectMeta(name=job.name), spec=job.spec(clips))
        await persist(lambda: self._client.create(JOBS, made, NAMESPACE))

    async def _until(self, key: Key, *phases: str) -> str:
        """The one of these phases that it reaches; Deleted, if it is to be."""
        while True:
            found = await persist(lambda: self._client.get(JOBS, key), gone_is_fine="Deleted" in phases)
            phase: str = "Deleted" if found is None else found.status.phase
            if phase in phases:
                return phase
            await asyncio.sleep(0.3)

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
            case "stopped" | "paused":
                await self._interrupt(job, key, edit)
            case "robbed":
                await self._until(key, "Running", *FINISHED)
                robbed = Key(NAMESPACE, f"{job.name}-0")
                await persist(lambda: self._client.delete(PODS, robbed), gone_is_fine=True)

    async def _interrupt(self, job: Planned, key: Key, edit: Callable[..., Awaitable[None]]) -> None:
        """Cancel it while it runs; or suspend it, see that its work ends, and let it go on."""
        quiet, harms = not self._harming, self._harms
        await self._until(key, "Running", *FINISHED)
        if job.kind == "stopped":
            await edit(cancel=True)
            return
        await edit(suspend=True)
        if await self._until(key, "Pending", *FINISHED) == "Pending":
            await eventually(lambda: self._rests(key), f"{key.name} is suspended, and its Pod ends")
            await edit(suspend=False)
        elif quiet and harms == self._harms:  # else there may have been nobody to hear of it before the clip was done
            self._wrong.append(f"{key.name} was suspended while it ran, and went on to its end")

    async def _rests(self, key: Key) -> bool:
        pods = (await persist(lambda: self._client.list(PODS, NAMESPACE))).items
        ours = [pod for pod in pods if pod["metadata"]["labels"][JOB_LABEL] == key.name]
        return all(pod.get("status", {}).get("phase") in FINISHED for pod in ours)

    def _fate_of(self, pod: str) -> Fate | None:
        job = self._plan.jobs[int(pod[4:8])]
        return "garbage" if job.kind == "hopeless" else self._fates.get(pod)

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
            case "delete node":
                await persist(lambda: self._client.delete(NODES, Key(NAMESPACE, "middle")), gone_is_fine=True)
                await asyncio.sleep(AWAY)
                await self._add_node("middle")
            case "cordon node":
                await self._cordon("large", cordoned=True)
                await asyncio.sleep(AWAY)
                await self._cordon("large", cordoned=False)

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

    async def _cordon(self, name: str, *, cordoned: bool) -> None:
        spec = {"spec": {"unschedulable": cordoned}}
        await persist(lambda: self._client.merge_patch(NODES, Key(NAMESPACE, name), spec))

    async def _calm(self) -> None:
        """Nothing runs for a job that is over, and nothing is left of one that is gone."""

        async def calm() -> bool:
            pods = (await persist(lambda: self._client.list(PODS, NAMESPACE))).items
            jobs = {job.metadata.uid for job in (await persist(lambda: self._client.list(JOBS, NAMESPACE))).items}
            ended = all(pod.get("status", {}).get("phase") in FINISHED for pod in pods)
            return ended and all(pod["metadata"]["ownerReferences"][0]["uid"] in jobs for pod in pods)

        await eventually(calm, "no Pod is left running, or without its job")

    async def _judge(self) -> None:
        told = await history.read(self._cluster, NAMESPACE)
        self.moments = len(told)
        last = {moment.name: moment for moment in told if moment.kind == "job"}
        for job in self._plan.jobs:
            _, _, _, old, new = last.get(job.name, (0, "job", job.name, None, None))
            self._wrong += verdict(job, new or old, self._scores.get(job.pair), gone=new is None)
        self._wrong += broken_laws(told)


def make_endless(clips: Path) -> None:
    """The long clip, over and over: minutes of work."""
    ffmpeg("-i", clips / "long.mkv", "-c:v", "libx264", "-preset", "ultrafast", clips / "long.mp4")
    ffmpeg("-stream_loop", "39", "-i", clips / "long.mp4", "-c", "copy", clips / ENDLESS[0])


def by_hand(clips: Path, pair: tuple[str, str]) -> float:
    """What `vmafx score` says."""
    command = [VMAFX, "score", *(str(clips / name) for name in pair), "--json"]
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
