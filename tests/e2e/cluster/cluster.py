"""The cluster: start, use, stop."""

import http.client
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

from tests.e2e.cluster import images, network
from tests.e2e.cluster.binaries import Binaries, find_binaries
from tests.e2e.cluster.control_plane import API_PORT, DNS_READY_PORT, ControlPlane, manifests, write_credentials
from tests.e2e.cluster.device_plugin import DevicePlugin
from tests.e2e.cluster.errors import CommandFailed, E2EError
from tests.e2e.cluster.leftovers import RunFolder
from tests.e2e.cluster.node import REGISTRY, SANDBOX_IMAGE, Node
from tests.e2e.cluster.process import Namespaces, wait_for
from tests.e2e.cluster.requirements import check_machine
from vmafx.devcluster.process import ComponentProcess
from vmafx.devcluster.progress import PlainProgress, ProgressReporter, duration
from vmafx.kube import load_config

NODES = ("node-1", "node-2")


class Cluster:
    """A Kubernetes cluster with real nodes. As a context manager: Ready on entry, gone on exit."""

    registry = REGISTRY  # HOST:PORT for Pods and nodes; without TLS, everyone may push

    def __init__(self, progress: ProgressReporter | None = None, names: Sequence[str] = NODES) -> None:
        self._progress = progress or PlainProgress()
        self._names = names
        self.nodes: dict[str, Node] = {}
        self._run: RunFolder | None = None
        self._binaries: Binaries | None = None
        self._machine: Namespaces | None = None
        self._control: ControlPlane | None = None
        self._relays: list[ComponentProcess] = []
        self._kubeconfig: Path | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        """The state folder, which has logs/."""
        assert self._run is not None, "the cluster is not running"
        return self._run.path

    @property
    def kubeconfig(self) -> Path:
        """For programs on this machine: its server is a port on 127.0.0.1."""
        assert self._kubeconfig is not None, "the cluster is not running"
        return self._kubeconfig

    @property
    def kubectl_path(self) -> Path:
        """For commands that `kubectl` does not suit, such as port-forward."""
        assert self._binaries is not None, "the cluster is not running"
        return self._binaries.kubectl

    @property
    def environment(self) -> dict[str, str]:
        """Variables for kubectl and other clients on this machine."""
        return {"KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": f"{self.folder}/kubectl"}

    # Start and stop

    def start(self) -> None:
        """Start the cluster and wait until its nodes are Ready; a failure leaves nothing."""
        check_machine()
        self._binaries = find_binaries(self._progress)
        started = time.monotonic()
        self._run = RunFolder.create()
        try:
            self._start(self._binaries)
        except BaseException:
            self.stop()
            raise
        self._progress.step(f"the cluster is ready after {duration(time.monotonic() - started)}")

    def _start(self, binaries: Binaries) -> None:
        (self.folder / "logs").mkdir()
        self._progress.step(f"creating namespaces and networks: {self.folder}")
        self._machine = Namespaces("control-plane", self.folder)
        for number, name in enumerate(self._names, 1):
            assert self._run is not None
            cgroup = self._run.make_cgroup(name)
            space = Namespaces(name, self.folder, inside=self._machine)
            self.nodes[name] = Node(number, self.folder, space, binaries, cgroup)
        network.connect(self._machine.holder.pid, {name: node.space.holder.pid for name, node in self.nodes.items()})
        relay, port = self._machine.relay(str(network.CONTROL_PLANE), API_PORT)
        self._relays.append(relay)
        self._kubeconfig = write_credentials(self.folder, self.nodes, port)
        self._control = ControlPlane(self._machine, binaries)
        self._progress.step("starting the control plane and containerd")
        self._control.start_api()
        self._prepare_nodes(binaries)
        self._wait(lambda: self._responds("/readyz"), "the API server is ready")
        self._control.start_controllers()
        self._progress.step("starting the nodes")
        self.kubectl("create", "-f", "-", stdin=manifests(self.folder / "volumes").decode())
        self._control.start_dns()
        for node in self.nodes.values():
            node.start()
        for name in self.nodes:
            self.wait_for_node(name)
        # The API server refuses Pods until the default service account exists.
        self._wait(
            lambda: self._responds("/api/v1/namespaces/default/serviceaccounts/default"), "a default service account"
        )
        with self.forward(str(network.CONTROL_PLANE), DNS_READY_PORT) as address:
            self._wait(lambda: _http_ok(address, "/ready"), "cluster DNS is ready")

    def _prepare_nodes(self, binaries: Binaries) -> None:
        archives = [
            images.pack(self.folder / "sandbox.tar", SANDBOX_IMAGE, binaries.probe, ["wait"]),
            images.pack(self.folder / "probe.tar", images.PROBE_IMAGE, binaries.probe),
        ]
        for node in self.nodes.values():
            node.prepare()
        for node in self.nodes.values():
            node.wait_for_containerd()
            for archive in archives:
                node.load_image(archive)

    def stop(self) -> None:
        """Kill everything, and remove what is left in the file system. Safe to call twice."""
        if self._run is None:
            return
        if self._machine is not None and self._machine.holder.alive():
            os.kill(self._machine.holder.pid, signal.SIGKILL)
        for process in self._processes():
            process.stop()
        if self._machine is not None:
            self._machine.wait_until_gone()
        self._run.remove()
        self.nodes, self._relays = {}, []
        self._run = self._machine = self._control = self._kubeconfig = None

    def _processes(self) -> list[ComponentProcess]:
        """All processes that this one has started, the namespaces last."""
        nodes = list(self.nodes.values())
        holders = [node.space.holder for node in nodes] + ([self._machine.holder] if self._machine else [])
        control = self._control.processes if self._control else []
        return [*self._relays, *control, *(one for node in nodes for one in node.processes()), *holders]

    # Use

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True, timeout: float = 120.0
    ) -> "subprocess.CompletedProcess[str]":
        """Run kubectl as administrator. Raises CommandFailed, unless `check` is False."""
        command = [
            str(self.kubectl_path),
            f"--kubeconfig={self.kubeconfig}",
            f"--cache-dir={self.folder}/kubectl",
            *arguments,
        ]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
        if check and done.returncode != 0:
            raise CommandFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done

    def get(self, *arguments: str) -> Any:
        """What `kubectl get ... --output=json` prints."""
        return msgspec.json.decode(self.kubectl("get", "--output=json", *arguments).stdout)

    def command(self, command: Sequence[str], node: str | None = None) -> list[str]:
        """The command line that runs a command beside the control plane, or on a node, for subprocess and the like.

        It reaches Pods, Services and, beside the control plane, names of the cluster. It sees the files of this
        machine, and ends when this command line is killed, or with the cluster.
        """
        assert self._machine is not None, "the cluster is not running"
        return (self.nodes[node].space if node else self._machine).command(command)

    def load_image(self, archive: Path, tag: str | None = None) -> None:
        """Import an image (docker-archive, or OCI layout as a tar file) on all nodes; `tag` is one more name for it.

        A bare name such as vmafx-operator:dev means docker.io/library/vmafx-operator:dev, here as in Pods.
        """
        if not archive.is_file():
            raise E2EError(f"{archive} does not exist: build the image first")
        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(node.load_image, archive, tag) for node in self.nodes.values()]:
                done.result()

    @contextmanager
    def forward(self, host: str, port: int) -> Iterator[str]:
        """127.0.0.1:PORT of this machine, leading to an address or name of the cluster until the end of the block."""
        assert self._machine is not None, "the cluster is not running"
        process, local = self._machine.relay(host, port)
        self._relays.append(process)
        try:
            yield f"127.0.0.1:{local}"
        finally:
            process.stop()
            self._relays.remove(process)

    # Nodes

    def lose_node(self, name: str, *, unplug: bool = False) -> None:
        """Kill the kubelet: the node becomes NotReady, its containers go on. With `unplug`, nobody reaches them."""
        self.nodes[name].kill_kubelet()
        if unplug:
            self._plug(name, plugged=False)

    def return_node(self, name: str) -> None:
        """Undo `lose_node`, and wait until the kubelet says again that the node is Ready."""
        before = self._last_renewal(name)
        self._plug(name, plugged=True)
        self.nodes[name].start_kubelet()
        self._wait(lambda: self._last_renewal(name) != before, f"the kubelet of {name} renews its lease")
        self.wait_for_node(name)

    @contextmanager
    def node_loss(self, name: str, *, unplug: bool = False) -> Iterator[None]:
        """The node is lost until the end of the block: see lose_node."""
        self.lose_node(name, unplug=unplug)
        try:
            yield
        finally:
            self.return_node(name)

    def wait_for_node(self, name: str, *, ready: bool = True, within: float = 120.0) -> None:
        """Wait until a node is Ready, or is no longer."""
        what = f"{name} is {'' if ready else 'not '}Ready"
        watched = self.nodes[name].processes() if ready else []
        self._wait(lambda: self._is_ready(name) == ready, what, within, watched)

    def kill_container(self, pod: Any) -> None:
        """Kill (SIGKILL) all processes of the first container of a Pod, as read by `get`."""
        self.nodes[pod["spec"]["nodeName"]].kill_container(pod["status"]["containerStatuses"][0]["containerID"])

    @contextmanager
    def device_plugin(self, node: str, resource: str, count: int = 1) -> Iterator[DevicePlugin]:
        """The node offers devices, such as nvidia.com/gpu, until the end of the block."""
        plugin = DevicePlugin(self.folder, self.nodes[node].folder, resource, count)
        try:
            self._wait(lambda: self.allocatable(node, resource) == count, f"{node} offers {count} {resource}")
            yield plugin
        finally:
            plugin.stop()
        self._wait(lambda: self.allocatable(node, resource) == 0, f"{node} offers no {resource}")

    def allocatable(self, node: str, resource: str) -> int:
        """How many devices of a kind the node offers, in use or not."""
        return int(self.get("node", node)["status"]["allocatable"].get(resource, 0))

    # What happened

    def diagnose(self, namespace: str) -> str:
        """Pods, events, and the description and logs of each Pod that did not succeed, for a failed test."""
        parts = [
            self._shown("get", "pods,jobs,deployments,statefulsets", "--output=wide", namespace=namespace),
            self._shown("get", "events", "--sort-by=.lastTimestamp", namespace=namespace),
        ]
        for pod in self.get("pods", f"--namespace={namespace}")["items"]:
            if not _went_well(pod["status"]):
                name = pod["metadata"]["name"]
                parts.append(self._shown("describe", "pod", name, namespace=namespace))
                logs = ("logs", name, "--all-containers", "--prefix", "--tail=100")
                parts.append(self._shown(*logs, namespace=namespace))
                if any(one["restartCount"] for one in pod["status"].get("containerStatuses", [])):
                    parts.append(self._shown(*logs, "--previous", namespace=namespace))
        parts.append(self._shown("get", "nodes", "--output=wide", namespace=namespace))
        return "\n\n".join(parts)

    def _shown(self, *arguments: str, namespace: str) -> str:
        """A kubectl command and what it prints; it may fail, as when a node is lost."""
        command = (*arguments, f"--namespace={namespace}", "--request-timeout=20s")
        try:
            done = self.kubectl(*command, check=False, timeout=60)
        except subprocess.TimeoutExpired as error:
            return f"$ kubectl {' '.join(command)}\n{error}"
        return f"$ kubectl {' '.join(command)}\n{done.stdout}{done.stderr}".rstrip()

    def _plug(self, name: str, *, plugged: bool) -> None:
        assert self._machine is not None
        network.set_cable(self._machine.holder.pid, name, plugged=plugged)
        others = [node for node in self.nodes.values() if node.name != name]
        if others and not plugged:
            network.route_services(self._machine.holder.pid, others[0].number)

    def _last_renewal(self, node: str) -> str:
        return str(self.get("lease", node, "--namespace=kube-node-lease")["spec"]["renewTime"])

    def _is_ready(self, name: str) -> bool:
        shown = self.kubectl("get", "node", name, "--output=json", check=False)
        if shown.returncode != 0:
            return False
        conditions = msgspec.json.decode(shown.stdout)["status"].get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    # Readiness

    def _wait(
        self,
        holds: Callable[[], bool],
        what: str,
        within: float = 120.0,
        extra_processes: Sequence[ComponentProcess] = (),
    ) -> None:
        """Wait for a condition; fails at once if the control plane or one of the `extra_processes` has ended."""
        wait_for(
            holds, what, [*(self._control.processes if self._control else []), *extra_processes], self.folder, within
        )

    def _responds(self, path: str) -> bool:
        config = load_config(self.kubeconfig)
        host, _, port = config.server.removeprefix("https://").partition(":")
        connection = http.client.HTTPSConnection(host, int(port), timeout=5, context=config.tls)
        return _status(connection, path) == http.client.OK


def _went_well(status: dict[str, Any]) -> bool:
    """Succeeded, or running and Ready without a restart."""
    containers = status.get("containerStatuses", [])
    ready = status["phase"] == "Running" and all(one["ready"] and one["restartCount"] == 0 for one in containers)
    return ready or status["phase"] == "Succeeded"


def _http_ok(address: str, path: str) -> bool:
    return _status(http.client.HTTPConnection(address, timeout=5), path) == http.client.OK


def _status(connection: http.client.HTTPConnection, path: str) -> int:
    """The status of the response; 0 if there is none."""
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
