"""A kubelet for Pods that serve: it gives each an address of its own and reports it ready, until the Pod is deleted.

kube-controller-manager does the rest for real: ReplicaSets, rollouts and EndpointSlices.
"""

import asyncio
import ipaddress
import itertools
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from tests.support.gateway.backends import TRACK_LABEL, Backend
from tests.support.pod_runner import PodRunner
from vmafx.clock import utc_now
from vmafx.kube import Client
from vmafx.kube.resources import UntypedObject

POD_RANGE = ipaddress.IPv4Network("10.251.0.0/16")
FIRST_ADDRESS = 256  # 10.251.1.0; those below are for other servers
MAX_PRE_STOP = 1.0  # seconds: longer preStop sleeps are shortened to this, since endpoints change within milliseconds


class _ServingPod(msgspec.Struct):
    pod: UntypedObject
    address: str
    reporting: asyncio.Lock  # one report at a time: they must arrive in their order
    ready: bool | None = None  # as last reported


class ServingKubelet(PodRunner):
    """Runs the Pods of a namespace. Use as an async context manager.

    With `serve`, a Backend listens on the address of each Pod, which must be local; without, no process uses it.
    """

    def __init__(self, client: Client, namespace: str, *, serve: bool = False) -> None:
        super().__init__(client, namespace, f"serving-{namespace}")
        self._serve = serve
        self._addresses = (str(POD_RANGE[number]) for number in itertools.count(FIRST_ADDRESS))
        self._pods: dict[str, _ServingPod] = {}  # by uid
        self.ready: Callable[[str], bool] = lambda _: True  # whether the Pod of this name may become ready

    async def reevaluate(self) -> None:
        """Ask `ready` again for every running Pod, and report those that changed."""
        for running in list(self._pods.values()):
            await self._report_readiness(running)

    async def run(self, pod: UntypedObject, stopped: asyncio.Event) -> None:
        uid = pod["metadata"]["uid"]
        running = _ServingPod(pod, next(self._addresses), asyncio.Lock())
        async with AsyncExitStack() as cleanup:
            if self._serve:
                await cleanup.enter_async_context(_backend(running))
            self._pods[uid] = running
            cleanup.callback(self._pods.pop, uid)
            await self._report_readiness(running)
            await stopped.wait()
            if self._serve:
                await asyncio.sleep(min(_pre_stop_seconds(pod), MAX_PRE_STOP))

    async def _report_readiness(self, running: _ServingPod) -> None:
        async with running.reporting:
            ready = self.ready(running.pod["metadata"]["name"])
            if ready != running.ready:
                running.ready = ready
                await self.report(running.pod, _status(running, ready=ready))


def _backend(running: _ServingPod) -> Backend:
    metadata, port = running.pod["metadata"], _http_port(running.pod)
    return Backend(running.address, port, pod=metadata["name"], track=metadata["labels"].get(TRACK_LABEL, ""))


def _http_port(pod: UntypedObject) -> int:
    ports = (port for container in pod["spec"]["containers"] for port in container.get("ports", ()))
    number: int = next(port["containerPort"] for port in ports if port.get("name") == "http")
    return number


def _pre_stop_seconds(pod: UntypedObject) -> float:
    hooks = (container.get("lifecycle", {}).get("preStop", {}) for container in pod["spec"]["containers"])
    return max(float(hook.get("sleep", {}).get("seconds", 0)) for hook in hooks)


def _status(running: _ServingPod, *, ready: bool) -> dict[str, Any]:
    """The status of a Pod whose containers run, as a kubelet reports it."""
    now = utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = {"PodScheduled": True, "Initialized": True, "ContainersReady": ready, "Ready": ready}
    state = {"running": {"startedAt": now}}
    return {
        "phase": "Running",
        "hostIP": str(POD_RANGE[1]),
        "podIP": running.address,
        "podIPs": [{"ip": running.address}],
        "startTime": now,
        "conditions": [
            {"type": name, "status": str(holds), "lastTransitionTime": now} for name, holds in conditions.items()
        ],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": container["image"],
                "ready": ready,
                "started": True,
                "restartCount": 0,
                "state": state,
            }
            for container in running.pod["spec"]["containers"]
        ],
    }
