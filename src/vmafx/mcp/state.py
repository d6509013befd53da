"""The state of MCP servers on disk: jobs survive a restart, and several servers of a user can run at once.

results/          reports of scores, by the digest of what was scored: shared by all servers
encodes/          encodes of comparisons and ladders: shared, too
servers/N/jobs/   the jobs of one server, which holds servers/N/lock
"""

import os
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from vmafx.atomic_write import write_atomic
from vmafx.folder_lock import FolderInUse, lock_folder
from vmafx.logs import log
from vmafx.mcp.job import McpJobRecord
from vmafx.scoring.errors import NodeFault
from vmafx.tasks import in_thread

SYSTEM_STATE = Path("/var/lib/vmafx")
MAX_SERVERS = 32
MAX_FINISHED, MAX_RECORD_BYTES = 500, 64 << 20  # finished jobs that are kept, and the size of their records


def default_state(environ: Mapping[str, str] = os.environ, system: Path = SYSTEM_STATE) -> Path:
    """/var/lib/vmafx/mcp where this user may write there, else a folder of the user."""
    if system.is_dir() and os.access(system, os.W_OK | os.X_OK):
        return system / "mcp"
    try:
        return Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "vmafx" / "mcp"
    except RuntimeError:
        raise NodeFault("this user has no home folder; choose a folder for jobs with --state") from None


class StateFolder:
    """The state of one server. A second server gets a folder of its own for its jobs if it is not `exclusive`.

    Each server takes over the jobs of those that have ended. Raises FolderInUse, OSError.
    """

    def __init__(self, folder: Path, *, exclusive: bool) -> None:
        self.folder, self.results, self.encodes = folder, folder / "results", folder / "encodes"
        for each in (folder, self.results, self.encodes, folder / "servers"):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.number, self._lock = self._lock_one(exclusive=exclusive)
        self._jobs = self._server(self.number) / "jobs"
        self._jobs.mkdir(exist_ok=True, mode=0o700)
        self._take_over()

    def close(self) -> None:
        os.close(self._lock)

    def load(self) -> list[McpJobRecord]:
        """All records, the oldest first."""
        for path in self._jobs.glob(".*.part"):  # a write that was interrupted
            path.unlink(missing_ok=True)
        return sorted(self._read_all(), key=lambda record: (record.created, record.id))

    async def write(self, record: McpJobRecord) -> None:
        """Raises OSError."""
        await in_thread(partial(write_atomic, self._path(record.id), msgspec.json.encode(record), durable=True))

    async def delete(self, record: McpJobRecord) -> None:
        """Raises OSError."""
        await in_thread(partial(self._path(record.id).unlink, missing_ok=True))

    async def prune(self, finished: Sequence[McpJobRecord]) -> list[str]:
        """Delete finished jobs above the limits, always the oldest of the caller who has most; returns their IDs.

        `finished`: the oldest first. Raises OSError.
        """
        return await in_thread(self._prune, finished)

    def _prune(self, finished: Sequence[McpJobRecord]) -> list[str]:
        kept: dict[str, deque[Path]] = {}
        count, size, sizes = Counter[str](), Counter[str](), dict[Path, int]()  # of records, by owner and by path
        for record in finished:
            path = self._path(record.id)
            sizes[path] = path.stat().st_size if path.exists() else 0
            kept.setdefault(record.owner, deque()).append(path)
            count[record.owner] += 1
            size[record.owner] += sizes[path]
        deleted = list[str]()
        while count.total() > MAX_FINISHED or size.total() > MAX_RECORD_BYTES:
            ((owner, _),) = (count if count.total() > MAX_FINISHED else size).most_common(1)
            path = kept[owner].popleft()
            path.unlink(missing_ok=True)
            count[owner] -= 1
            size[owner] -= sizes[path]
            deleted.append(path.stem)
        return deleted

    def _lock_one(self, *, exclusive: bool) -> tuple[int, int]:
        for number in range(1, 2 if exclusive else MAX_SERVERS + 1):
            folder = self._server(number)
            folder.mkdir(exist_ok=True, mode=0o700)
            try:
                return number, lock_folder(folder, "--state")
            except FolderInUse:
                if exclusive:
                    raise
        raise FolderInUse(f"{MAX_SERVERS} servers use the folder {self.folder}; end some, or choose another --state")

    def _take_over(self) -> None:
        """Move the jobs of servers that have ended here."""
        for number in range(1, MAX_SERVERS + 1):
            jobs = self._server(number) / "jobs"
            if number == self.number or not jobs.is_dir():
                continue
            try:
                lock = lock_folder(self._server(number), "--state")
            except FolderInUse:
                continue
            try:
                for path in jobs.glob("*.json"):
                    path.replace(self._jobs / path.name)
            finally:
                os.close(lock)

    def _server(self, number: int) -> Path:
        return self.folder / "servers" / str(number)

    def _path(self, job_id: str) -> Path:
        return self._jobs / f"{job_id}.json"

    def _read_all(self) -> Iterator[McpJobRecord]:
        for path in self._jobs.glob("*.json"):
            try:
                yield msgspec.json.decode(path.read_bytes(), type=McpJobRecord)
            except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
                log.error("cannot read the record of a job", file=str(path), error=str(error))
