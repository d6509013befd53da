"""What this process remembers about each unfinished job beyond its status; lost at a restart."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from vmafx.jobs.state import Age, age_at
from vmafx.kube import ObjectKey
from vmafx.operator.job.pod_cache import PodView

MAX_TIMES = 16  # of a job; an attempt has fewer


class JobMemory(msgspec.Struct):
    """The memory of one job. All fields but `times` are about one attempt. Times are monotonic."""

    attempt: str = ""
    pod_seen: bool = False  # the cache has shown the attempt's Pod
    gone_pod: PodView | None = None  # its last state, once it is deleted
    pod_created_at: float | None = None  # when this process created it
    blocked_since: float | None = None  # when creating the Pod first failed
    blocked_reported: bool = False  # in the status and as an event
    times: dict[datetime, float] = {}  # times of the job and its Pod, and the same in monotonic time


class JobMemories:
    """Memories by job. Whoever handles the end of a job calls `forget`."""

    def __init__(self, now: Callable[[], datetime], clock: Callable[[], float]) -> None:
        self._now, self._clock = now, clock
        self._entries: dict[ObjectKey, JobMemory] = {}

    def entry(self, key: ObjectKey, attempt: str = "") -> JobMemory:
        """The memory of a job, created if missing; reset if `attempt` is a new one."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = JobMemory()
        if attempt and entry.attempt != attempt:
            entry = JobMemory(attempt, times=entry.times)
            self._entries[key] = entry
        return entry

    def get(self, key: ObjectKey) -> JobMemory | None:
        return self._entries.get(key)

    def forget(self, key: ObjectKey) -> None:
        self._entries.pop(key, None)

    def ages(self, key: ObjectKey) -> Age:
        """The ages of times of a job and its Pod.

        A time is compared with the wall clock once, when this process first needs it, and ages with the monotonic clock
        from then on: if the wall clock is set, no wait becomes longer, and no job fails early.
        """
        return lambda time: self._age(key, time)

    def _age(self, key: ObjectKey, time: datetime) -> float:
        times, clock = self.entry(key).times, self._clock()
        moment = times.pop(time, None)
        times[time] = moment = clock - age_at(self._now())(time) if moment is None else moment  # the last used is last
        if len(times) > MAX_TIMES:
            del times[next(iter(times))]
        return clock - moment
