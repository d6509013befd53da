"""The fleet at a glance, for `vmafx top`: nodes, running, waiting and ended jobs, throughput."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Literal, Self, get_args

import msgspec

from vmafx.api.job import FINISHED
from vmafx.clock import utc_now
from vmafx.fleet.queue import JobQueue, QueueRow, make_queue, read_durations
from vmafx.fleet.reader import UNFINISHED_PHASES, FleetJob, FleetNode, FleetReader
from vmafx.fleet.rows import JobRow, NodeRow, ObjectRow, job_row, key_of, node_row
from vmafx.fleet.watch import LiveCaches, LiveQueue, jobs_informer, nodes_informer
from vmafx.kube import Client, ObjectKey
from vmafx.kube.errors import KubeError
from vmafx.runtime.store import ObjectChange
from vmafx.scheduling.forecast import attempt_start

MAX_REMEMBERED = 10_000
WINDOW = 60.0  # seconds over which speed is measured


class Throughput(msgspec.Struct, frozen=True):
    """What the fleet got done in the last minute, a second; None where too little of it was seen to say."""

    jobs: float | None = None
    frames: float | None = None


class EndedJobs:
    """The jobs that ended, each once. `whole` is false once there are more of them than these."""

    def __init__(self) -> None:
        self.whole = True
        self._rows: dict[ObjectKey, JobRow] = {}
        self._since: datetime | None = None  # from when on none was missed; None: none ever was

    def read(self, jobs: Iterable[FleetJob], now: datetime, *, whole: bool) -> None:
        """What the server has, read anew: all of it if `whole`."""
        self._rows, self.whole, self._since = {}, whole, None if whole else now
        for job in jobs:
            self._put(job)

    def hear(self, change: ObjectChange[FleetJob]) -> None:
        """Of every change of a job."""
        if change.new is None:
            self._rows.pop(change.key, None)
        elif change.new.status.phase in FINISHED:
            self._put(change.new)

    def phases(self) -> dict[str, int]:
        found = Counter(row.phase for row in self._rows.values())
        return {phase: found[phase] for phase in FINISHED}

    def latest(self, most: int) -> list[JobRow]:
        """The last ones, the latest first."""
        told = [row for row in self._rows.values() if row.finished is not None]
        return sorted(told, key=_finished, reverse=True)[:most]

    def pace(self, now: datetime) -> Throughput:
        seen = WINDOW if self._since is None else min(WINDOW, (now - self._since).total_seconds())
        if seen < 1:
            return Throughput()
        began = now - timedelta(seconds=seen)
        recent = [row for row in self._rows.values() if row.finished is not None and row.finished >= began]
        frames = sum(row.frames or 0 for row in recent if row.phase == "Succeeded")
        return Throughput(len(recent) / seen, frames / seen)

    def _put(self, job: FleetJob) -> None:
        self._rows[key_of(job)] = job_row(job)
        if len(self._rows) > MAX_REMEMBERED:
            del self._rows[next(iter(self._rows))]
            self.whole = False


def _finished(row: JobRow) -> tuple[float, str, str]:
    return (row.finished.timestamp() if row.finished else 0.0, *row.key)


MAX_ENDED_ROWS = 50  # at most, of those that are over
Sorting = Literal["name", "busy", "fps"]
SORTINGS: tuple[Sorting, ...] = get_args(Sorting)


class RunningRow(ObjectRow, frozen=True, kw_only=True):
    """A job that runs. `done` is a part of 1; that, `fps` and the frames are known where an agent tells them."""

    node: str | None
    attempt: int
    elapsed: float | None
    done: float | None = None
    frames: int | None = None
    totalFrames: int | None = None
    fps: float | None = None


class BusyNode(NodeRow, frozen=True, kw_only=True):
    """A node, and the jobs that it has."""

    jobs: list[RunningRow]


class FleetOverview(msgspec.Struct, frozen=True, kw_only=True):
    """One look. `phases` of jobs that are over are at least these numbers, exactly them if `whole`.

    `fps` is what running jobs tell of themselves; where none does, the frames of jobs that ended in the last minute.
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
    nodes: list[BusyNode]
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
    """Pure: the same jobs and nodes give the same frame."""
    running = sorted((running_row(job, now) for job in jobs if job.status.phase == "Running"), key=lambda row: row.key)
    on: dict[ObjectKey, list[RunningRow]] = defaultdict(list)
    for row in running:
        on[ObjectKey(row.namespace, row.node or "")].append(row)
    busy = [busy_node(node, on[key_of(node)]) for node in sorted(nodes, key=key_of)]
    pace, told = ended.pace(now), [row.fps for row in running if row.fps]
    return FleetOverview(
        server=server,
        namespace=namespace,
        time=now,
        phases={"Pending": len(queue.jobs), "Running": len(running), **ended.phases()},
        whole=ended.whole,
        jobsPerSecond=_short(pace.jobs),
        fps=_short(sum(told) if told else pace.frames),
        slots=sum(node.capacity for node in busy),
        used=sum(node.used for node in busy),
        free=sum(node.free for node in busy),
        nodes=busy,
        queue=queue.jobs,
        running=running,
        ended=ended.latest(MAX_ENDED_ROWS),
    )


