"""Operator, controllers and agents as processes in their own namespace, and a check of all invariants."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support import job_history
from tests.support.invariants import violations
from tests.support.machines import ControllerProcess, Machine, controllers, known_speed, running
from tests.support.operator_process import operator
from tests.support.replica_proxy import ReplicaProxy
from tests.support.waiting import eventually
from vmafx.api.job import FINISHED, VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.devcluster import DevCluster
from vmafx.kube import JOBS, NAMESPACES, NODES, Client, ObjectKey, Resource
from vmafx.kube.resources import UntypedObject

EVENTS: Resource[UntypedObject] = Resource("events.k8s.io", "v1", "events", "Event", dict)
LONG_TIMEOUT = 180.0  # seconds, for what takes a minute or two


class ProcessFleet:
    """Agents reach the controller `replicas` through `proxy`, the operator through another proxy.

    `variables` are added to the environment of operator and controllers.
    """

    def __init__(
        self, cluster: DevCluster, client: Client, namespace: str, folder: Path, variables: Mapping[str, str] = {}
    ) -> None:
        self.cluster, self.client, self.namespace, self.folder = cluster, client, namespace, folder
        self._variables = variables
        self.replicas: list[ControllerProcess] = []
        self.machines: list[Machine] = []
        self._cleanup = AsyncExitStack()

    async def start(self, replicas: int) -> None:
        cleanup = self._cleanup
        started = controllers(self.cluster, self.namespace, self.folder, replicas=replicas, variables=self._variables)
        self.replicas = cleanup.enter_context(started)
        for one in self.replicas:
            await one.ready()
        self.proxy = await cleanup.enter_async_context(ReplicaProxy(*(one.grpc for one in self.replicas)))
        health = await cleanup.enter_async_context(ReplicaProxy(*(one.http for one in self.replicas)))
        self.start_operator(f"http://{health.address}")

    def start_operator(self, health: str) -> AsyncExitStack:
        """Start an operator; closing the returned stack stops it, else the end of the fleet does."""
        stack = AsyncExitStack()
        variables = {**self._variables, "VMAFX_CONTROLLER_HTTP_ADDR": health}
        stack.enter_context(operator(self.cluster, self.namespace, self.folder, **variables))
        self._cleanup.push_async_callback(stack.aclose)
        return stack

    async def stop(self) -> None:
        await self._cleanup.aclose()

    async def machine(self, name: str, *flags: str, controller: str = "", folder: str = "") -> Machine:
        """A machine with a registered agent. `folder` is for its state, if another machine has the same name."""
        state = self.folder / folder
        state.mkdir(exist_ok=True)
        speed = await known_speed(self.folder)
        machine = Machine(name, controller or self.proxy.address, state, speed, "--capacity", "1", *flags)
        self.machines.append(machine)
        await self._cleanup.enter_async_context(running(machine))
        await machine.wait_for_log("registered")
        return machine

    async def submit(self, name: str, reference: Path, distorted: Path, **spec: Any) -> ObjectKey:
        wanted = VmafxJobSpec(reference.as_uri(), distorted.as_uri(), **spec)
        await self.client.create(JOBS, VmafxJob(metadata=ObjectMeta(name=name), spec=wanted), self.namespace)
        return ObjectKey(self.namespace, name)

    async def job(self, key: ObjectKey) -> VmafxJob:
        return await self.client.get(JOBS, key)

    async def reaches(self, key: ObjectKey, holds: Callable[[VmafxJob], bool], what: str) -> VmafxJob:
        async def look() -> bool:
            return holds(await self.job(key))

        try:
            await eventually(look, what, within=LONG_TIMEOUT)
        except AssertionError:
            raise AssertionError("\n".join([what, *await self._describe()])) from None
        return await self.job(key)

    async def _describe(self) -> list[str]:
        """The history of the namespace and the logs of all agents, for the message of a failed test."""
        changes = await job_history.read(self.cluster, self.namespace)
        lines = [f"{one.revision} {job_history.written_at(one.new)} {one.name}: {one.new}" for one in changes]
        return [*lines, *(f"{machine.name}: {line}" for machine in self.machines for line in machine.life.log)]

    async def finished(self, key: ObjectKey) -> VmafxJob:
        return await self.reaches(key, lambda job: job.status.phase in FINISHED, f"{key.name} has finished")

    async def ready(self, node: str) -> str:
        """The reason of the Ready condition of a node."""
        status = (await self.client.get(NODES, ObjectKey(self.namespace, node))).status
        return next((one.reason for one in status.conditions if one.type == "Ready"), "")

    async def becomes(self, node: str, reason: str) -> None:
        async def look() -> bool:
            return await self.ready(node) == reason

        await eventually(look, f"{node} becomes {reason}", within=LONG_TIMEOUT)

    async def events(self, name: str) -> dict[str, str]:
        found = (await self.client.list(EVENTS, self.namespace)).items
        return {one["reason"]: one["note"] for one in found if one["regarding"]["name"] == name}

    async def check_invariants(self) -> list[job_history.Change]:
        """The whole history, after asserting that it violates no invariant."""
        changes = await job_history.read(self.cluster, self.namespace)
        entries = [one for machine in self.machines for one in machine.log_entries()]
        assert violations(changes, entries) == []
        return changes


@asynccontextmanager
async def process_fleet(
    cluster: DevCluster,
    client: Client,
    name: str,
    folder: Path,
    *,
    replicas: int = 1,
    variables: Mapping[str, str] = {},
) -> AsyncIterator[ProcessFleet]:
    """A fleet in a new namespace; with 0 replicas it has neither controllers nor an operator."""
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    state = folder / name
    state.mkdir()
    fleet = ProcessFleet(cluster, client, name, state, variables)
    try:
        if replicas:
            await fleet.start(replicas)
        yield fleet
    finally:
        await fleet.stop()


async def halt_worker(machine: Machine) -> int:
    """Stop (SIGSTOP) the worker of a machine with its children, so that its job stays running; return its pid."""
    found: list[int] = []

    def has_worker() -> bool:
        found[:] = machine.workers()
        return bool(found)

    await eventually(has_worker, f"{machine.name} has a worker", within=LONG_TIMEOUT)
    machine.halt(found[0])
    return found[0]


def send(worker: int, number: signal.Signals) -> None:
    os.killpg(worker, number)


async def pause(seconds: float) -> None:
    """Wait in real time, while a fault lasts."""
    await asyncio.sleep(seconds)
