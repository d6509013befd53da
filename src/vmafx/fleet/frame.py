"""The fleet at a glance: nodes, what runs on them, who waits, what ended, and how fast it goes."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Literal, get_args

import msgspec

from vmafx.fleet.ended import Ended
from vmafx.fleet.queue import Queue, QueueRow
from vmafx.fleet.rows import JobRow, NodeRow, RowOf, key_of, node_row
from vmafx.fleet.views import SeenJob, SeenNode
from vmafx.kube import Key
from vmafx.scheduling.prospects import attempt_began

ENDED = 50  # at most, of those that are over
Sorting = Literal["name", "busy", "fps"]
SORTINGS: tuple[Sorting, ...] = get_args(Sorting)


class RunningRow(RowOf, frozen=True, kw_only=True):
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


class Frame(msgspec.Struct, frozen=True, kw_only=True):
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


def frame(
    server: str,
    namespace: str,
    now: datetime,
    nodes: Iterable[SeenNode],
    jobs: Iterable[SeenJob],
    queue: Queue,
    ended: Ended,
) -> Frame:
    """Pure: the same jobs and nodes give the same frame."""
    running = sorted((running_row(job, now) for job in jobs if job.status.phase == "Running"), key=lambda row: row.key)
    on: dict[Key, list[RunningRow]] = defaultdict(list)
    for row in running:
        on[Key(row.namespace, row.node or "")].append(row)
    busy = [busy_node(node, on[key_of(node)]) for node in sorted(nodes, key=key_of)]
    pace, told = ended.pace(now), [row.fps for row in running if row.fps]
    return Frame(
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
        ended=ended.latest(ENDED),
    )


def running_row(job: SeenJob, now: datetime) -> RunningRow:
    status, progress, begun = job.status, job.status.progress, attempt_began(job)
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


def busy_node(node: SeenNode, jobs: list[RunningRow]) -> BusyNode:
    row = node_row(node, len(jobs))
    return BusyNode(**{name: getattr(row, name) for name in NodeRow.__struct_fields__}, jobs=jobs)


def sorted_by(found: Frame, sorting: Sorting) -> Frame:
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
