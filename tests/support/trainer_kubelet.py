"""A kubelet for trainers: runs the command of each Pod as a local process, and restarts it when it ends.

The process gets the Pod's variables, with keys of Secrets resolved, and a folder for each volume: the same one for
every Pod that uses the same claim. It listens on a port of its own; the kubelet's `address` leads to it by the name of
the training, as a Service would.
"""

import asyncio
import base64
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec
from aiohttp import web

from tests.support.kubelet import VMAFX
from tests.support.pod_runner import PodRunner
from vmafx.clock import utc_now
from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import SECRETS
from vmafx.kube.resources import UntypedObject
from vmafx.operator.training.manifests import TRAINING_LABEL

PROBE_INTERVAL, RESTART_AFTER = 0.1, 0.2  # seconds
TERMINATION_GRACE = 20.0  # seconds


class _TrainerPod(msgspec.Struct, eq=False):
    """A Pod and its process."""

    pod: UntypedObject
    port: int
    process: asyncio.subprocess.Process | None = None
    ready: bool = False
    restarts: int = 0


class TrainerKubelet(PodRunner):
    """Runs the trainers of a namespace. Use as an async context manager.

    `program` stands in for `vmafx` in the command of the Pod; `environment` is added to the variables of the Pod.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        folder: Path,
        *,
        program: str = VMAFX,
        environment: dict[str, str] | None = None,
    ) -> None:
        super().__init__(client, namespace, f"trainers-{namespace}")
        self._folder, self._program, self._environment = folder, program, environment or {}
        self._pods: dict[str, _TrainerPod] = {}  # by the name of the training
        self.loses_reply: Callable[[], bool] = lambda: False  # whether the reply to samples is lost on the way
        self.starts: list[str] = []  # names of trainings, one for each process that was started
        self.port = 0

    @property
    def address(self) -> str:
        """The pattern for VMAFX_TRAINER_ADDR."""
        return f"http://127.0.0.1:{self.port}/{{namespace}}/{{name}}"

    def data(self, training: str) -> Path:
        """The folder that stands for the volume of a training."""
        return self._folder / "claims" / f"vmafx-trainer-{training}"

    def kill(self, training: str) -> None:
        """End the process of a training at once, as the kernel does when memory runs out."""
        with suppress(KeyError, ProcessLookupError):  # it is being started
            os.kill(self.pid(training), signal.SIGKILL)

    def pid(self, training: str) -> int:
        """The process of a training. Raises ProcessLookupError if none runs."""
        process = self._pods[training].process
        if process is None or process.returncode is not None:
            raise ProcessLookupError(training)
        return process.pid

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{namespace}/{name}/{path:.*}", self._forward)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        self._session = aiohttp.ClientSession()
        return await super().__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        await self._session.close()
        await self._runner.cleanup()

    async def run(self, pod: UntypedObject, stopped: asyncio.Event) -> None:
        name = pod["metadata"]["labels"][TRAINING_LABEL]
        running = self._pods[name] = _TrainerPod(pod, _free_port())
        environment = await self._variables(running)
        probing = asyncio.create_task(self._probe(running))
        try:
            while not stopped.is_set():
                self.starts.append(name)
                await self._run_process(running, environment, stopped)
                running.restarts += 1
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), RESTART_AFTER)
        finally:
            probing.cancel()
            if self._pods.get(name) is running:
                del self._pods[name]

    async def _run_process(self, running: _TrainerPod, environment: dict[str, str], stopped: asyncio.Event) -> None:
        """Run the process until it ends; with `stopped`, ask it to end, and kill it if it does not."""
        (container,) = running.pod["spec"]["containers"]
        command = [self._program if part == "vmafx" else part for part in container["command"]]
        process = running.process = await asyncio.create_subprocess_exec(*command, env=environment)
        ended, stopping = asyncio.create_task(process.wait()), asyncio.create_task(stopped.wait())
        try:
            await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                await asyncio.wait([ended], timeout=TERMINATION_GRACE)
        finally:
            stopping.cancel()
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _variables(self, running: _TrainerPod) -> dict[str, str]:
        """The environment of the container, with folders of this machine in place of the mounted volumes."""
        (container,) = running.pod["spec"]["containers"]
        folders = await self._volumes(running.pod)
        mounts = {mount["mountPath"]: str(folders[mount["name"]]) for mount in container["volumeMounts"]}
        variables: dict[str, str] = {}
        for entry in container["env"]:
            if reference := entry.get("valueFrom", {}).get("secretKeyRef"):
                variables[entry["name"]] = (await self._secret(reference["name"], reference["key"])).decode()
            else:
                value = entry.get("value", "").replace("$$", "$")
                variables[entry["name"]] = mounts.get(value, value)
        listen = {"PATH": os.environ["PATH"], "VMAFX_TRAINER_LISTEN": f"127.0.0.1:{running.port}"}
        return {**listen, **variables, **self._environment}

    async def _volumes(self, pod: UntypedObject) -> dict[str, Path]:
        """A folder for each volume of a Pod."""
        folders: dict[str, Path] = {}
        for volume in pod["spec"]["volumes"]:
            folder = self._folder / "pods" / pod["metadata"]["uid"] / volume["name"]
            if claim := volume.get("persistentVolumeClaim"):
                folder = self._folder / "claims" / claim["claimName"]
            folder.mkdir(parents=True, exist_ok=True)
            for item in volume.get("secret", {}).get("items", ()):
                content = await self._secret(volume["secret"]["secretName"], item["key"])
                (folder / item["path"]).write_bytes(content)
            folders[volume["name"]] = folder
        return folders

    async def _secret(self, name: str, key: str) -> bytes:
        secret = await self._client.get(SECRETS, ObjectKey(self._namespace, name))
        return base64.b64decode(secret["data"][key])

    async def _probe(self, running: _TrainerPod) -> None:
        """Report whether the Pod is ready, as its readiness probe says."""
        (container,) = running.pod["spec"]["containers"]
        path, reported = container["readinessProbe"]["httpGet"]["path"], None
        while True:
            ready = await self._answers(running.port, path)
            if (ready, running.restarts) != reported:
                reported = ready, running.restarts
                await self.report(running.pod, _pod_status(running, ready=ready))
            await asyncio.sleep(PROBE_INTERVAL)

    async def _answers(self, port: int, path: str) -> bool:
        try:
            async with self._session.get(f"http://127.0.0.1:{port}{path}") as reply:
                return reply.status < 400
        except aiohttp.ClientError:
            return False

    async def _forward(self, request: web.Request) -> web.Response:
        """Forward a request to the trainer that it names."""
        running = self._pods.get(request.match_info["name"])
        if running is None or request.match_info["namespace"] != self._namespace:
            return web.Response(status=503)
        url = f"http://127.0.0.1:{running.port}/{request.match_info['path']}"
        headers = {name: value for name, value in request.headers.items() if name.lower() not in {"host", "connection"}}
        try:
            async with self._session.request(
                request.method, url, headers=headers, data=await request.read(), params=request.query
            ) as reply:
                if request.method == "POST" and self.loses_reply():
                    return web.Response(status=504)
                content_type = reply.headers.get("Content-Type", "application/octet-stream")
                return web.Response(
                    status=reply.status, body=await reply.read(), headers={"Content-Type": content_type}
                )
        except aiohttp.ClientError:
            return web.Response(status=503)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _pod_status(running: _TrainerPod, *, ready: bool) -> dict[str, Any]:
    """The status of a Pod whose container runs, as a kubelet reports it."""
    now = utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = {"PodScheduled": True, "Initialized": True, "ContainersReady": ready, "Ready": ready}
    (container,) = running.pod["spec"]["containers"]
    status = {
        "name": container["name"],
        "image": container["image"],
        "imageID": container["image"],
        "ready": ready,
        "started": True,
        "restartCount": running.restarts,
        "state": {"running": {"startedAt": now}},
    }
    return {
        "phase": "Running",
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
        "startTime": now,
        "conditions": [
            {"type": name, "status": str(holds), "lastTransitionTime": now} for name, holds in conditions.items()
        ],
        "containerStatuses": [status],
    }
