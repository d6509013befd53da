"""Jobs as Pods under faults: nodes are cordoned, deleted and created again."""

import asyncio
from typing import Self

from tests.support.chaos import NAMESPACE, NODE_OUTAGE, ChaosContext, cordon
from tests.support.chaos_jobs import persist
from tests.support.chaos_plan import Fault
from tests.support.kubelet import Kubelet
from tests.support.machines import AgentLogEntry
from tests.support.operator_process import Controller
from vmafx.api.job import FINISHED, VmafxJob
from vmafx.api.meta import ObjectMeta
from vmafx.api.node import VmafxNode, VmafxNodeSpec
from vmafx.kube import JOBS, NODES, ObjectKey
from vmafx.kube.core import PODS
from vmafx.operator.job.pod_cache import JOB_LABEL

CAPACITY = {"small": 1, "middle": 2, "large": 3}  # of each node


class ChaosPodFleet:
    """A kubelet, and a stand-in for the controller's health endpoint."""

    def on(self, context: ChaosContext) -> Self:
        self._client, self._context = context.client, context
        self._kubelet, self._health = Kubelet(context.client, NAMESPACE, context.folder), Controller()
        return self

    async def __aenter__(self) -> Self:
        await self._health.start()
        for name in CAPACITY:
            await self._add_node(name)
        await self._kubelet.__aenter__()
        self._kubelet.fate = self._context.fate
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._kubelet.__aexit__()
        await self._health.runner.cleanup()

    @property
    def controller(self) -> str:
        return self._health.address

    async def inject(self, fault: Fault) -> None:
        match fault:
            case "delete node":
                await persist(lambda: self._client.delete(NODES, ObjectKey(NAMESPACE, "middle")), ignore_missing=True)
                await asyncio.sleep(NODE_OUTAGE)
                await self._add_node("middle")
            case "cordon node":
                await cordon(self._client, "large", cordoned=True)
                await asyncio.sleep(NODE_OUTAGE)
                await cordon(self._client, "large", cordoned=False)

    async def kill_work(self, job: VmafxJob) -> None:
        pod = ObjectKey(NAMESPACE, f"{job.metadata.name}-0")
        await persist(lambda: self._client.delete(PODS, pod), ignore_missing=True)

    async def is_stopped(self, job: VmafxJob) -> bool:
        pods = (await persist(lambda: self._client.list(PODS, NAMESPACE))).items
        own = [pod for pod in pods if pod["metadata"]["labels"][JOB_LABEL] == job.metadata.name]
        return all(pod.get("status", {}).get("phase") in FINISHED for pod in own)

    async def is_idle(self) -> bool:
        """No Pod is left running, or without its job."""
        pods = (await persist(lambda: self._client.list(PODS, NAMESPACE))).items
        jobs = {job.metadata.uid for job in (await persist(lambda: self._client.list(JOBS, NAMESPACE))).items}
        ended = all(pod.get("status", {}).get("phase") in FINISHED for pod in pods)
        return ended and all(pod["metadata"]["ownerReferences"][0]["uid"] in jobs for pod in pods)

    def log_entries(self) -> list[AgentLogEntry]:
        return []

    async def _add_node(self, name: str) -> None:
        node = VmafxNode(metadata=ObjectMeta(name=name), spec=VmafxNodeSpec("cpu", capacity=CAPACITY[name]))
        await persist(lambda: self._client.create(NODES, node, NAMESPACE))
