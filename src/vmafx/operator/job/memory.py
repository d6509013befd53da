"""What this process remembers about each unfinished job beyond its status; lost at a restart."""

from datetime import datetime

import msgspec

from vmafx.kube import ObjectKey


class JobMemory(msgspec.Struct):
    """The memory of one job. All fields but `unplaceable_since` are about one attempt."""

    attempt: str = ""
    pod_seen: bool = False  # the cache has shown the attempt's Pod
    pod_created_at: float | None = None  # when this process created it, in loop time
    blocked_since: datetime | None = None  # when creating the Pod first failed
    blocked_reported: bool = False  # in the status and as an event
    unplaceable_since: datetime | None = None  # when no node could take the job, until that is reported as an event


class JobMemories:
    """Memories by job. Whoever handles the end of a job calls `forget`."""

    def __init__(self) -> None:
        self._entries: dict[ObjectKey, JobMemory] = {}

    def entry(self, key: ObjectKey, attempt: str = "") -> JobMemory:
        """The memory of a job, created if missing; reset if `attempt` is a new one."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = JobMemory()
        if attempt and entry.attempt != attempt:
            entry = self._entries[key] = JobMemory(attempt, unplaceable_since=entry.unplaceable_since)
        return entry

    def get(self, key: ObjectKey) -> JobMemory | None:
        return self._entries.get(key)

    def forget(self, key: ObjectKey) -> None:
        self._entries.pop(key, None)
