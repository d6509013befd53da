"""Jobs on agents under faults: real controllers behind one address, and real agents."""

import asyncio
import random
import signal
from contextlib import AsyncExitStack
from typing import Self

from tests.support.chaos import NAMESPACE, NODE_OUTAGE, ChaosContext, cordon
from tests.support.chaos_jobs import persist
from tests.support.chaos_plan import Fault
from tests.support.machines import AgentLogEntry, ControllerProcess, Machine, controllers, end, known_speed, running
from tests.support.replica_proxy import ReplicaProxy
from vmafx.api.job import VmafxJob
from vmafx.kube import NODES, ObjectKey

MACHINES = {"one": 1, "two": 2, "three": 2}  # with their capacity
POLL_INTERVAL = 0.05  # seconds, for workers that the plan kills
MAX_POLLS = 200
SHORT_STOP, LONG_STOP = 15.0, 150.0  # seconds; after the second, jobs of the agent have been moved


class ChaosAgentFleet:
    """Two controller replicas and three machines; the seed selects the victims of faults."""

    def __init__(self, seed: int) -> None:
        self._choice = random.Random(seed)
        self._cleanup = AsyncExitStack()

    def on(self, context: ChaosContext) -> Self:
        self._context = context
        return self

    async def __aenter__(self) -> Self:
        context, cleanup = self._context, self._cleanup
        self._replicas = cleanup.enter_context(controllers(context.cluster, NAMESPACE, context.folder, replicas=2))
        for one in self._replicas:
            await one.ready()
        grpc, http = ([getattr(one, kind) for one in self._replicas] for kind in ("grpc", "http"))
        self._proxy = await cleanup.enter_async_context(ReplicaProxy(*grpc))
        self._health = await cleanup.enter_async_context(ReplicaProxy(*http))
        speed = await known_speed(context.folder)
        self._machines = [
            Machine(name, self._proxy.address, context.folder, speed, "--capacity", str(capacity))
            for name, capacity in MACHINES.items()
        ]
        await cleanup.enter_async_context(running(*self._machines))
        for machine in self._machines:
            await machine.wait_for_log("registered")
        fates = asyncio.create_task(self._kill_doomed_workers())
        cleanup.push_async_callback(asyncio.wait, [fates])
        cleanup.callback(fates.cancel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cleanup.aclose()

    @property
    def controller(self) -> str:
        return f"http://{self._health.address}"

    async def inject(self, fault: Fault) -> None:
        machine, replica = self._choice.choice(self._machines), self._choice.choice(self._replicas)
        match fault:
            case "kill agent" | "lose agent" | "stop agent" | "freeze agent":
                await _disturb(machine, fault)
            case "kill controller":
                await self._restart([replica], 0.0)
            case "kill controllers":
                await self._restart(self._replicas, NODE_OUTAGE)
            case "cut connections":
                self._proxy.cut()
            case "kill worker":
                await self._kill_worker()
            case "delete agent":
                key = ObjectKey(NAMESPACE, machine.name)
                await persist(lambda: self._context.client.delete(NODES, key), ignore_missing=True)
            case "cordon agent":
                await cordon(self._context.client, machine.name, cordoned=True)
                await asyncio.sleep(NODE_OUTAGE)
                await cordon(self._context.client, machine.name, cordoned=False)

    async def _restart(self, replicas: list[ControllerProcess], seconds: float) -> None:
        for one in replicas:
            one.kill()
        await asyncio.sleep(seconds)
        for one in replicas:
            one.start()

    async def _kill_worker(self) -> None:
        """Kill a random worker, as soon as there is one."""
        for _ in range(MAX_POLLS):
            if working := sorted(self._workers()):
                end(self._choice.choice(working))
                return
            await asyncio.sleep(POLL_INTERVAL)

    async def kill_work(self, job: VmafxJob) -> None:
        for machine in self._machines:
            if machine.name == job.status.assignedNode:
                machine.signal(signal.SIGKILL)

    async def is_stopped(self, job: VmafxJob) -> bool:
        return not [one for one in self._workers().values() if one.startswith(job.metadata.uid)]

    async def is_idle(self) -> bool:
        return not self._workers() and not any(machine.spooled() for machine in self._machines)

    def log_entries(self) -> list[AgentLogEntry]:
        return [one for machine in self._machines for one in machine.log_entries()]

    def _workers(self) -> dict[int, str]:
        return {pid: attempt for machine in self._machines for pid, attempt in machine.workers().items()}

    async def _kill_doomed_workers(self) -> None:
        """Kill the workers of attempts that the plan lets fail, if they are seen in time."""
        while True:
            for machine in self._machines:
                names = machine.names()
                for pid, attempt in machine.workers().items():
                    number = attempt.rpartition("-")[2]
                    if attempt in names and self._context.fate(f"{names[attempt]}-{number}"):
                        end(pid)
            await asyncio.sleep(POLL_INTERVAL)


async def _disturb(machine: Machine, fault: Fault) -> None:
    match fault:
        case "kill agent":
            machine.signal(signal.SIGKILL)
        case "lose agent":
            machine.go()
            await asyncio.sleep(LONG_STOP)
            machine.come_back()
        case "stop agent" | "freeze agent":
            machine.signal(signal.SIGSTOP)
            await asyncio.sleep(SHORT_STOP if fault == "stop agent" else LONG_STOP)
            machine.signal(signal.SIGCONT)
