"""Jobs that run as Pods, on nodes that are cordoned, deleted and made again."""

import asyncio
from typing import Self

from tests.support.chaos import AWAY, NAMESPACE, Stage, cordon, persist
from tests.support.chaos_plan import Fault
from tests.support.kubelet import PODS, Kubelet
from tests.support.machines import Said
from tests.support.operators import Controller
from vmafx.api.job import FINISHED, VmafxJob
from vmafx.api.meta import ObjectMeta
from vmafx.api.node import VmafxNode, VmafxNodeSpec
from vmafx.kube import JOBS, NODES, ObjectKey
from vmafx.operator.job.pod_cache import JOB_LABEL

NODES_THERE = {"small": 1, "middle": 2, "large": 3}  # and how many jobs each takes


class PodFleet:
    """A kubelet, and what answers for a controller."""

    def on(self, stage: Stage) -> Self:
        self._client, self._stage = stage.client, stage
        self._kubelet, self._health = Kubelet(stage.client, NAMESPACE, stage.folder), Controller()
        return self

    async def __aenter__(self) -> Self:
        await self._health.start()
        for name in NODES_THERE:
            await self._add_node(name)
        await self._kubelet.__aenter__()
        self._kubelet.fate = self._stage.fate
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._kubelet.__aexit__()
        await self._health.runner.cleanup()

    @property
    def controller(self) -> str:
        return self._health.address

    async def harm(self, fault: Fault) -> None:
        match fault:
            case "delete node":
                await persist(lambda: self._client.delete(NODES, ObjectKey(NAMESPACE, "middle")), gone_is_fine=True)
                await asyncio.sleep(AWAY)
                await self._add_node("middle")
            case "cordon node":
                await cordon(self._client, "large", cordoned=True)
                await asyncio.sleep(AWAY)
                await cordon(self._client, "large", cordoned=False)

    async def rob(self, job: VmafxJob) -> None:
        robbed = ObjectKey(NAMESPACE, f"{job.metadata.name}-0")
        await persist(lambda: self._client.delete(PODS, robbed), gone_is_fine=True)

    async def rests(self, job: VmafxJob) -> bool:
        pods = (await persist(lambda: self._client.list(PODS, NAMESPACE))).items
        ours = [pod for pod in pods if pod["metadata"]["labels"][JOB_LABEL] == job.metadata.name]
        return all(pod.get("status", {}).get("phase") in FINISHED for pod in ours)

    async def is_calm(self) -> bool:
        """No Pod is left running, or without its job."""
        pods = (await persist(lambda: self._client.list(PODS, NAMESPACE))).items
        jobs = {job.metadata.uid for job in (await persist(lambda: self._client.list(JOBS, NAMESPACE))).items}
        ended = all(pod.get("status", {}).get("phase") in FINISHED for pod in pods)
        return ended and all(pod["metadata"]["ownerReferences"][0]["uid"] in jobs for pod in pods)

    def said(self) -> list[Said]:
        return []

    async def _add_node(self, name: str) -> None:
        node = VmafxNode(metadata=ObjectMeta(name=name), spec=VmafxNodeSpec("cpu", capacity=NODES_THERE[name]))
        await persist(lambda: self._client.create(NODES, node, NAMESPACE))
