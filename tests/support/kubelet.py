"""A kubelet for tests: runs the command of every worker Pod as a local process, and reports how it ended.

It uses no containers and no images, but the real worker and a real API server, and retries while that is down. Tests
inject faults by setting the fate of single Pods.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from vmafx.clock import micro_time
from vmafx.kube import Client, ObjectKey, Resource
from vmafx.kube.core import LEASES
from vmafx.kube.errors import Conflict, Invalid, KubeError, NotFound
from vmafx.kube.resources import UntypedObject
from vmafx.kube.watch import Added, Deleted, Modified

PODS: Resource[UntypedObject] = Resource("", "v1", "pods", "Pod", dict)
VMAFX = str(Path(sys.executable).with_name("vmafx"))
MACHINES: Resource[UntypedObject] = Resource("", "v1", "nodes", "Node", dict, namespaced=False)
RETRY_AFTER, KILL_AFTER, LEASE_INTERVAL = 0.2, 0.3, 10.0  # seconds

Fate = Literal["killed", "oom", "evicted", "empty", "garbage", "stuck"]


class End(NamedTuple):
    """How a container ended."""

    code: int
    message: str
    reason: str = ""
    evicted: bool = False

    def status(self) -> dict[str, Any]:
        reason = self.reason or ("Completed" if self.code == 0 else "Error")
        state = {"terminated": {"exitCode": self.code, "reason": reason, "message": self.message}}
        container = {"name": "worker", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": state}
        status: dict[str, Any] = {
            "phase": "Succeeded" if self.code == 0 else "Failed",
            "containerStatuses": [container],
        }
        if self.evicted:
            disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
            status |= {"reason": "Evicted", "message": "the disk is full", "conditions": [disrupted]}
        return status


ENDS: dict[Fate, End] = {
    "oom": End(137, "", "OOMKilled"),
    "evicted": End(137, "", evicted=True),
    "empty": End(0, ""),
    "garbage": End(0, "\u0000{'score': 99}"),
}


class Kubelet:
    """Runs the Pods of a namespace. Use as an async context manager."""

    def __init__(self, client: Client, namespace: str, folder: Path) -> None:
        self._client, self._namespace, self._folder = client, namespace, folder
        self.node = f"kubelet-{namespace}"
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._stopped: dict[str, asyncio.Event] = {}
        self.started: list[str] = []
        self.hold = asyncio.Event()  # while cleared, Pods are not started
        self.hold.set()
        self.answers: dict[str, tuple[int, str]] = {}  # by Pod: exit code and message, instead of running the worker
        self.fate: Callable[[str], Fate | None] = lambda _: None  # the fault of a Pod

    async def __aenter__(self) -> Self:
        await _retry(lambda: self._client.create(MACHINES, {"metadata": {"name": self.node}}))
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is a test"}
        await _retry(lambda: self._client.patch_status(MACHINES, ObjectKey("", self.node), {"conditions": [ready]}))
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._renew_lease())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for stopped in self._stopped.values():
            stopped.set()
        tasks = [*self._tasks, *self._running.values(), *self._ending.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _retry(lambda: self._client.delete(MACHINES, ObjectKey("", self.node)))

    async def _renew_lease(self) -> None:
        """Renew the lease of the Kubernetes node; without it, the node would lose its Pods."""
        lease = {"metadata": {"name": self.node}, "spec": {"holderIdentity": self.node, "leaseDurationSeconds": 40}}
        await _retry(lambda: self._client.create(LEASES.decoded_as(dict), lease, "kube-node-lease"))
        while True:
            renewed = {"spec": {"renewTime": micro_time()}}
            key = ObjectKey("kube-node-lease", self.node)
            await _retry(lambda: self._client.merge_patch(LEASES.decoded_as(dict), key, renewed))  # noqa: B023
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
            self._running[uid] = asyncio.create_task(self._run(pod, self._stopped[uid]))

    async def _terminate(self, pod: UntypedObject) -> None:
        """Terminate a Pod that is being deleted: stop its worker, report its end, remove the Pod."""
        uid = pod["metadata"]["uid"]
        if task := self._running.get(uid):
            self._stopped[uid].set()
            await asyncio.gather(task, return_exceptions=True)
        await _retry(lambda: self._client.delete(PODS, _key(pod), uid=uid, grace_seconds=0))

    async def _run(self, pod: UntypedObject, stopped: asyncio.Event) -> None:
        name = pod["metadata"]["name"]
        binding = {"metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": self.node}}
        path = Resource("", "v1", f"pods/{name}/binding", "Binding", dict)
        await _retry(lambda: self._client.create(path, binding, self._namespace))
        fate = self.fate(name)
        if fate == "stuck" or not await _wait_unless(stopped, self.hold):
            return
        self.started.append(name)
        await self._report(pod, {"phase": "Running"})
        if name in self.answers:
            end = End(*self.answers[name])
        elif fate in ENDS:
            end = ENDS[fate]
        else:
            end = await self._work(pod, stopped, killed=fate == "killed")
        await self._report(pod, end.status())

    async def _work(self, pod: UntypedObject, stopped: asyncio.Event, *, killed: bool) -> End:
        (container,) = pod["spec"]["containers"]
        answer = self._folder / pod["metadata"]["uid"]
        variables = {one["name"]: one.get("value", "") for one in container["env"]}
        environment = {"PATH": os.environ["PATH"], "VMAFX_ANSWER_FILE": str(answer)}
        environment |= {name: value for name, value in variables.items() if name.startswith("VMAFX_")}
        assert container["command"] == ["vmafx", "worker"]
        timeout = ["timeout", "--signal=KILL", str(KILL_AFTER)] if killed else []
        process = await asyncio.create_subprocess_exec(
            *timeout, VMAFX, "worker", env=environment, stderr=asyncio.subprocess.DEVNULL
        )
        stopping = asyncio.create_task(stopped.wait())
        stopping.add_done_callback(lambda _: _signal(process, signal.SIGTERM))
        try:
            code = await process.wait()
        finally:
            stopping.cancel()
            await process.wait()
        return End(code if code >= 0 else 128 - code, answer.read_text() if answer.exists() else "")

    async def _report(self, pod: UntypedObject, status: dict[str, Any]) -> None:
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await _retry(lambda: self._client.merge_patch(PODS, _key(pod), patch, "status"))


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        process.send_signal(number)


async def _wait_unless(stopped: asyncio.Event, wanted: asyncio.Event) -> bool:
    """Wait for `wanted`; return False if `stopped` is set first."""
    waiting = [asyncio.create_task(event.wait()) for event in (stopped, wanted)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
    return not stopped.is_set()


async def _retry(call: Callable[[], Awaitable[object]]) -> None:
    """Retry while the API server is down; give up if the Pod is deleted or replaced."""
    while True:
        try:
            await call()
        except (NotFound, Conflict, Invalid):
            return
        except KubeError:
            await asyncio.sleep(RETRY_AFTER)
        else:
            return


def _key(pod: UntypedObject) -> ObjectKey:
    return ObjectKey(pod["metadata"]["namespace"], pod["metadata"]["name"])
