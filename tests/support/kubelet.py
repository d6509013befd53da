"""A kubelet for tests: runs the command of every worker Pod as a process of this machine, and tells how it ended.

No containers and no images, but the real worker on the real API server. It tells until it is heard, through a server
that comes and goes. Faults are done to it by what it is told to do to single Pods.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from vmafx.kube import Client, Key, Resource
from vmafx.kube.errors import Conflict, Invalid, KubeError, NotFound
from vmafx.kube.resources import Untyped
from vmafx.kube.watch import Added, Deleted, Modified

PODS: Resource[Untyped] = Resource("", "v1", "pods", "Pod", dict)
VMAFX = str(Path(sys.executable).with_name("vmafx"))
AGAIN = 0.2  # seconds

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
    """Use as an async context manager, with the namespace whose Pods it runs."""

    def __init__(self, client: Client, namespace: str, folder: Path) -> None:
        self._client, self._namespace, self._folder = client, namespace, folder
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self.started: list[str] = []
        self.hold = asyncio.Event()  # while cleared, Pods are not started
        self.hold.set()
        self.answers: dict[str, tuple[int, str]] = {}  # what to say for a Pod instead of running it
        self.fate: Callable[[str], Fate | None] = lambda _: None  # what befalls a Pod

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [self._watching, *self._running.values(), *self._ending.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            try:
                await self._follow()
            except KubeError:
                await asyncio.sleep(AGAIN)

    async def _follow(self) -> None:
        page = await self._client.list(PODS, self._namespace)
        for one in page.items:
            self._see(one)
        for uid in self._running.keys() - {one["metadata"]["uid"] for one in page.items}:
            self._running[uid].cancel()
        watch = self._client.watch(PODS, self._namespace, version=page.metadata.resourceVersion)
        async with aclosing(aiter(watch)) as batches:
            async for batch in batches:
                for event in batch:
                    if isinstance(event, Added | Modified):
                        self._see(event.object)
                    elif isinstance(event, Deleted) and (task := self._running.get(event.object["metadata"]["uid"])):
                        task.cancel()

    def _see(self, pod: Untyped) -> None:
        uid = pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp"):
            if uid not in self._ending:
                self._ending[uid] = asyncio.create_task(self._end(pod))
        elif uid not in self._running and pod.get("status", {}).get("phase", "Pending") == "Pending":
            self._running[uid] = asyncio.create_task(self._run(pod))

    async def _end(self, pod: Untyped) -> None:
        """A Pod that is to go: its worker ends first."""
        uid = pod["metadata"]["uid"]
        if task := self._running.get(uid):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await _until_heard(lambda: self._client.delete(PODS, _key(pod), uid=uid, grace_seconds=0))

    async def _run(self, pod: Untyped) -> None:
        name = pod["metadata"]["name"]
        fate = self.fate(name)
        if fate == "stuck":
            return
        await self.hold.wait()
        self.started.append(name)
        await self._tell(pod, {"phase": "Running"})
        if name in self.answers:
            end = End(*self.answers[name])
        elif fate in ENDS:
            end = ENDS[fate]
        else:
            end = await self._work(pod, killed=fate == "killed")
        await self._tell(pod, end.status())

    async def _work(self, pod: Untyped, *, killed: bool) -> End:
        (container,) = pod["spec"]["containers"]
        answer = self._folder / pod["metadata"]["uid"]
        told = {one["name"]: one.get("value", "") for one in container["env"]}
        environment = {"PATH": os.environ["PATH"], "VMAFX_ANSWER_FILE": str(answer)}
        environment |= {name: value for name, value in told.items() if name.startswith("VMAFX_")}
        assert container["command"] == ["vmafx", "worker"]
        process = await asyncio.create_subprocess_exec(
            VMAFX, "worker", env=environment, stderr=asyncio.subprocess.DEVNULL
        )
        if killed:
            asyncio.get_running_loop().call_later(0.3, _kill, process)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            process.terminate()
            await process.wait()
            raise
        reason = "" if code >= 0 else "Error"
        return End(code if code >= 0 else 128 - code, answer.read_text() if answer.exists() else "", reason)

    async def _tell(self, pod: Untyped, status: dict[str, Any]) -> None:
        said = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await _until_heard(lambda: self._client.merge_patch(PODS, _key(pod), said, "status"))


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGKILL)


async def _until_heard(say: Callable[[], Awaitable[object]]) -> None:
    """Again and again, unless the Pod is gone, or another has its name."""
    while True:
        try:
            await say()
        except (NotFound, Conflict, Invalid):
            return
        except KubeError:
            await asyncio.sleep(AGAIN)
        else:
            return


def _key(pod: Untyped) -> Key:
    return Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
