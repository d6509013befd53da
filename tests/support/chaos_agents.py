"""Jobs that agents run: real controllers behind one address, real agents, and what befalls them."""

import asyncio
import random
import signal
from contextlib import AsyncExitStack
from typing import Self

from tests.support.chaos import AWAY, NAMESPACE, Stage, cordon, persist
from tests.support.chaos_plan import Fault
from tests.support.machines import ControllerProcess, Machine, Said, controllers, end, known_speed, running
from tests.support.service import Service
from vmafx.api.job import VmafxJob
from vmafx.kube import NODES, ObjectKey

MACHINES = {"one": 1, "two": 2, "three": 2}  # and how many jobs each takes
LOOK_EVERY = 0.05  # seconds between two looks for workers whose end is planned
LOOKS = 200
SHORT_STOP, LONG_STOP = 15.0, 150.0  # seconds; the second is longer than it takes to lose one's jobs


class AgentFleet:
    """Two replicas of the controller, and three machines. The seed says who is harmed."""

    def __init__(self, seed: int) -> None:
        self._choice = random.Random(seed)
        self._there = AsyncExitStack()

    def on(self, stage: Stage) -> Self:
        self._stage = stage
        return self

    async def __aenter__(self) -> Self:
        stage, there = self._stage, self._there
        self._replicas = there.enter_context(controllers(stage.cluster, NAMESPACE, stage.folder, replicas=2))
        for one in self._replicas:
            await one.ready()
        grpc, http = ([getattr(one, kind) for one in self._replicas] for kind in ("grpc", "http"))
        self._door = await there.enter_async_context(Service(*grpc))
        self._health = await there.enter_async_context(Service(*http))
        speed = await known_speed(stage.folder)
        self._machines = [
            Machine(name, self._door.address, stage.folder, speed, "--capacity", str(capacity))
            for name, capacity in MACHINES.items()
        ]
        await there.enter_async_context(running(*self._machines))
        for machine in self._machines:
            await machine.says("registered")
        fates = asyncio.create_task(self._let_fate_come())
        there.push_async_callback(asyncio.wait, [fates])
        there.callback(fates.cancel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._there.aclose()

    @property
    def controller(self) -> str:
        return f"http://{self._health.address}"

    async def harm(self, fault: Fault) -> None:
        machine, replica = self._choice.choice(self._machines), self._choice.choice(self._replicas)
        match fault:
            case "kill agent" | "lose agent" | "stop agent" | "freeze agent":
                await _hurt(machine, fault)
            case "kill controller":
                await self._away([replica], 0.0)
            case "kill controllers":
                await self._away(self._replicas, AWAY)
            case "cut connections":
                self._door.cut()
            case "kill worker":
                await self._kill_a_worker()
            case "delete agent":
                key = ObjectKey(NAMESPACE, machine.name)
                await persist(lambda: self._stage.client.delete(NODES, key), gone_is_fine=True)
            case "cordon agent":
                await cordon(self._stage.client, machine.name, cordoned=True)
                await asyncio.sleep(AWAY)
                await cordon(self._stage.client, machine.name, cordoned=False)

    async def _away(self, replicas: list[ControllerProcess], seconds: float) -> None:
        for one in replicas:
            one.kill()
        await asyncio.sleep(seconds)
        for one in replicas:
            one.start()

    async def _kill_a_worker(self) -> None:
        """Whoever works first, if anybody does."""
        for _ in range(LOOKS):
            if working := sorted(self._workers()):
                end(self._choice.choice(working))
                return
            await asyncio.sleep(LOOK_EVERY)

    async def rob(self, job: VmafxJob) -> None:
        for machine in self._machines:
            if machine.name == job.status.assignedNode:
                machine.signal(signal.SIGKILL)

    async def rests(self, job: VmafxJob) -> bool:
        return not [one for one in self._workers().values() if one.startswith(job.metadata.uid)]

    async def is_calm(self) -> bool:
        return not self._workers() and not any(machine.spooled() for machine in self._machines)

    def said(self) -> list[Said]:
        return [one for machine in self._machines for one in machine.said()]

    def _workers(self) -> dict[int, str]:
        return {pid: attempt for machine in self._machines for pid, attempt in machine.workers().items()}

    async def _let_fate_come(self) -> None:
        """Kill the workers of attempts that are to fail, if they are seen before they are done."""
        while True:
            for machine in self._machines:
                names = machine.names()
                for pid, attempt in machine.workers().items():
                    number = attempt.rpartition("-")[2]
                    if attempt in names and self._stage.fate(f"{names[attempt]}-{number}"):
                        end(pid)
            await asyncio.sleep(LOOK_EVERY)


async def _hurt(machine: Machine, fault: Fault) -> None:
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
