"""The whole fleet, for `vmafx top`: nodes, running, waiting and ended jobs, throughput."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Literal, Self, get_args

import msgspec

from vmafx.api.job import FINISHED
from vmafx.clock import utc_now
from vmafx.fleet.errors import FleetError
from vmafx.fleet.queue import JobQueue, QueueRow, make_queue, read_durations
from vmafx.fleet.reader import UNFINISHED_PHASES, FleetJob, FleetNode, FleetReader
from vmafx.fleet.rows import JobRow, NodeRow, ObjectRow, job_row, node_row
from vmafx.fleet.watch import LiveCaches, LiveQueue, fleet_jobs_informer, fleet_nodes_informer
from vmafx.jobs.state import placed_at
from vmafx.kube import Client, ObjectKey, key_of
from vmafx.kube.errors import KubeError
from vmafx.runtime.store import ObjectChange

MAX_REMEMBERED = 10_000  # ended jobs
MAX_ENDED_ROWS = 50
THROUGHPUT_WINDOW = 60.0  # seconds
PING_INTERVAL, PING_TIMEOUT = 2.0, 5.0  # seconds
Sorting = Literal["name", "busy", "fps"]
SORTINGS: tuple[Sorting, ...] = get_args(Sorting)


class Throughput(msgspec.Struct, frozen=True):
    """Ended jobs and their frames per second, over the last minute; None if it was observed for too short a time."""

    jobs: float | None = None
    frames: float | None = None


class EndedJobs:
    """The jobs that ended, at most MAX_REMEMBERED. `whole` is false if the cluster has more than these."""

    def __init__(self) -> None:
        self.whole = True
        self._rows: dict[ObjectKey, JobRow] = {}
        self._complete_since: datetime | None = None  # every job that ended after it is here; None: all are

    def load(self, jobs: Iterable[FleetJob], now: datetime, *, whole: bool) -> None:
        """Replace all by what the server listed; `whole`: the list was complete."""
        self._rows, self.whole, self._complete_since = {}, whole, None if whole else now
        for job in jobs:
            self._put(job)

    def on_change(self, change: ObjectChange[FleetJob]) -> None:
        if change.new is None:
            self._rows.pop(change.key, None)
        elif change.new.status.phase in FINISHED:
            self._put(change.new)

    def phases(self) -> dict[str, int]:
        counts = Counter(row.phase for row in self._rows.values())
        return {phase: counts[phase] for phase in FINISHED}

    def latest(self, limit: int) -> list[JobRow]:
        """The jobs that ended last, the latest first."""
        rows = [row for row in self._rows.values() if row.finished is not None]
        return sorted(rows, key=_end_time, reverse=True)[:limit]

    def throughput(self, now: datetime) -> Throughput:
        since = self._complete_since
        seconds = THROUGHPUT_WINDOW if since is None else min(THROUGHPUT_WINDOW, (now - since).total_seconds())
        if seconds < 1:
            return Throughput()
        start = now - timedelta(seconds=seconds)
        recent = [row for row in self._rows.values() if row.finished is not None and row.finished >= start]
        frames = sum(row.frames or 0 for row in recent if row.phase == "Succeeded")
        return Throughput(len(recent) / seconds, frames / seconds)

    def _put(self, job: FleetJob) -> None:
        self._rows[key_of(job)] = job_row(job)
        if len(self._rows) > MAX_REMEMBERED:
            del self._rows[next(iter(self._rows))]
            self.whole = False


def _end_time(row: JobRow) -> tuple[float, str, str]:
    return (row.finished.timestamp() if row.finished else 0.0, *row.key)


class RunningRow(ObjectRow, frozen=True, kw_only=True):
    """A running job. `done` is from 0 to 1; it, `fps` and the frames are None unless an agent reports progress."""

    node: str | None
    attempt: int
    elapsed: float | None
    done: float | None = None
    frames: int | None = None
    totalFrames: int | None = None
    fps: float | None = None


class NodeJobsRow(NodeRow, frozen=True, kw_only=True):
    """A node with its running jobs."""

    jobs: list[RunningRow]


class FleetOverview(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the fleet at `time`. `phases` counts jobs; ended ones are a lower bound unless `whole`.

    `fps` is the sum over running jobs that report it, else that of the jobs that ended in the last minute.
    """

    server: str
    namespace: str
    time: datetime
    phases: dict[str, int]
    whole: bool
    jobsPerSecond: float | None
    fps: float | None
    slots: int
    used: int
    free: int
    nodes: list[NodeJobsRow]
    queue: list[QueueRow]
    running: list[RunningRow]
    ended: list[JobRow]