def running_row(job: FleetJob, now: datetime) -> RunningRow:
    status, progress, begun = job.status, job.status.progress, attempt_start(job)
    total = progress.totalFrames if progress else 0
    return RunningRow(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        node=status.assignedNode,
        attempt=status.attempts,
        elapsed=None if begun is None else round(max((now - begun).total_seconds(), 0.0), 1),
        done=min(progress.frames / total, 1.0) if progress and total else None,
        frames=progress.frames if progress else None,
        totalFrames=total or None,
        fps=progress.fps if progress else None,
    )


def busy_node(node: FleetNode, jobs: list[RunningRow]) -> BusyNode:
    row = node_row(node, len(jobs))
    return BusyNode(**{name: getattr(row, name) for name in NodeRow.__struct_fields__}, jobs=jobs)


def sorted_by(found: FleetOverview, sorting: Sorting) -> FleetOverview:
    """By name; or the busiest nodes and the longest runs first; or the fastest."""
    orders: dict[Sorting, tuple[Callable[[BusyNode], Any], Callable[[RunningRow], Any]]] = {
        "name": (lambda node: node.key, lambda row: row.key),
        "busy": (lambda node: (-node.used / node.capacity, node.key), lambda row: (-(row.elapsed or 0), row.key)),
        "fps": (lambda node: (-(node.fps or 0), node.key), lambda row: (-(row.fps or 0), row.key)),
    }
    nodes, running = orders[sorting]
    return msgspec.structs.replace(
        found, nodes=sorted(found.nodes, key=nodes), running=sorted(found.running, key=running)
    )


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


PING_INTERVAL, PING_TIMEOUT = 2.0, 5.0  # seconds


async def read_overview(client: Client, namespace: str) -> FleetOverview:
    """One look, and no more of finished jobs than a page."""
    reader, now = FleetReader(client, namespace), utc_now()
    jobs, nodes = await reader.jobs(UNFINISHED_PHASES), await reader.nodes()
    queue = make_queue(jobs, nodes, await read_durations(reader, jobs, nodes), now)
    ended = EndedJobs()
    over, whole = await reader.ended()
    ended.read(over, now, whole=whole)
    return make_overview(client.config.server, namespace, now, nodes, jobs, queue, ended)


class LiveOverview:
    """Keeps all of it up to date. Use as an async context manager, as Live.

    Watches are patient: they cannot tell a quiet server from one that is away. So it is asked for a word now and then,
    and once it answers again, all is read anew. `away` says what is wrong until then.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self.away: str | None = None
        self._client, self._namespace = client, namespace
        self._jobs, self._nodes = jobs_informer(client, namespace, UNFINISHED_PHASES), nodes_informer(client, namespace)
        self._live = LiveCaches(client, self._jobs, self._nodes)
        self._ended = EndedJobs()

    async def __aenter__(self) -> Self:
        self._jobs.on_change(self._ended.hear)
        await self._live.__aenter__()
        reader = FleetReader(self._client, self._namespace)
        self._queue = await LiveQueue.read(reader, self._jobs, self._nodes)
        await self._read_ended()
        self._asking = asyncio.create_task(self._ask())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._asking.cancel()
        await asyncio.gather(self._asking, return_exceptions=True)
        await self._live.__aexit__()

    def frame(self) -> FleetOverview:
        now = utc_now()
        nodes, jobs = self._nodes.store.values(), self._jobs.store.values()
        return make_overview(
            self._client.config.server, self._namespace, now, nodes, jobs, self._queue.at(now), self._ended
        )

    async def changed(self, within: float) -> None:
        """As soon as something did, or after so many seconds."""
        await self._live.changes(within)

    async def _read_ended(self) -> None:
        over, whole = await FleetReader(self._client, self._namespace).ended()
        self._ended.read(over, utc_now(), whole=whole)

    async def _ask(self) -> None:
        while True:
            try:
                async with asyncio.timeout(PING_TIMEOUT):
                    await self._client.count(self._nodes.resource, self._namespace)
                if self.away is not None:
                    await asyncio.gather(self._jobs.refresh(), self._nodes.refresh())
                    await self._read_ended()
                self.away = None
            except KubeError as error:
                self.away = str(error)
            except TimeoutError:
                self.away = f"no answer within {PING_TIMEOUT:.0f} s"
            await asyncio.sleep(PING_INTERVAL)
