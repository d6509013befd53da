"""Jobs under the faults of a real cluster: of the product's Pods and containers, and of Kubernetes nodes.

Jobs run in Pods and by agents, as planned. The clips of those that have to be caught while they run arrive only when
they are released.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.e2e.agent_logs import AgentLogs
from tests.e2e.clips import ClipServer
from tests.e2e.cluster.errors import CommandFailed
from tests.e2e.product import Product, is_ready
from tests.e2e.watched_history import WatchedHistory
from tests.support.agent_process import read
from tests.support.chaos_jobs import ChaosJobs, persist
from tests.support.chaos_plan import SHORT, Fault, Kind, Plan, PlannedJob
from tests.support.job_history import Change, condition, job_updates
from tests.support.machines import AgentLogEntry, end, worked_attempt
from tests.support.waiting import eventually, until
from vmafx.api.job import FINISHED, VmafxJob, VmafxJobSpec
from vmafx.kube import JOBS, NODES, Client, ObjectKey, load_config
from vmafx.kube.core import PODS
from vmafx.operator.job.pod_cache import JOB_LABEL

PODS_POOL, AGENTS_POOL = "pods", "agents"  # values of the label `pool` of VmafxNodes
AGENT = f"agent-{AGENTS_POOL}"  # component of the chart
REPLICAS = {"operator": 2, "controller": 2, AGENT: 2}
# The component whose Pod is deleted, or whose container is killed.
DELETED: dict[Fault, str] = {
    "delete leader's Pod": "operator", "delete controller's Pod": "controller", "delete agent's Pod": AGENT,
}  # fmt: skip
KILLED: dict[Fault, str] = {"kill leader": "operator", "kill controller": "controller", "kill agent": AGENT}
AT_ONCE = 14
# Their clips are never released, or not before the planned fault has happened.
HELD: frozenset[Kind] = frozenset({"hurt", "robbed", "paused", "stopped", "late", "hopeless"})
RELEASED: frozenset[Kind] = frozenset({"hurt", "robbed", "paused"})
VARIABLE = re.compile(r"\S*[-:]\d\S*|; last log line.*")  # in messages: names with numbers, and times
POLL_INTERVAL = 0.1  # seconds, for workers that the plan kills
LOST = 240  # seconds until Pods and jobs have left a lost node


class ClusterFleet:
    """The Pods and agents of a release; the seed selects the victims of faults."""

    def __init__(self, product: Product, client: Client, history: WatchedHistory, plan: Plan, seed: int) -> None:
        self._product, self._cluster, self._client = product, product.cluster, client
        self._history, self._plan, self._choice = history, plan, random.Random(seed)
        self._logs = AgentLogs([node.folder / "log" for node in self._cluster.nodes.values()], product.namespace)
        self.injected: Counter[Fault] = Counter()
        self.killed: set[str] = set()  # attempts whose worker was killed as planned

    # Faults

    async def inject(self, fault: Fault) -> None:
        await asyncio.to_thread(self._inject, fault)
        self.injected[fault] += 1

    def _inject(self, fault: Fault) -> None:
        if fault in DELETED:
            self._delete(self._victim(DELETED[fault]))
        elif fault in KILLED:
            self._cluster.kill_container(self._victim(KILLED[fault]))
        elif fault == "delete worker's Pod":
            until(self._delete_worker, "there is a worker's Pod")
        elif fault == "kill worker":
            until(self._kill_worker, "there is a worker")
        elif fault == "drain Kubernetes node":
            self._drain()
        elif fault == "unplug Kubernetes node":
            self._unplug_node()
        elif fault == "kill kubelet":
            self._lose_node()
        else:
            raise AssertionError(f"not a fault of a real cluster: {fault}")

    def _victim(self, component: str) -> Any:
        """A Pod that is Ready; of operators, the leader."""
        victims: list[Any] = []

        def look() -> bool:
            leader = self._product.leader() if component == "operator" else None
            victims[:] = filter(is_ready, self._product.pods(component) if leader is None else [leader])
            return bool(victims)

        until(look, f"a Pod of the {component} is ready")
        return self._choice.choice(sorted(victims, key=lambda pod: str(pod["metadata"]["name"])))

    def _delete(self, pod: Any) -> None:
        self._product.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")

    def _delete_worker(self) -> bool:
        pods = self._product.get("pods", f"--selector={JOB_LABEL}", "--field-selector=status.phase=Running")["items"]
        if pods:
            self._delete(self._choice.choice(pods))
        return bool(pods)

    def _kill_worker(self) -> bool:
        workers = sorted(self._workers())
        if workers:
            end(self._choice.choice(workers))
        return bool(workers)

    def _lose_node(self) -> None:
        """Kill a kubelet, for as long as it takes until the product's Pods have to leave the node; not its workers."""
        node = self._choice.choice(sorted(self._cluster.nodes))
        with self._cluster.node_loss(node):
            self._cluster.wait_for_node(node, ready=False)
            until(lambda: not self._staying(node, f"!{JOB_LABEL}"), f"the product leaves {node}", LOST)

    def _unplug_node(self) -> None:
        """Cut off the node of an agent, for as long as it takes until all Pods and the jobs of agents leave it."""
        node = self._victim(AGENT)["spec"]["nodeName"]
        agents = [one["metadata"]["name"] for one in self._product.pods(AGENT) if one["spec"]["nodeName"] == node]
        with self._cluster.node_loss(node, unplug=True):
            lost = '--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=AgentLost'
            self._product.kubectl(
                "wait", lost, f"--timeout={LOST}s", *(f"vmnode/{name}" for name in agents), timeout=LOST
            )
            until(lambda: not self._staying(node), f"all Pods leave {node}", LOST)

    def _staying(self, node: str, selector: str = "") -> list[str]:
        """The Pods of a node that are not to be deleted."""
        pods = self._product.get("pods", f"--selector={selector}", f"--field-selector=spec.nodeName={node}")["items"]
        return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def _drain(self) -> None:
        node = self._choice.choice(sorted(self._cluster.nodes))
        try:
            self._product.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=140s")
        finally:
            self._product.kubectl("uncordon", node)

    async def kill_work(self, job: VmafxJob) -> None:
        """Delete the Pod of the attempt, or let its agent end by one of the two ways."""
        node = job.status.assignedNode or ""
        if node == PODS_POOL:
            pod = ObjectKey(self._product.namespace, f"{job.metadata.name}-{job.status.attempts - 1}")
            await persist(lambda: self._client.delete(PODS, pod), ignore_missing=True)
        elif node:
            with suppress(CommandFailed):  # it has ended already
                agent = await asyncio.to_thread(self._product.get, "pod", node)
                end_it = self._choice.choice([self._delete, self._cluster.kill_container])
                await asyncio.to_thread(end_it, agent)

    async def watch_machines(self) -> None:
        """Read the logs of agents, and kill the workers of attempts that the plan lets fail, until cancelled."""
        while True:
            self._logs.poll()
            for pid, attempt in self._workers().items():
                uid, _, number = attempt.rpartition("-")
                if self._plan.fate_of(f"{self._history.jobs[uid]}-{number}"):
                    end(pid)
                    self.killed.add(attempt)
            await asyncio.sleep(POLL_INTERVAL)

    # State

    def _workers(self) -> dict[int, str]:
        """The workers of all jobs by pid, with their attempts."""
        jobs = self._history.jobs
        pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        attempts = {pid: attempt for pid in pids if (attempt := worked_attempt(pid)).rpartition("-")[0] in jobs}
        return {pid: attempt for pid, attempt in attempts.items() if attempts.get(_parent(pid)) != attempt}

    async def is_stopped(self, job: VmafxJob) -> bool:
        return not [attempt for attempt in self._workers().values() if attempt.startswith(job.metadata.uid)]

    async def is_idle(self) -> bool:
        """Neither a worker, nor a Pod that runs or has no job, nor an unreported result, nor a used slot is left."""
        namespace = self._product.namespace
        jobs = {job.metadata.uid for job in (await self._client.list(JOBS, namespace)).items}
        pods = (await self._client.list(PODS, namespace, labels=JOB_LABEL)).items
        nodes = (await self._client.list(NODES, namespace)).items
        return (
            not self._workers()
            and all(pod["status"]["phase"] in FINISHED for pod in pods)
            and all(pod["metadata"]["ownerReferences"][0]["uid"] in jobs for pod in pods)
            and not any(node.status.assignedJobs for node in nodes)
            and await asyncio.to_thread(self._is_whole)
            and not any(self._agent_files())
        )

    def _is_whole(self) -> bool:
        """Whether all Pods of the release are Ready."""
        ready = {one: [is_ready(pod) for pod in self._product.pods(one)] for one in REPLICAS}
        return ready == {one: [True] * count for one, count in REPLICAS.items()}

    def _agent_files(self) -> Iterator[Path]:
        """What agents keep of attempts: unreported results, and folders of workers."""
        for node in self._cluster.nodes.values():
            for agent in (node.folder / "kubelet" / "pods").glob("*/volumes/kubernetes.io~empty-dir/state/agent"):
                yield from agent.glob("spool/*")
                yield from agent.glob("work/*")

    def log_entries(self) -> list[AgentLogEntry]:
        self._logs.poll()
        return self._logs.entries

    def close(self) -> None:
        self._logs.close()


