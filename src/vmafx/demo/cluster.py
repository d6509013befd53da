"""The child processes of the demo: a control plane, the operator, the controller and an agent."""

import asyncio
from pathlib import Path

from vmafx.cores import usable_cores
from vmafx.demo.progress import DemoError, StepPrinter
from vmafx.demo.roles import RoleProcesses, answers
from vmafx.devcluster import ClusterOptions, DevCluster, crds
from vmafx.devcluster.cluster import free_port
from vmafx.kube import NODES, Client, ObjectKey, load_config
from vmafx.kube.errors import NotFound

NAMESPACE, AGENT = "default", "this-machine"
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
        self.roles = RoleProcesses(folder)
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
        self.roles.start(
            "controller", *kubeconfig, "--auth", "insecure", "--grpc-address", f"127.0.0.1:{self._grpc_port}",
            "--http-address", f"127.0.0.1:{self._http_port}", **self._variables,
        )  # fmt: skip
        self.roles.start(
            "operator", *kubeconfig, "--metrics-bind-address", "0",
            "--health-probe-bind-address", f"127.0.0.1:{self._probe_port}", VMAFX_CONTROLLER_HTTP_ADDR=controller,
            VMAFX_TRAINER_IMAGE="vmafx", **self._variables,
        )  # fmt: skip
        self.roles.start(
            "agent", "--controller", f"127.0.0.1:{self._grpc_port}", "--insecure", "--name", AGENT,
            "--namespace", NAMESPACE, "--capacity", str(usable_cores()), "--state-dir", str(self._agent),
        )  # fmt: skip
        self.roles.wait_until(lambda: answers(f"{controller}/healthz"), "the controller did not answer", "controller")
        self.roles.wait_until(
            lambda: answers(f"http://127.0.0.1:{self._probe_port}/readyz"),
            "the operator did not become ready",
            "operator",
        )
        self.roles.wait_until(
            lambda: asyncio.run(_agent_ready(self.kubeconfig)), "the agent did not become ready", "agent"
        )

    def check(self) -> None:
        """Raise DemoError if a process has exited."""
        self.roles.check()
        state = self._control_plane.state()
        if state is None or state.broken():
            raise DemoError(f"{', '.join(state.broken()) if state else 'the control plane'} exited unexpectedly")

    def stop(self) -> None:
        """Stop all processes, in reverse order of their start."""
        self.roles.stop()
        self._control_plane.down()


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