def make_overview(
    server: str,
    namespace: str,
    now: datetime,
    nodes: Iterable[FleetNode],
    jobs: Iterable[FleetJob],
    queue: JobQueue,
    ended: EndedJobs,
) -> FleetOverview:
    """Pure: everything that it depends on is a parameter."""
    running = sorted((_running_row(job, now) for job in jobs if job.status.phase == "Running"), key=lambda row: row.key)
    running_on: dict[ObjectKey, list[RunningRow]] = defaultdict(list)
    for row in running:
        running_on[ObjectKey(row.namespace, row.node or "")].append(row)
    node_rows = [_node_jobs_row(node, running_on[key_of(node)]) for node in sorted(nodes, key=key_of)]
    throughput, reported_fps = ended.throughput(now), [row.fps for row in running if row.fps]
    return FleetOverview(
        server=server,
        namespace=namespace,
        time=now,
        phases={"Pending": len(queue.jobs), "Running": len(running), **ended.phases()},
        whole=ended.whole,
        jobsPerSecond=_rounded(throughput.jobs),
        fps=_rounded(sum(reported_fps) if reported_fps else throughput.frames),
        slots=sum(row.capacity for row in node_rows),
        used=sum(row.used for row in node_rows),
        free=sum(row.free for row in node_rows),
        nodes=node_rows,
        queue=queue.jobs,
        running=running,
        ended=ended.latest(MAX_ENDED_ROWS),
    )


def _running_row(job: FleetJob, now: datetime) -> RunningRow:
    status, progress, started = job.status, job.status.progress, placed_at(job)
    total = progress.totalFrames if progress else 0
    return RunningRow(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        node=status.assignedNode,
        attempt=status.attempts,
        elapsed=None if started is None else round(max((now - started).total_seconds(), 0.0), 1),
        done=min(progress.frames / total, 1.0) if progress and total else None,
        frames=progress.frames if progress else None,
        totalFrames=total or None,
        fps=progress.fps if progress else None,
    )


def _node_jobs_row(node: FleetNode, jobs: list[RunningRow]) -> NodeJobsRow:
    row = node_row(node, len(jobs))
    return NodeJobsRow(**{name: getattr(row, name) for name in NodeRow.__struct_fields__}, jobs=jobs)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def sort_overview(overview: FleetOverview, sorting: Sorting) -> FleetOverview:
    """Sort nodes and running jobs: name; busy: busiest nodes and longest-running jobs first; fps: fastest first."""
    orders: dict[Sorting, tuple[Callable[[NodeJobsRow], Any], Callable[[RunningRow], Any]]] = {
        "name": (lambda node: node.key, lambda row: row.key),
        "busy": (lambda node: (-node.used / node.capacity, node.key), lambda row: (-(row.elapsed or 0), row.key)),
        "fps": (lambda node: (-(node.fps or 0), node.key), lambda row: (-(row.fps or 0), row.key)),
    }
    by_node, by_job = orders[sorting]
    nodes, running = sorted(overview.nodes, key=by_node), sorted(overview.running, key=by_job)
    return msgspec.structs.replace(overview, nodes=nodes, running=running)


async def read_overview(client: Client, namespace: str) -> FleetOverview:
    """Read it once, with at most one page of ended jobs."""
    reader, now = FleetReader(client, namespace), utc_now()
    jobs, nodes = await reader.jobs(UNFINISHED_PHASES), await reader.nodes()
    queue = make_queue(jobs, nodes, await read_durations(reader, jobs, nodes), now)
    ended = EndedJobs()
    ended_jobs, whole = await reader.ended()
    ended.load(ended_jobs, now, whole=whole)
    return make_overview(client.config.server, namespace, now, nodes, jobs, queue, ended)


class LiveOverview:
    """Keeps the overview up to date, as an async context manager.

    A watch cannot tell a quiet server from one that does not respond, so the server is pinged; when it responds again,
    everything is listed anew. `outage` is the error until then.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self.outage: str | None = None
        self._client, self._namespace = client, namespace
        self._jobs, self._nodes = (
            fleet_jobs_informer(client, namespace, UNFINISHED_PHASES),
            fleet_nodes_informer(client, namespace),
        )
        self._caches = LiveCaches(client, self._jobs, self._nodes)
        self._ended = EndedJobs()

    async def __aenter__(self) -> Self:
        self._jobs.on_change(self._ended.on_change)
        await self._caches.__aenter__()
        reader = FleetReader(self._client, self._namespace)
        self._queue = await LiveQueue.read(reader, self._jobs, self._nodes)
        await self._read_ended()
        self._pings = asyncio.create_task(self._ping())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pings.cancel()
        await asyncio.gather(self._pings, return_exceptions=True)
        await self._caches.__aexit__()

    def current(self) -> FleetOverview:
        now = utc_now()
        nodes, jobs = self._nodes.store.values(), self._jobs.store.values()
        return make_overview(
            self._client.config.server, self._namespace, now, nodes, jobs, self._queue.at(now), self._ended
        )

    async def changed(self, within: float) -> None:
        """Wait for a change, at most `within` seconds."""
        await self._caches.changes(within)

    async def _read_ended(self) -> None:
        jobs, whole = await FleetReader(self._client, self._namespace).ended()
        self._ended.load(jobs, utc_now(), whole=whole)

    async def _ping(self) -> None:
        while True:
            try:
                async with asyncio.timeout(PING_TIMEOUT):
                    await self._client.count(self._nodes.resource, self._namespace)
                if self.outage is not None:
                    await asyncio.gather(self._jobs.refresh(), self._nodes.refresh())
                    await self._read_ended()
                self.outage = None
            except (KubeError, FleetError) as error:
                self.outage = str(error)
            except TimeoutError:
                self.outage = f"no response within {PING_TIMEOUT:.0f} s"
            await asyncio.sleep(PING_INTERVAL)
