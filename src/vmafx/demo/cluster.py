"""The child processes of the demo: a control plane, the operator, the controller and an agent."""

import asyncio
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from vmafx.cores import usable_cores
from vmafx.demo.progress import DemoError, StepPrinter
from vmafx.devcluster import ClusterOptions, DevCluster, crds, process
from vmafx.devcluster.cluster import free_port
from vmafx.kube import NODES, Client, ObjectKey, load_config
from vmafx.kube.errors import NotFound

NAMESPACE, AGENT = "default", "this-machine"
READY_TIMEOUT = 90.0
WITHOUT = frozenset({"kube-controller-manager", "kube-scheduler"})  # jobs on agents need no Pods


class DemoCluster:
    """The control plane and the roles. All of them end with this process, even if it is killed.

    `folder` holds data and logs. `agent` is the agent's state folder: if it is kept, the next demo does not have to
    measure the speed of this machine again. With `training`, trainers are expected at the address `trainer`.
    """

    def __init__(self, folder: Path, agent: Path, steps: StepPrinter, *, training: bool = False) -> None:
        self.folder, self._agent = folder, agent
        self.trainer = f"127.0.0.1:{free_port()}"
        settings = {"VMAFX_TRAINER_ADDR": f"http://{self.trainer}", "VMAFX_TRAINER_POLL_SECONDS": "1"}
        self._variables = settings if training else {}
        self._control_plane = DevCluster(folder / "cluster", ClusterOptions(tethered=True, without=WITHOUT), steps)
        self._roles: list[process.ComponentProcess] = []
        (folder / "logs").mkdir()
        self._probe_port, self._http_port, self._grpc_port = free_port(), free_port(), free_port()

    @property
    def kubeconfig(self) -> Path:
        return self._control_plane.kubeconfig

    def start_control_plane(self) -> None:
        self._control_plane.up()
        asyncio.run(_install_crds(self.kubeconfig))

    def start_roles(self) -> None:
        """Start all roles at once (each waits for what it depends on), then wait until the agent accepts jobs."""
        kubeconfig = ("--kubeconfig", str(self.kubeconfig))
        controller = f"http://127.0.0.1:{self._http_port}"
        self.start_role(
            "controller", *kubeconfig, "--auth", "insecure", "--grpc-address", f"127.0.0.1:{self._grpc_port}",
            "--http-address", f"127.0.0.1:{self._http_port}", **self._variables,
        )  # fmt: skip
        self.start_role(
            "operator", *kubeconfig, "--metrics-bind-address", "0",
            "--health-probe-bind-address", f"127.0.0.1:{self._probe_port}", VMAFX_CONTROLLER_HTTP_ADDR=controller,
            VMAFX_TRAINER_IMAGE="vmafx", **self._variables,
        )  # fmt: skip
        self.start_role(
            "agent", "--controller", f"127.0.0.1:{self._grpc_port}", "--insecure", "--name", AGENT,
            "--namespace", NAMESPACE, "--capacity", str(usable_cores()), "--state-dir", str(self._agent),
        )  # fmt: skip
        self._wait_until(lambda: _answers(f"{controller}/healthz"), "the controller did not answer", "controller")
        self._wait_until(
            lambda: _answers(f"http://127.0.0.1:{self._probe_port}/readyz"),
            "the operator did not become ready",
            "operator",
        )
        self._wait_until(lambda: asyncio.run(_agent_ready(self.kubeconfig)), "the agent did not become ready", "agent")

    def check(self) -> None:
        """Raise DemoError if a process has exited."""
        self._check_roles()
        state = self._control_plane.state()
        if state is None or state.broken():
            raise DemoError(f"{', '.join(state.broken()) if state else 'the control plane'} exited unexpectedly")

    def stop(self) -> None:
        """Stop all processes, in reverse order of their start."""
        for role in reversed(self._roles):
            role.stop()
        self._control_plane.down()

    def start_role(self, role: str, *flags: str, **variables: str) -> None:
        command = [sys.executable, "-c", "from vmafx.cli.main import main; main()", role, *flags]
        self._roles.append(process.start_component(role, command, self.folder, tethered=True, variables=variables))

    def _wait_until(self, ready: Callable[[], bool], failure: str, role: str) -> None:
        deadline = time.monotonic() + READY_TIMEOUT
        while not ready():
            self._check_roles()
            if time.monotonic() > deadline:
                raise DemoError(f"{failure} within {READY_TIMEOUT:.0f} s; its last log line: {self._last_log(role)}")
            time.sleep(0.05)

    def _check_roles(self) -> None:
        for role in self._roles:
            if not role.alive():
                raise DemoError(f"`vmafx {role.name}` exited; its last log line: {self._last_log(role.name)}")

    def _last_log(self, role: str) -> str:
        """Message and error of the last line in a role's log."""
        line = process.last_error(self.folder / "logs" / f"{role}.log")
        try:
            entry = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            return line
        return ": ".join(str(entry[name]) for name in ("msg", "error") if name in entry)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - a role of this demo, on loopback
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


async def _install_crds(kubeconfig: Path) -> None:
    async with Client(load_config(kubeconfig)) as client:
        await crds.install_crds(client)


async def _agent_ready(kubeconfig: Path) -> bool:
    async with Client(load_config(kubeconfig)) as client:
        try:
            node = await client.get(NODES, ObjectKey(NAMESPACE, AGENT))
        except NotFound:
            return False
        return node.status.healthy is True and node.status.agentSession is not None
