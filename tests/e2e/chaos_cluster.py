"""Jobs under the faults of a real cluster (cluster_faults.py), and the check of their whole history.

Jobs run in Pods and by agents, as planned. The clips of those that have to be caught while they run arrive only when
they are released.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.e2e.agent_logs import AgentLogs
from tests.e2e.clips import ClipServer
from tests.e2e.cluster_faults import AGENT, AGENTS_POOL, LOST, PODS_POOL, ClusterFaults
from tests.e2e.product import Product, is_ready
from tests.e2e.watched_history import WatchedHistory
from tests.support.agent_process import read
from tests.support.chaos_jobs import ChaosJobs, persist
from tests.support.chaos_plan import Fault, Kind, Plan, PlannedJob
from tests.support.job_history import Change, condition, job_updates
from tests.support.machines import AgentLogEntry, end, worked_attempt
from tests.support.waiting import eventually
from vmafx.api.job import FINISHED, VmafxJob, VmafxJobSpec
from vmafx.kube import JOBS, NODES, Client, ObjectKey, load_config
from vmafx.kube.core import PODS
from vmafx.operator.job.pod_cache import JOB_LABEL

REPLICAS = {"operator": 2, "controller": 2, AGENT: 2}
AT_ONCE = 14
# Their clips are never released, or not before the planned fault has happened.
HELD: frozenset[Kind] = frozenset({"hurt", "robbed", "paused", "stopped", "late", "hopeless"})
RELEASED: frozenset[Kind] = frozenset({"hurt", "robbed", "paused"})
VARIABLE = re.compile(r"\S*[-:]\d\S*|; last log line.*")  # in messages: names with numbers, and times
POLL_INTERVAL = 0.1  # seconds, for workers that the plan kills


class ClusterFleet:
    """The Pods and agents of a release; the seed selects the victims of faults."""

    def __init__(
        self, product: Product, clips: ClipServer, client: Client, history: WatchedHistory, plan: Plan, seed: int
    ) -> None:
        self._product, self._cluster, self._client = product, product.cluster, client
        self._history, self._plan, self._choice = history, plan, random.Random(seed)
        self.faults = ClusterFaults(product, clips, self._choice, self._kill_worker)
        self._logs = AgentLogs([node.folder / "log" for node in self._cluster.nodes.values()], product.namespace)
        self.injected: Counter[Fault] = Counter()

    async def inject(self, fault: Fault) -> None:
        await asyncio.to_thread(self.faults.inject, fault)
        self.injected[fault] += 1

    async def kill_work(self, job: VmafxJob) -> None:
        if job.status.assignedNode == PODS_POOL:
            pod = ObjectKey(self._product.namespace, f"{job.metadata.name}-{job.status.attempts - 1}")
            await persist(lambda: self._client.delete(PODS, pod), ignore_missing=True)
        else:
            await asyncio.to_thread(self.faults.stop_agent_of, job)

    async def watch_machines(self) -> None:
        """Read the logs of agents, and kill the workers of attempts that the plan lets fail, until cancelled."""
        while True:
            self._logs.poll()
            for pid, attempt in self._workers().items():
                uid, _, number = attempt.rpartition("-")
                if self._plan.fate_of(f"{self._history.jobs[uid]}-{number}"):
                    end(pid)
            await asyncio.sleep(POLL_INTERVAL)

    def _kill_worker(self) -> bool:
        workers = sorted(self._workers())
        if workers:
            end(self._choice.choice(workers))
        return bool(workers)

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
        jobs = {job.metadata.uid: job for job in (await self._client.list(JOBS, namespace)).items}
        pods = (await self._client.list(PODS, namespace, labels=JOB_LABEL)).items
        nodes = (await self._client.list(NODES, namespace)).items
        return (
            not self._workers()
            and all(job.status.phase in FINISHED for job in jobs.values())
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
            self.fleet = ClusterFleet(self._product, self._clips, client, history, self._plan, self._seed)
            self._fleets = (self.fleet,)
            machines = asyncio.create_task(self.fleet.watch_machines())
            try:
                async with asyncio.timeout(within):
                    await self._execute()
                    changes = await history.complete()
                self.repeated = repeated(changes)
                self._plan = self._plan._replace(jobs=[*self._plan.jobs, *self.fleet.faults.jobs])
                self._check(changes, {job.pair: score for job in self._plan.jobs})
            finally:
                ended = machines.done()
                machines.cancel()
                await asyncio.wait([machines])
                self.fleet.close()
                if ended:
                    raise AssertionError("no workers were killed any more") from machines.exception()

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
