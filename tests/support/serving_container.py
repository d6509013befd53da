"""The container of a serving Pod as a process of this machine, as the Pod describes it.

It has the variables of the container and a PATH, a folder in place of /scratch, and a root file system that it cannot
write to.
"""

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.serve_process import Reply, ServeProcess
from tests.support.waiting import eventually
from tests.support.worker_command import PROGRAMS
from vmafx.api.restricted import SCRATCH
from vmafx.kube.resources import UntypedObject

READ_ONLY_ROOT = 'mount --bind "$0" "$0" && mount -o remount,bind,ro / && exec "$@"'


class ServingContainer(ServeProcess):
    """The scoring server of a Pod, which has one container. Use as an async context manager.

    It is entered when the startup probe succeeds, and with `ready` the readiness probe. `host` is the Host of requests.
    """

    def __init__(self, pod: UntypedObject, folder: Path, *, ready: bool = True, host: str = "") -> None:
        super().__init__(folder)
        (self.container,) = pod["spec"]["containers"]
        (port,) = self.container["ports"]
        self.port, self.scratch, self.host = port["containerPort"], folder / "scratch", host
        self.scratch.mkdir(exist_ok=True)
        (mount,) = self.container["volumeMounts"]
        assert (mount["mountPath"], self.container["securityContext"]["readOnlyRootFilesystem"]) == (SCRATCH, True)
        variables = {one["name"]: one["value"].replace("$$", "$") for one in self.container["env"]}
        mounted = {name: str(self.scratch) if value == SCRATCH else value for name, value in variables.items()}
        self.environment = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", **mounted}
        self._probes = ("startupProbe", "readinessProbe") if ready else ("startupProbe",)

    async def start(self) -> None:
        await self.spawn()
        for name in self._probes:
            await eventually(partial(self.passes, name), f"the {name} succeeds")

    async def spawn(self) -> asyncio.subprocess.Process:
        """Start the process only."""
        isolated = ["unshare", "--map-root-user", "--mount", "sh", "-c", READ_ONLY_ROOT, str(self.scratch)]
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *isolated, *self.container["command"], env=self.environment, stderr=log, cwd="/"
            )
        return self.process

    async def passes(self, probe: str) -> bool:
        """Whether a probe of the container succeeds, as the kubelet decides it: by the address of the Pod."""
        request, (port,) = self.container[probe]["httpGet"], self.container["ports"]
        assert (request["port"], request["scheme"]) == (port["name"], "HTTP")
        timeout = aiohttp.ClientTimeout(self.container[probe]["timeoutSeconds"])
        try:
            async with self.session.get(request["path"], timeout=timeout, allow_redirects=False) as response:
                return 200 <= response.status < 400
        except (aiohttp.ClientError, TimeoutError):
            assert self.process is not None
            assert self.process.returncode is None, self.log.read_text()
            return False

    async def call(self, method: str, path: str, **options: Any) -> Reply:
        given = {"Host": self.host} if self.host else {}
        return await super().call(method, path, **{**options, "headers": {**given, **options.get("headers", {})}})
