"""A kubelet for tests: runs the command of every worker Pod as a process of this machine, and tells how it ended.

No containers and no images, but the real worker on the real API server. Faults are done to it by what it is told to do
to single Pods.
"""

import asyncio
import os
import sys
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Self

from vmafx.kube import Client, Key, Resource
from vmafx.kube.errors import KubeError
from vmafx.kube.resources import Untyped
from vmafx.kube.watch import Added, Deleted, Modified

PODS: Resource[Untyped] = Resource("", "v1", "pods", "Pod", dict)
VMAFX = str(Path(sys.executable).with_name("vmafx"))


class Kubelet:
    """Use as an async context manager, with the namespace whose Pods it runs."""

    def __init__(self, client: Client, namespace: str, folder: Path) -> None:
        self._client, self._namespace, self._folder = client, namespace, folder
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.started: list[str] = []
        self.hold = asyncio.Event()  # while cleared, Pods are not started
        self.hold.set()
        self.answers: dict[str, tuple[int, str]] = {}  # what to say for a Pod instead of running it

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(self._watching, *self._tasks.values(), return_exceptions=True)

    async def _watch(self) -> None:
        page = await self._client.list(PODS, self._namespace)
        for one in page.items:
            self._see(one)
        watch = self._client.watch(PODS, self._namespace, version=page.metadata.resourceVersion)
        async with aclosing(aiter(watch)) as batches:
            async for batch in batches:
                for event in batch:
                    if isinstance(event, Added | Modified):
                        self._see(event.object)
                    elif isinstance(event, Deleted):
                        self._stop(event.object["metadata"]["uid"])

    def _see(self, pod: Untyped) -> None:
        uid = pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp"):
            self._stop(uid)
            self._tasks[f"{uid}-end"] = asyncio.create_task(self._remove(pod))
        elif uid not in self._tasks and pod.get("status", {}).get("phase", "Pending") == "Pending":
            self._tasks[uid] = asyncio.create_task(self._run(pod))

    def _stop(self, uid: str) -> None:
        if task := self._tasks.get(uid):
            task.cancel()

    async def _remove(self, pod: Untyped) -> None:
        with suppress(KubeError):
            await self._client.delete(PODS, _key(pod), uid=pod["metadata"]["uid"], grace_seconds=0)

    async def _run(self, pod: Untyped) -> None:
        name = pod["metadata"]["name"]
        await self.hold.wait()
        self.started.append(name)
        await self._tell(pod, {"phase": "Running"})
        if name in self.answers:
            code, message = self.answers[name]
        else:
            code, message = await self._work(pod)
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "message": message}
        container = {"name": "worker", "image": "i", "imageID": "i", "ready": False, "restartCount": 0}
        state = {"terminated": ended}
        phase = "Succeeded" if code == 0 else "Failed"
        await self._tell(pod, {"phase": phase, "containerStatuses": [container | {"state": state}]})

    async def _work(self, pod: Untyped) -> tuple[int, str]:
        (container,) = pod["spec"]["containers"]
        answer = self._folder / pod["metadata"]["uid"]
        told = {one["name"]: one.get("value", "") for one in container["env"]}
        environment = {"PATH": os.environ["PATH"], "VMAFX_ANSWER_FILE": str(answer)}
        environment |= {name: value for name, value in told.items() if name.startswith("VMAFX_")}
        assert container["command"] == ["vmafx", "worker"]
        process = await asyncio.create_subprocess_exec(
            VMAFX, "worker", env=environment, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            process.terminate()
            await process.wait()
            raise
        return code, answer.read_text() if answer.exists() else ""

    async def _tell(self, pod: Untyped, status: dict[str, Any]) -> None:
        with suppress(KubeError):
            await self._client.patch_status(PODS, _key(pod), status)


def _key(pod: Untyped) -> Key:
    return Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