def _parent(pid: int) -> int:
    fields = read(pid, "stat").rpartition(")")[2].split()
    return int(fields[1]) if fields else 0


class ChaosCluster(ChaosJobs):
    """One run on a release; `log` prints its progress."""

    patience = 2 * LOST  # a lost node, and the delays of retries

    def __init__(self, product: Product, clips: ClipServer, plan: Plan, seed: int, log: Callable[[str], None]) -> None:
        super().__init__(plan, (), product.namespace, log, AT_ONCE)
        self._product, self._clips, self._seed = product, clips, seed
        self._pools = pools(plan)
        self.repeated: Counter[str] = Counter()

    async def run(self, within: float, score: float) -> None:
        """Run the plan within `within` seconds; raise AssertionError with all errors."""
        async with (
            Client(load_config(self._product.cluster.kubeconfig)) as client,
            WatchedHistory(client, self._namespace) as history,
        ):
            self._client = client
            self.fleet = ClusterFleet(self._product, client, history, self._plan, self._seed)
            self._fleets = (self.fleet,)
            machines = asyncio.create_task(self.fleet.watch_machines())
            try:
                async with asyncio.timeout(within):
                    await self._execute()
                    changes = await history.complete()
                self.repeated = repeated(changes)
                self._check(changes, {SHORT: score} | {job.pair: score for job in self._plan.jobs})
                assert not machines.done(), machines.exception()
            finally:
                machines.cancel()
                await asyncio.wait([machines])
                self.fleet.close()

    def _spec(self, job: PlannedJob) -> VmafxJobSpec:
        urls = self._clips.urls(held=job.name if job.kind in HELD else "")
        if job.kind == "bad":
            urls["distorted"] += ".missing"
        return job.spec(**urls, nodeSelector={"pool": self._pools[job.name]})

    async def _edit(self, job: PlannedJob, key: ObjectKey) -> None:
        if job.kind == "robbed":
            await eventually(lambda: self._clips.times_asked(job.name) > 0, f"{job.name} is downloaded", self.patience)
        if job.kind == "hurt":
            await eventually(lambda: self._is_past_fates(job, key), f"{job.name} has met its fates", self.patience)
        await super()._edit(job, key)
        if job.kind in RELEASED:
            self._clips.release(job.name)

    async def _is_past_fates(self, job: PlannedJob, key: ObjectKey) -> bool:
        found = await persist(lambda: self._client.get(JOBS, key))
        return bool(found.status.attempts > len(job.fates))


def pools(plan: Plan) -> dict[str, str]:
    """Where each job runs: of every kind of job, half in Pods and half by agents."""
    seen: Counter[Kind] = Counter()
    found = {}
    for job in plan.jobs:
        found[job.name] = (PODS_POOL, AGENTS_POOL)[seen[job.kind] % 2]
        seen[job.kind] += 1
    return found


def repeated(history: list[Change]) -> Counter[str]:
    """Why attempts were repeated, as the status of their jobs said, without names and times."""
    found: Counter[str] = Counter()
    for update in job_updates(history):
        if update.leaves and condition(update.new, "Scheduled", "False") == "Retrying":
            found[VARIABLE.sub("...", update.new["message"])] += 1
    return found
