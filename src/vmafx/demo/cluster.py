"""The processes of the demo: a control plane, the operator, the controller and an agent, ended in reverse."""

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
WITHOUT = frozenset({"kube-controller-manager", "kube-scheduler"})  # agents' jobs need no Pods


class DemoCluster:
    """Everything that runs, in `folder`; each process ends with us, however we end.

    `agent` is a folder that may stay: its agent measures this machine only once.
    """

    def __init__(self, folder: Path, agent: Path, steps: StepPrinter) -> None:
        self._folder, self._agent = folder, agent
        self._control_plane = DevCluster(folder / "cluster", ClusterOptions(tethered=True, without=WITHOUT), steps)
        self._roles: list[process.ComponentProcess] = []
        (folder / "logs").mkdir()
        self._operator, self._http, self._grpc = free_port(), free_port(), free_port()

    @property
    def kubeconfig(self) -> Path:
        return self._control_plane.kubeconfig

    def start_control_plane(self) -> None:
        self._control_plane.up()
        asyncio.run(_install(self.kubeconfig))

    def start_roles(self) -> None:
        """All at once: each waits for what it needs."""
        kubeconfig = ("--kubeconfig", str(self.kubeconfig))
        door = f"http://127.0.0.1:{self._http}"
        self._start(
            "controller", *kubeconfig, "--auth", "insecure", "--grpc-address", f"127.0.0.1:{self._grpc}",
            "--http-address", f"127.0.0.1:{self._http}",
        )  # fmt: skip
        self._start(
            "operator", *kubeconfig, "--metrics-bind-address", "0",
            "--health-probe-bind-address", f"127.0.0.1:{self._operator}", VMAFX_CONTROLLER_HTTP_ADDR=door,
        )  # fmt: skip
        self._start(
            "agent", "--controller", f"127.0.0.1:{self._grpc}", "--insecure", "--name", AGENT,
            "--namespace", NAMESPACE, "--capacity", str(usable_cores()), "--state-dir", str(self._agent),
        )  # fmt: skip
        self._until(lambda: _answers(f"{door}/healthz"), "the controller answers", "controller")
        self._until(lambda: _answers(f"http://127.0.0.1:{self._operator}/readyz"), "the operator is ready", "operator")
        self._until(lambda: asyncio.run(_takes_jobs(self.kubeconfig)), "the agent's node takes jobs", "agent")

    def check(self) -> None:
        """Raise if anything has ended by itself."""
        for one in self._roles:
            self._check(one)
        state = self._control_plane.state()
        if state is None or state.broken():
            raise DemoError(f"{', '.join(state.broken()) if state else 'the control plane'} ended by itself")

    def stop(self) -> None:
        for one in reversed(self._roles):
            one.stop()
        self._control_plane.down()

    def _start(self, role: str, *flags: str, **variables: str) -> None:
        command = [sys.executable, "-c", "from vmafx.cli.main import main; main()", role, *flags]
        self._roles.append(process.start_component(role, command, self._folder, tethered=True, variables=variables))

    def _until(self, holds: Callable[[], bool], what: str, role: str) -> None:
        deadline = time.monotonic() + READY_TIMEOUT
        while not holds():
            for one in self._roles:
                self._check(one)
            if time.monotonic() > deadline:
                raise DemoError(f"not within {READY_TIMEOUT:.0f} s: {what}; it said last: {self._said(role)}")
            time.sleep(0.05)

    def _check(self, one: process.ComponentProcess) -> None:
        if not one.alive():
            raise DemoError(f"`vmafx {one.name}` ended; it said last: {self._said(one.name)}")

    def _said(self, role: str) -> str:
        """The last of its log, and of that what is wrong."""
        line = process.last_error(self._folder / "logs" / f"{role}.log")
        try:
            told = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            return line
        return ": ".join(str(told[name]) for name in ("msg", "error", "why") if name in told)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own, on loopback
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


async def _install(kubeconfig: Path) -> None:
    async with Client(load_config(kubeconfig)) as client:
        await crds.install_crds(client)


async def _takes_jobs(kubeconfig: Path) -> bool:
    async with Client(load_config(kubeconfig)) as client:
        try:
            node = await client.get(NODES, ObjectKey(NAMESPACE, AGENT))
        except NotFound:
            return False
        return node.status.healthy is True and node.status.agentSession is not None
