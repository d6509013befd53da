"""Faults of a real cluster: of the product's Pods and containers, and of Kubernetes nodes.

A fault of a Kubernetes node hits two jobs that run there, in a Pod and by an agent, and cannot end before: their clips
are held until it is clear what became of their attempts.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.e2e.clips import ClipServer
from tests.e2e.cluster.errors import CommandFailed
from tests.e2e.product import Product, is_ready
from tests.support.chaos_plan import Fault, PlannedJob
from tests.support.waiting import until
from vmafx.api.job import VmafxJob
from vmafx.operator.job.pod_cache import JOB_LABEL

PODS_POOL, AGENTS_POOL = "pods", "agents"  # values of the label `pool` of VmafxNodes
AGENT = f"agent-{AGENTS_POOL}"  # component of the chart
# The component whose Pod is deleted, or whose container is killed.
DELETED: dict[Fault, str] = {
    "delete leader's Pod": "operator", "delete controller's Pod": "controller", "delete agent's Pod": AGENT,
}  # fmt: skip
KILLED: dict[Fault, str] = {"kill leader": "operator", "kill controller": "controller", "kill agent": AGENT}
LOST = 240  # seconds until Pods and jobs have left a lost node
FIRST = 100  # priority of the jobs that a fault has to hit


class ClusterFaults:
    """Injects faults into a release; `choice` selects the victims, `kill_worker` kills a worker if there is one."""

    def __init__(
        self, product: Product, clips: ClipServer, choice: random.Random, kill_worker: Callable[[], bool]
    ) -> None:
        self._product, self._cluster, self._clips = product, product.cluster, clips
        self._choice, self._kill_worker = choice, kill_worker
        self.jobs: list[PlannedJob] = []  # that were hit by faults of Kubernetes nodes

    def inject(self, fault: Fault) -> None:
        if fault in DELETED:
            self._delete(self._victim(DELETED[fault]))
        elif fault in KILLED:
            until(lambda: self._kill(self._victim(KILLED[fault])), "a container is killed", LOST)
        elif fault == "delete worker's Pod":
            until(self._delete_worker, "there is a worker's Pod", LOST)
        elif fault == "kill worker":
            until(self._kill_worker, "there is a worker", LOST)
        else:
            of_nodes: dict[Fault, Callable[[str], None]] = {
                "kill kubelet": self._kill_kubelet,
                "drain Kubernetes node": self._drain,
                "unplug Kubernetes node": self._unplug,
            }
            of_nodes[fault](fault.split(maxsplit=1)[0])

    def stop_agent_of(self, job: VmafxJob) -> None:
        """Kill the agent that runs a job, or delete its Pod."""
        with suppress(CommandFailed):  # it has ended already
            agent = self._product.get("pod", job.status.assignedNode or "")
            end: Callable[[Any], object] = self._choice.choice([self._delete, self._kill])
            end(agent)

    # Pods and containers

    def _victim(self, component: str) -> Any:
        """A Pod that is Ready; of operators, the leader."""
        victims: list[Any] = []

        def look() -> bool:
            leader = self._product.leader() if component == "operator" else None
            victims[:] = filter(is_ready, self._product.pods(component) if leader is None else [leader])
            return bool(victims)

        until(look, f"a Pod of the {component} is ready")
        return self._choice.choice(sorted(victims, key=lambda pod: str(pod["metadata"]["name"])))

    def _kill(self, pod: Any) -> bool:
        """Kill the container of a Pod; False if it has ended already, and its status does not say so yet."""
        try:
            self._cluster.kill_container(pod)
        except CommandFailed:
            return False
        return True

    def _delete(self, pod: Any) -> None:
        self._product.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")

    def _delete_worker(self) -> bool:
        pods = self._product.get("pods", f"--selector={JOB_LABEL}", "--field-selector=status.phase=Running")["items"]
        if pods:
            self._delete(self._choice.choice(pods))
        return bool(pods)

    # Kubernetes nodes

    def _kill_kubelet(self, prefix: str) -> None:
        """Until the product's Pods have to leave the node; workers are left, and their results count."""
        with self._jobs_on_a_node(prefix) as (node, in_a_pod, _):
            with self._cluster.node_loss(node):
                self._cluster.wait_for_node(node, ready=False)
                until(lambda: not self._staying(node, f"!{JOB_LABEL}"), f"the product leaves {node}", LOST)
                self._clips.release(in_a_pod)
            self._product.finished(in_a_pod)
            self._wait_for_attempt(1, in_a_pod, failures=0)

    def _drain(self, prefix: str) -> None:
        with self._jobs_on_a_node(prefix) as (node, in_a_pod, _):
            try:
                self._product.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=140s")
            finally:
                self._product.kubectl("uncordon", node)
            self._wait_for_attempt(2, in_a_pod, failures=0)

    def _unplug(self, prefix: str) -> None:
        """Until the jobs of its agent have left the node, and all Pods have to."""
        with self._jobs_on_a_node(prefix) as (node, in_a_pod, by_an_agent):
            with self._cluster.node_loss(node, unplug=True):
                self._wait_for_attempt(2, by_an_agent, failures=1)
                until(lambda: not self._staying(node), f"all Pods leave {node}", LOST)
            self._wait_for_attempt(2, in_a_pod, failures=0)

    @contextmanager
    def _jobs_on_a_node(self, prefix: str) -> Iterator[tuple[str, str, str]]:
        """A Kubernetes node, and two jobs that run there: in a Pod and by an agent. They end after the block."""
        in_a_pod, by_an_agent = (f"{prefix}-{where}" for where in ("in-a-pod", "by-an-agent"))
        self._submit(in_a_pod, PODS_POOL)
        node = self._product.get("pod", f"{in_a_pod}-0")["spec"]["nodeName"]
        # Each Kubernetes node has an agent, unless it is just replaced.
        until(lambda: len(self._agents()) == len(self._cluster.nodes), "the Pods of all agents are ready", LOST)
        elsewhere = [name for name, at in self._agents().items() if at != node]
        for name in elsewhere:
            self._cordon(name, cordoned=True)
        self._submit(by_an_agent, AGENTS_POOL)
        assert self._product.job(by_an_agent)["assignedNode"] not in elsewhere
        for name in elsewhere:
            self._cordon(name, cordoned=False)
        yield node, in_a_pod, by_an_agent
        self._clips.release(in_a_pod, by_an_agent)

    def _submit(self, name: str, pool: str) -> None:
        """Submit a job, and wait until it runs."""
        self.jobs.append(PlannedJob(name, "plain", (), ()))
        self._product.submit(name, self._clips.urls(held=name), pool=pool, priority=FIRST)
        until(lambda: self._clips.times_asked(name) > 0, f"{name} runs", LOST)

    def _agents(self) -> dict[str, str]:
        """The agents whose Pod is Ready, with their Kubernetes nodes."""
        ready = filter(is_ready, self._product.pods(AGENT))
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in ready}

    def _cordon(self, agent: str, *, cordoned: bool) -> None:
        """Cordon or uncordon a VmafxNode, and wait until the operator has seen that."""
        self._product.wait_for_node(agent)
        patch = f'{{"spec": {{"unschedulable": {str(cordoned).lower()}}}}}'
        self._product.kubectl("patch", f"vmnode/{agent}", "--type=merge", f"--patch={patch}")
        until(lambda: self._is_cordoned(agent) == cordoned, f"the operator knows whether {agent} is cordoned", LOST)

    def _is_cordoned(self, agent: str) -> bool:
        """As the operator says."""
        return "; cordoned: " in self._product.get("vmnode", agent)["status"]["conditions"][0]["message"]

    def _wait_for_attempt(self, number: int, job: str, *, failures: int) -> None:
        """Wait until a job has been placed so often; this many attempts have counted as failures."""
        until(lambda: self._product.job(job).get("attempts", 0) >= number, f"attempt {number} of {job}", LOST)
        status = self._product.job(job)
        assert (status["attempts"], status.get("failures", 0)) == (number, failures), f"{job}: {status}"

    def _staying(self, node: str, selector: str = "") -> list[str]:
        """The Pods of a node that are not to be deleted."""
        pods = self._product.get("pods", f"--selector={selector}", f"--field-selector=spec.nodeName={node}")["items"]
        return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
