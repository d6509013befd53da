"""What the kubelets of the tests share: a Kubernetes node, and a task for each Pod of a namespace.

Every call is retried while the API server is down.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Self

from vmafx.clock import micro_time
from vmafx.kube import Client, ObjectKey, Resource
from vmafx.kube.core import KUBERNETES_NODES, LEASES, PODS
from vmafx.kube.errors import Conflict, Invalid, KubeError, NotFound
from vmafx.kube.resources import UntypedObject
from vmafx.kube.watch import Added, Deleted, Modified

MACHINES = KUBERNETES_NODES.decoded_as(dict)
RETRY_AFTER, LEASE_INTERVAL = 0.2, 10.0  # seconds


class PodRunner(ABC):
    """Registers a node and binds the Pods of a namespace to it; a subclass runs them. Use as an async context manager.

    The node reports no capacity, so that the scheduler leaves the Pods to this class.
    """

    def __init__(self, client: Client, namespace: str, node: str) -> None:
        self._client, self._namespace, self.node = client, namespace, node
        self._running: dict[str, asyncio.Task[None]] = {}  # this and the next two: by the uid of the Pod
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._stopped: dict[str, asyncio.Event] = {}

    @abstractmethod
    async def run(self, pod: UntypedObject, stopped: asyncio.Event) -> None:
        """Run a Pod that is bound to the node; end it once `stopped` is set."""

    async def __aenter__(self) -> Self:
        await retry(lambda: self._client.create(MACHINES, {"metadata": {"name": self.node}}))
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is a test"}
        await retry(lambda: self._client.patch_status(MACHINES, ObjectKey("", self.node), {"conditions": [ready]}))
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._renew_lease())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for stopped in self._stopped.values():
            stopped.set()
        tasks = [*self._tasks, *self._running.values(), *self._ending.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await retry(lambda: self._client.delete(MACHINES, ObjectKey("", self.node)))

    async def _renew_lease(self) -> None:
        """Renew the lease of the Kubernetes node; without it, the node would lose its Pods."""
        lease = {"metadata": {"name": self.node}, "spec": {"holderIdentity": self.node, "leaseDurationSeconds": 40}}
        await retry(lambda: self._client.create(LEASES.decoded_as(dict), lease, "kube-node-lease"))
        while True:
            renewed = {"spec": {"renewTime": micro_time()}}
            key = ObjectKey("kube-node-lease", self.node)
            await retry(lambda: self._client.merge_patch(LEASES.decoded_as(dict), key, renewed))  # noqa: B023
            await asyncio.sleep(LEASE_INTERVAL)

    async def _watch(self) -> None:
        while True:
            try:
                await self._follow()
            except KubeError:
                await asyncio.sleep(RETRY_AFTER)

    async def _follow(self) -> None:
        page = await self._client.list(PODS, self._namespace)
        for one in page.items:
            self._on_pod(one)
        for uid in self._stopped.keys() - {one["metadata"]["uid"] for one in page.items}:
            self._stopped[uid].set()
        watch = self._client.watch(PODS, self._namespace, version=page.metadata.resourceVersion)
        async with aclosing(aiter(watch)) as batches:
            async for batch in batches:
                for event in batch:
                    if isinstance(event, Added | Modified):
                        self._on_pod(event.object)
                    elif isinstance(event, Deleted) and (stopped := self._stopped.get(event.object["metadata"]["uid"])):
                        stopped.set()

    def _on_pod(self, pod: UntypedObject) -> None:
        uid = pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp"):
            if uid not in self._ending:
                self._ending[uid] = asyncio.create_task(self._terminate(pod))
        elif uid not in self._running and pod.get("status", {}).get("phase", "Pending") == "Pending":
            self._stopped[uid] = asyncio.Event()
            self._running[uid] = asyncio.create_task(self._bind_and_run(pod, self._stopped[uid]))

    async def _terminate(self, pod: UntypedObject) -> None:
        """Terminate a Pod that is being deleted: end its task, then remove the Pod."""
        uid = pod["metadata"]["uid"]
        if task := self._running.get(uid):
            self._stopped[uid].set()
            await asyncio.gather(task, return_exceptions=True)
        await retry(lambda: self._client.delete(PODS, key_of_pod(pod), uid=uid, grace_seconds=0))

    async def _bind_and_run(self, pod: UntypedObject, stopped: asyncio.Event) -> None:
        name = pod["metadata"]["name"]
        binding = {"metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": self.node}}
        path = Resource("", "v1", f"pods/{name}/binding", "Binding", dict)
        await retry(lambda: self._client.create(path, binding, self._namespace))
        await self.run(pod, stopped)

    async def report(self, pod: UntypedObject, status: dict[str, Any]) -> None:
        """Merge `status` into the status of the Pod."""
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await retry(lambda: self._client.merge_patch(PODS, key_of_pod(pod), patch, "status"))


async def retry(call: Callable[[], Awaitable[object]]) -> None:
    """Retry while the API server is down; give up if the object is deleted or replaced."""
    while True:
        try:
            await call()
        except (NotFound, Conflict, Invalid):
            return
        except KubeError:
            await asyncio.sleep(RETRY_AFTER)
        else:
            return


def key_of_pod(pod: UntypedObject) -> ObjectKey:
    return ObjectKey(pod["metadata"]["namespace"], pod["metadata"]["name"])
