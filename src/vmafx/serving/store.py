"""JobStore: jobs and uploaded clips on disk, so that a job that a client was promised survives a restart.

jobs/ID.json     the record of a job
clips/SHA256     an uploaded clip, while a job needs it
results/         reports and pictures, see vmafx.scoring.cache
lock             locked by the process that uses the folder
"""

import errno
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from vmafx.atomic_write import write_atomic, write_atomic_with
from vmafx.folder_lock import lock_folder
from vmafx.logs import log
from vmafx.serving.job import JobRecord, ServedJob
from vmafx.tasks import in_thread

_NOT_LINKABLE = {errno.ENOENT, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}


class JobStore:
    """The folder of one server. Its methods that access the disk do so in a thread, except at the start."""

    def __init__(self, folder: Path) -> None:
        self.results = folder / "results"
        self._jobs, self._clips = folder / "jobs", folder / "clips"
        for each in (self.results, self._jobs, self._clips):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.uploads = self._clips  # uploads arrive as unnamed files of the same file system, to be linked
        self._lock = lock_folder(folder, "--data")
        self._users: dict[str, set[str]] = {}  # jobs that need a clip, by its digest
        self._naming = threading.Lock()  # held while clips get or lose their names

    def close(self) -> None:
        os.close(self._lock)

    def load(self) -> list[JobRecord]:
        """All records, the oldest first. Deletes clips that no unfinished job needs."""
        records = sorted(self._read_all(), key=lambda record: record.created)
        for record in records:
            if not record.is_finished:
                self._add_user(record)
        unused = [clip for clip in self._clips.iterdir() if clip.name not in self._users]
        for path in (*unused, *self._jobs.glob(".*.part")):  # a write that was interrupted
            path.unlink(missing_ok=True)
        return records

    def open_clips(self, record: JobRecord) -> dict[str, int]:
        """Descriptors of the uploaded clips of a job, by part. Raises OSError if one is lost."""
        with ExitStack() as stack:
            found: dict[str, int] = {}
            for part, clip in record.uploads.items():
                found[part] = os.open(self._clips / clip.sha256, os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, found[part])
                if os.fstat(found[part]).st_size != clip.size:
                    raise OSError(errno.EIO, f"the uploaded clip {clip.name} is incomplete")
            stack.pop_all()
        return found

    async def keep(self, job: ServedJob) -> None:
        """Write the job and its clips to the disk: it is not lost from now on. Raises OSError."""
        self._add_user(job.record)
        try:
            await in_thread(self._keep, job.record, dict(job.files))
        except BaseException:  # a thread goes on after a cancellation: the record may be there
            await self.forget([job.id])
            await self.release_clips(job.record)
            raise

    def _keep(self, record: JobRecord, files: dict[str, int]) -> None:
        for part, clip in record.uploads.items():
            self._link(files[part], clip.sha256)
        self._write(record)

    async def write(self, record: JobRecord) -> None:
        """Write the record of a job that is kept."""
        await in_thread(self._write, record)

    def _write(self, record: JobRecord) -> None:
        write_atomic(self._path(record.id), msgspec.json.encode(record), durable=True)

    async def release_clips(self, record: JobRecord) -> None:
        """Delete the clips of a job, except those that other jobs need."""
        unused = []
        for clip in record.uploads.values():
            users = self._users.get(clip.sha256, set())
            users.discard(record.id)
            if not users and self._users.pop(clip.sha256, None) is not None:
                unused.append(clip.sha256)
        if unused:
            await in_thread(self._delete_clips, unused)

    async def forget(self, ids: Sequence[str]) -> None:
        """Delete the records of jobs."""
        await in_thread(self._forget, ids)

    def _forget(self, ids: Sequence[str]) -> None:
        for one in ids:
            self._path(one).unlink(missing_ok=True)

    def _delete_clips(self, digests: list[str]) -> None:
        with self._naming:
            for digest in digests:
                if digest not in self._users:
                    (self._clips / digest).unlink(missing_ok=True)

    def _add_user(self, record: JobRecord) -> None:
        for clip in record.uploads.values():
            self._users.setdefault(clip.sha256, set()).add(record.id)

    def _link(self, fd: int, name: str) -> None:
        os.fsync(fd)
        folder = os.open(self._clips, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with self._naming:
                self._name(fd, folder, name)
            os.fsync(folder)
        finally:
            os.close(folder)

    def _name(self, fd: int, folder: int, name: str) -> None:
        try:
            # os.link follows this symbolic link only if it is given a folder.
            os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder)
        except FileExistsError:
            pass  # the same content, by its digest
        except OSError as error:
            if error.errno not in _NOT_LINKABLE:
                raise
            self._copy(fd, name)

    def _copy(self, fd: int, name: str) -> None:
        with open(f"/proc/self/fd/{fd}", "rb") as source:  # noqa: PTH123 - a descriptor
            write_atomic_with(self._clips / name, lambda file: shutil.copyfileobj(source, file, 1 << 20), durable=True)

    def _path(self, job_id: str) -> Path:
        return self._jobs / f"{job_id}.json"

    def _read_all(self) -> Iterator[JobRecord]:
        for path in self._jobs.glob("*.json"):
            try:
                yield msgspec.json.decode(path.read_bytes(), type=JobRecord)
            except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
                log.error("cannot read the record of a job", file=str(path), error=str(error))
