"""The operator in this process, with a clock that the test advances; the test acts as controller and agents."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.fleet import add_node, submit
from tests.support.operator_context import context
from tests.support.operator_process import Controller
from tests.support.setting_defaults import defaults
from tests.support.waiting import eventually
from vmafx.api.job import FINISHED, JobView, VmafxJob
from vmafx.clock import utc_now
from vmafx.jobs import outcome as ends
from vmafx.jobs.attempt import AttemptResult
from vmafx.jobs.outcome import outcome_of
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.kube.core import EVENTS
from vmafx.operator.job.reconciler import JobReconciler
from vmafx.operator.job.settings import JobSettings
from vmafx.operator.node.decide import PROBE_INTERVAL
from vmafx.operator.node.reconciler import NodeReconciler
from vmafx.operator.node.settings import NodeSettings
from vmafx.runtime.metrics import Metrics

HEARTBEAT = 10.0  # seconds
POLL = 0.005  # seconds
CLIPS = Path("/clips")


class AgentFleet:
    """Agents send a heartbeat every ten seconds to a controller whose clock is `skew` ahead of the operator's."""

    def __init__(self, client: Client, namespace: str, controller: Controller) -> None:
        self.client, self.namespace, self.controller = client, namespace, controller
        self.ahead, self.skew, self._since_probe = 0.0, timedelta(), 0.0
        self._began, self.metrics = utc_now(), Metrics()

    def now(self) -> datetime:
        return self._began + timedelta(seconds=self.ahead)

    def clock(self) -> float:
        return self.ahead

    @asynccontextmanager
    async def operating(self) -> AsyncIterator[None]:
        """Run the job and node reconcilers as the operator does; `pass_time` advances their clock."""
        self.metrics = Metrics()
        made = context(self.client, self.namespace, self.metrics, now=self.now, clock=self.clock)
        self.jobs, self.nodes = made.jobs, made.nodes
        running = JobReconciler(made, defaults(JobSettings, worker_image="worker:1"))
        self.health = NodeReconciler(made, defaults(NodeSettings, controller_address=self.controller.address))
        made.manager.add_informer(running.pods)
        self._of_jobs, self._of_nodes = running.loop, self.health.loop
        made.manager.add_loop(self._of_jobs)
        made.manager.add_loop(self._of_nodes)
        made.manager.while_leading(running.lead)
        stop = asyncio.Event()
        task = asyncio.create_task(made.manager.run(stop))
        try:
            for informer in (self.nodes, self.jobs):
                await informer.synced.wait()
            await self._probe()
            await self.settled()
            yield
        finally:
            stop.set()
            await task

    async def pass_time(self, seconds: float, beating: Iterable[str] = ()) -> None:
        """Advance the clock in steps of ten seconds, with heartbeats, probes of the controller and due reconciles."""
        for _ in range(round(seconds / HEARTBEAT)):
            self.ahead += HEARTBEAT
            self._since_probe += HEARTBEAT
            for name in beating:
                await self.beat(name)
            if self._since_probe >= PROBE_INTERVAL:
                await self._probe()
            await self.settled()

    async def _probe(self) -> None:
        self._since_probe = 0.0
        await self.health.prober.probe()

    async def settled(self) -> None:
        """Wait until all objects are reconciled in their current version and nothing changes any more."""
        before = None
        while before != (before := await self._versions()):
            await eventually(self._up_to_date, "the caches are up to date", every=POLL)
            for informer, loop in ((self.nodes, self._of_nodes), (self.jobs, self._of_jobs)):
                for key in informer.store:
                    loop.queue.add(key)
            await eventually(self._idle, "the queues are empty", every=POLL)

    def _idle(self) -> bool:
        queues = (self._of_nodes.queue, self._of_jobs.queue)
        return not any(len(queue) or queue._working for queue in queues)

    async def _versions(self) -> dict[str, str]:
        nodes, jobs = await self.client.list(NODES, self.namespace), await self.client.list(JOBS, self.namespace)
        metas = [node.metadata for node in nodes.items]
        metas += [job.metadata for job in jobs.items if job.status.phase not in FINISHED]
        return {meta.uid: meta.resourceVersion for meta in metas}

    async def _up_to_date(self) -> bool:
        metas = [node.metadata for node in self.nodes.store.values()]
        metas += [job.metadata for job in self.jobs.store.values()]
        return {meta.uid: meta.resourceVersion for meta in metas} == await self._versions()

    async def agent(self, name: str, **spec: Any) -> None:
        """Create a node with a session and a fresh heartbeat."""
        await add_node(self.client, self.namespace, name, runtime="Agent", **spec)
        await self.client.patch_status(NODES, ObjectKey(self.namespace, name), {"agentSession": name})
        await self.beat(name)

    async def beat(self, name: str) -> None:
        status = {"lastHeartbeat": self.now() + self.skew}
        await self.client.patch_status(NODES, ObjectKey(self.namespace, name), status)

    async def submit(self, name: str, **spec: Any) -> ObjectKey:
        return await submit(self.client, self.namespace, name, CLIPS, **spec)

    async def job(self, key: ObjectKey) -> VmafxJob:
        return await self.client.get(JOBS, key)

    async def claim(self, key: ObjectKey) -> None:
        """Write what a controller writes with the first progress of an attempt."""
        await self.client.patch_status(JOBS, key, {"claimedAt": self.now(), "progress": {"frames": 10}})

    async def report(self, key: ObjectKey, **answer: Any) -> None:
        """Write what a controller writes with a result."""
        job = await self.client.get(JOBS.decoded_as(JobView), key)
        result = AttemptResult(job.status.controllerJobID or "", **answer)
        changes = ends.status_after(job, outcome_of(job, result), self.now())
        await self.client.patch_status(JOBS, key, changes, version=job.metadata.resourceVersion)

    async def ready(self, name: str) -> str:
        node = await self.client.get(NODES, ObjectKey(self.namespace, name))
        return next(one.reason for one in node.status.conditions if one.type == "Ready")

    async def events(self, name: str) -> set[tuple[str, str]]:
        found = (await self.client.list(EVENTS, self.namespace)).items
        return {(one["reason"], one["note"]) for one in found if one["regarding"]["name"] == name}


@asynccontextmanager
async def agent_fleet(client: Client, namespace: str) -> AsyncIterator[AgentFleet]:
    """A fleet without agents, with a healthy controller."""
    controller = Controller()
    await controller.start()
    try:
        yield AgentFleet(client, namespace, controller)
    finally:
        await controller.runner.cleanup()


async def running_on(fleet: AgentFleet, node: str, *, claimed: bool = True) -> ObjectKey:
    """Submit a job and let the agent of `node` claim it."""
    key = await fleet.submit("job")
    await fleet.settled()
    assert placed(await fleet.job(key)) == ("Running", node, 1)
    if claimed:
        await fleet.claim(key)
    return key


def placed(job: VmafxJob) -> tuple[str, str | None, int]:
    return job.status.phase, job.status.assignedNode, job.status.attempts


def failures(job: VmafxJob) -> tuple[int, tuple[str, ...]]:
    return job.status.failures, job.status.excludedNodes
