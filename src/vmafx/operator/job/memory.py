"""What this process remembers of each unfinished job beyond what is written: one entry a job, gone with it."""

from datetime import datetime

import msgspec

from vmafx.kube import ObjectKey


class JobMemory(msgspec.Struct):
    """Of one job. What is known of an attempt is forgotten with the next."""

    attempt: str = ""
    seen: bool = False  # the cache has shown the attempt's Pod
    made_at: float | None = None  # when we made it, by the loop's clock
    blocked_since: datetime | None = None  # something is in the way of its Pod
    blocked_told: bool = False
    waits_since: datetime | None = None  # it is in the queue, and people were not told yet


class JobMemories:
    """Entries by job."""

    def __init__(self) -> None:
        self._entries: dict[ObjectKey, JobMemory] = {}

    def of(self, key: ObjectKey, attempt: str = "") -> JobMemory:
        """The entry of a job; with `attempt`, as of that attempt."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = JobMemory()
        if attempt and entry.attempt != attempt:
            waits_since = entry.waits_since
            entry = self._entries[key] = JobMemory(attempt, waits_since=waits_since)
        return entry

    def look(self, key: ObjectKey) -> JobMemory | None:
        """The entry, if there is one."""
        return self._entries.get(key)

    def forget(self, key: ObjectKey) -> None:
        self._entries.pop(key, None)
