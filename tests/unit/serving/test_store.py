"""JobStore: jobs and uploaded clips on disk, across restarts, cancellations and errors."""

import asyncio
import hashlib
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.leftovers import descriptors
from vmafx.auth.callers import ServedCaller
from vmafx.clock import utc_now
from vmafx.folder_lock import FolderInUse
from vmafx.scratch import ScratchFile
from vmafx.serving.job import CANCELLED, JobOutcome, JobRecord, ServedJob, UploadedClip
from vmafx.serving.jobs import JobRegistry
from vmafx.serving.request import ScoreRequest
from vmafx.serving.store import JobStore

CONTENT = b"a clip"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    before = descriptors()
    yield
    assert descriptors() == before


def upload(store: JobStore, content: bytes = CONTENT) -> int:
    file = ScratchFile(str(store.uploads), 0, linkable=True)
    file.write(content)
    fd = os.dup(file.seal())
    file.close()
    return fd


def make_job(store: JobStore, number: int, *, uploaded: bool = True) -> ServedJob:
    record = JobRecord(
        id=f"{number:032x}",
        caller=ServedCaller("ann", "user ann"),
        spec=ScoreRequest(reference="/a.mkv", distorted="" if uploaded else "/b.mkv"),
        model="vmaf_v0.6.1",
        created=utc_now() + timedelta(seconds=number),
        uploads={"distorted": UploadedClip("x.mkv", DIGEST, len(CONTENT))} if uploaded else {},
    )
    return ServedJob(record, {"distorted": upload(store)} if uploaded else {})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def kept(folder: Path, *numbers: int) -> list[ServedJob]:
    with closing(JobStore(folder)) as store:
        registry = JobRegistry(store)
        jobs = [make_job(store, number) for number in numbers]
        for job in jobs:
            registry.add(job)
            await registry.keep(job)
        await registry.close()
    return jobs


async def test_a_job_that_is_kept_is_recovered_with_its_clips(tmp_path: Path) -> None:
    jobs = await kept(tmp_path, 2, 1)
    assert names(tmp_path / "clips") == [DIGEST]
    with closing(JobStore(tmp_path)) as store:
        registry = JobRegistry(store)
        found = await registry.recover()
        assert [job.record for job in found] == [jobs[1].record, jobs[0].record]  # the oldest first
        assert [os.pread(job.files["distorted"], 100, 0) for job in found] == [CONTENT, CONTENT]
        assert await registry.end(found[0], CANCELLED)
        assert names(tmp_path / "clips") == [DIGEST]  # the other needs it
        assert await registry.end(found[1], JobOutcome("succeeded", "key", 90.0))
        assert names(tmp_path / "clips") == []
        await registry.close()
    with closing(JobStore(tmp_path)) as store:
        registry = JobRegistry(store)
        assert await registry.recover() == []
        assert [(job.record.state, job.record.score) for job in registry.of("ann")] == [
            ("succeeded", 90.0),
            ("cancelled", None),
        ]


async def test_the_first_end_of_a_job_counts(tmp_path: Path) -> None:
    with closing(JobStore(tmp_path)) as store:
        registry, job = JobRegistry(store), make_job(store, 1)
        registry.add(job)
        ends = registry.end(job, JobOutcome("succeeded", "key", 1.0)), registry.end(job, CANCELLED)
        first, second, _ = await asyncio.gather(*ends, registry.keep(job))
        assert (first, second) == (True, False)
        assert (job.record.state, job.kept) == ("succeeded", False)
        assert names(tmp_path / "jobs") == []
        await registry.close()


async def test_a_job_that_ends_while_it_is_written_is_written_as_ended(tmp_path: Path) -> None:
    with closing(JobStore(tmp_path)) as store:
        registry, job = JobRegistry(store), make_job(store, 1)
        registry.add(job)
        await asyncio.gather(registry.keep(job), registry.end(job, CANCELLED))
        assert job.kept
        assert names(tmp_path / "clips") == []
        await registry.close()
    with closing(JobStore(tmp_path)) as store:
        assert [record.state for record in store.load()] == ["cancelled"]


async def test_a_write_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    with closing(JobStore(tmp_path)) as store:
        registry, job = JobRegistry(store), make_job(store, 1)
        registry.add(job)
        writing = asyncio.create_task(registry.keep(job))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert not job.kept
        assert names(tmp_path / "jobs") + names(tmp_path / "clips") == []
        await registry.keep(job)  # another attempt succeeds
        assert names(tmp_path / "clips") == [DIGEST]
        await registry.close()


async def test_a_disk_error_leaves_nothing(tmp_path: Path) -> None:
    with closing(JobStore(tmp_path)) as store:
        registry, job = JobRegistry(store), make_job(store, 1)
        registry.add(job)
        (tmp_path / "jobs").rmdir()
        with pytest.raises(OSError, match="No such file"):
            await registry.keep(job)
        assert (job.kept, names(tmp_path / "clips")) == (False, [])
        await registry.close()


async def test_a_lost_or_incomplete_clip_fails_the_job_for_good(tmp_path: Path) -> None:
    await kept(tmp_path, 1)
    (tmp_path / "clips" / DIGEST).write_bytes(b"")
    for _ in range(2):
        with closing(JobStore(tmp_path)) as store:
            registry = JobRegistry(store)
            assert await registry.recover() == []
            (job,) = registry.of("ann")
            assert job.record.error is not None
            assert "upload it again" in job.record.error.message


async def test_leftovers_and_malformed_records_are_not_in_the_way(tmp_path: Path) -> None:
    await kept(tmp_path, 1)
    (tmp_path / "clips" / "of nobody").write_bytes(b"x")
    (tmp_path / "jobs" / ".abc.part").write_bytes(b"x")
    (tmp_path / "jobs" / "bad.json").write_bytes(b"{}")
    (tmp_path / "jobs" / "worse.json").write_bytes(b"\xff")
    with closing(JobStore(tmp_path)) as store:
        assert len(store.load()) == 1
    assert names(tmp_path / "clips") == [DIGEST]
    assert names(tmp_path / "jobs") == [f"{1:032x}.json", "bad.json", "worse.json"]


def test_a_folder_is_used_by_one_process(tmp_path: Path) -> None:
    with closing(JobStore(tmp_path)), pytest.raises(FolderInUse, match="another server uses the folder"):
        JobStore(tmp_path)
    JobStore(tmp_path).close()


async def test_a_watch_gets_all_jobs_of_its_caller_and_their_changes(tmp_path: Path) -> None:
    with closing(JobStore(tmp_path)) as store:
        registry = JobRegistry(store)
        jobs = [make_job(store, number, uploaded=False) for number in range(3)]
        for job in jobs[:2]:
            registry.add(job)
        watch = registry.watch("ann")
        assert [await anext(watch) for _ in range(2)] == jobs[:2]
        registry.add(jobs[2])
        assert await anext(watch) is jobs[2]
        jobs[0].start()
        jobs[0].requeue()
        jobs[1].start()
        assert [await anext(watch) for _ in range(2)] == [jobs[0], jobs[1]]  # two changes are one
        other = registry.watch("bob")
        pending = asyncio.create_task(anext(other))
        await asyncio.sleep(0)
        jobs[0].start()
        await asyncio.sleep(0)
        assert not pending.done()
        pending.cancel()
        await asyncio.wait({pending})
        await watch.aclose()
        await other.aclose()
