"""A kubelet for tests: runs the command of every worker Pod as a local process, and reports how it ended.

It uses no containers and no images, but the real worker and a real API server, and retries while that is down. Tests
inject faults by setting the fate of single Pods.
"""

import asyncio
import base64
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tests.support.pod_runner import PodRunner
from vmafx.api.restricted import SCRATCH_ENVIRONMENT
from vmafx.kube import Client, ObjectKey, Resource
from vmafx.kube.errors import NotFound
from vmafx.kube.resources import UntypedObject

PROGRAMS = Path(sys.executable).parent  # as in an image: python3 with vmafx is the first in PATH
VMAFX = str(PROGRAMS / "vmafx")
SECRETS: Resource[UntypedObject] = Resource("", "v1", "secrets", "Secret", dict)
KILL_AFTER = 0.3  # seconds

Fate = Literal["killed", "oom", "evicted", "drained", "shut down", "empty", "garbage", "stuck"]
LOW_ON_MEMORY = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Mi."


class End(NamedTuple):
    """How a container ended."""

    code: int
    message: str
    reason: str = ""
    pod: dict[str, Any] = {}  # fields of the Pod's status

    def status(self) -> dict[str, Any]:
        reason = self.reason or ("Completed" if self.code == 0 else "Error")
        state = {"terminated": {"exitCode": self.code, "reason": reason, "message": self.message}}
        container = {"name": "worker", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": state}
        status: dict[str, Any] = {
            "phase": "Succeeded" if self.code == 0 else "Failed",
            "containerStatuses": [container],
        }
        return status | self.pod


def disrupted(by: str) -> dict[str, Any]:
    """The condition of a Pod that the cluster ended."""
    return {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": by}]}


ENDS: dict[Fate, End] = {
    "oom": End(137, "", "OOMKilled"),
    "evicted": End(137, "", pod={"reason": "Evicted", "message": LOW_ON_MEMORY, **disrupted("TerminationByKubelet")}),
    "drained": End(137, "", pod=disrupted("EvictionByEvictionAPI")),
    "shut down": End(137, "", pod={"reason": "Terminated", **disrupted("TerminationByKubelet")}),
    "empty": End(0, ""),
    "garbage": End(0, "\u0000{'score': 99}"),
}


class Kubelet(PodRunner):
    """Runs the Pods of a namespace. Use as an async context manager."""

    def __init__(self, client: Client, namespace: str, folder: Path) -> None:
        super().__init__(client, namespace, f"kubelet-{namespace}")
        self._folder = folder
        self.started: list[str] = []
        self.hold = asyncio.Event()  # while cleared, Pods are not started
        self.hold.set()
        self.answers: dict[str, tuple[int, str]] = {}  # by Pod: exit code and message, instead of running the worker
        self.fate: Callable[[str], Fate | None] = lambda _: None  # the fault of a Pod

    async def run(self, pod: UntypedObject, stopped: asyncio.Event) -> None:
        name = pod["metadata"]["name"]
        fate = self.fate(name)
        if fate == "stuck" or not await _wait_unless(stopped, self.hold):
            return
        self.started.append(name)
        await self.report(pod, {"phase": "Running"})
        if name in self.answers:
            end = End(*self.answers[name])
        elif fate in ENDS:
            end = ENDS[fate]
        else:
            end = await self._work(pod, stopped, killed=fate == "killed")
        await self.report(pod, end.status())

    async def _work(self, pod: UntypedObject, stopped: asyncio.Event, *, killed: bool) -> End:
        (container,) = pod["spec"]["containers"]
        answer = self._folder / pod["metadata"]["uid"]
        environment = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "VMAFX_ANSWER_FILE": str(answer)}
        environment |= await self._variables(container)
        timeout = ["timeout", "--signal=KILL", str(KILL_AFTER)] if killed else []
        process = await asyncio.create_subprocess_exec(
            *timeout, *container["command"], env=environment, cwd=self._folder, stderr=asyncio.subprocess.DEVNULL
        )
        stopping = asyncio.create_task(stopped.wait())
        stopping.add_done_callback(lambda _: _signal(process, signal.SIGTERM))
        try:
            code = await process.wait()
        finally:
            stopping.cancel()
            await process.wait()
        return End(code if code >= 0 else 128 - code, answer.read_text() if answer.exists() else "")

    async def _variables(self, container: dict[str, Any]) -> dict[str, str]:
        """The variables of a container, but for the folders of its image."""
        variables: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            if "secretRef" in source:
                variables |= await self._secret(source["secretRef"]["name"])
        for one in container["env"]:
            if reference := one.get("valueFrom", {}).get("secretKeyRef"):
                secret = await self._secret(reference["name"])
                if reference["key"] in secret:
                    variables[one["name"]] = secret[reference["key"]]
            else:
                variables[one["name"]] = one.get("value", "")
        return {name: value for name, value in variables.items() if name not in SCRATCH_ENVIRONMENT}

    async def _secret(self, name: str) -> dict[str, str]:
        try:
            secret = await self._client.get(SECRETS, ObjectKey(self._namespace, name))
        except NotFound:
            return {}
        return {key: base64.b64decode(value).decode() for key, value in secret.get("data", {}).items()}


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
