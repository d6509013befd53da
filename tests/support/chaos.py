"""Runs many jobs under injected faults on processes of this machine, and checks the invariants of the whole history.

The plan lists the jobs, the edits of each job and their times, the fate of each attempt, and the faults of the cluster
by number of created jobs. Jobs run on fleets: Pods (chaos_pods.py), agents (chaos_agents.py) or both.
"""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from tests.support import job_history
from tests.support.chaos_jobs import ChaosJobs, JobFleet, persist
from tests.support.chaos_plan import ENDLESS, LONG, SHORT, Fault, Plan, PlannedJob
from tests.support.faults import kill, start
from tests.support.fleet import make_clips
from tests.support.kubelet import VMAFX, Fate
from tests.support.operator_process import Operator, operator
from tests.support.video import ffmpeg
from tests.support.waiting import eventually
from vmafx.api.job import VmafxJobSpec
from vmafx.devcluster import DevCluster, crds
from vmafx.devcluster.components import APISERVER, ETCD
from vmafx.kube import NODES, Client, ObjectKey, load_config

NAMESPACE = "default"
LEADER = ("--leader-elect", "--leader-election-namespace", NAMESPACE)
NODE_OUTAGE = 12.0  # seconds that a node is deleted or cordoned: longer than a cache may lag


class ChaosContext(NamedTuple):
    """What fleets need to run jobs."""

    cluster: DevCluster
    client: Client
    folder: Path
    fate: Callable[[str], Fate | None]  # of an attempt, by name of the job and number


class Fleet(JobFleet, Protocol):
    """Pods or agents, as processes."""

    def on(self, context: ChaosContext) -> Self: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    @property
    def controller(self) -> str:
        """The controller address for the operator's health probe; empty if this fleet has none."""
        ...


class Chaos(ChaosJobs):
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
        super().__init__(plan, fleets, NAMESPACE, log, at_once)
        self._cluster, self._folder, self._process_fleets, self._replicas = cluster, folder, fleets, replicas
        self._operators: list[tuple[Operator, ExitStack]] = []
        self._flags = LEADER if replicas > 1 else ()

    async def run(self, within: float) -> None:
        """Run the plan within `within` seconds; raise AssertionError with all errors."""
        command = await asyncio.to_thread(kill, self._cluster, APISERVER)
        await asyncio.to_thread(start, self._cluster, APISERVER, [*command, *job_history.KEEP_ALL])
        self._clips = await asyncio.to_thread(make_clips, self._folder)
        await asyncio.to_thread(make_endless, self._clips)
        scores = asyncio.create_task(_scores(self._clips))
        async with Client(load_config(self._cluster.kubeconfig)) as client, AsyncExitStack() as cleanup:
            self._client = client
            await crds.install_crds(client)
            context = ChaosContext(self._cluster, client, self._folder, self._plan.fate_of)
            for fleet in self._process_fleets:
                await cleanup.enter_async_context(fleet.on(context))
            controller = next(filter(None, (fleet.controller for fleet in reversed(self._process_fleets))))
            self._variables = {"VMAFX_CONTROLLER_HTTP_ADDR": controller, "VMAFX_OPERATOR_LOG_LEVEL": "warn"}
            try:
                for _ in range(self._replicas):
                    self._start_operator()
                async with asyncio.timeout(within):
                    await self._execute()
                self._check(await job_history.read(self._cluster, NAMESPACE), await scores)
            finally:
                scores.cancel()
                for _, stack in self._operators:
                    stack.close()

    def _spec(self, job: PlannedJob) -> VmafxJobSpec:
        reference, distorted = ((self._clips / name).as_uri() for name in job.pair)
        return job.spec(reference, distorted)

    async def _inject(self, fault: Fault) -> None:
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
                await super()._inject(fault)

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
