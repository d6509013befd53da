"""Scoring as a process: progress, cancellation at any moment without leftovers, the cache, batches."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import video
from tests.support.video import ffmpeg, lossless, scene
from tests.support.waiting import eventually, until
from tests.support.webserver import WebServer, stalls
from vmafx.api.hardware import Backend
from vmafx.scoring.batch import BatchScorer
from vmafx.scoring.cache import ResultCache
from vmafx.scoring.engines.engine import Engine, MeasuredRun, Measurement
from vmafx.scoring.engines.ffmpeg import find_ffmpeg
from vmafx.scoring.engines.find import Engines
from vmafx.scoring.engines.libvmaf import LibvmafEngine
from vmafx.scoring.errors import BadInput, EngineFailure, NodeFault
from vmafx.scoring.media.access import OpenedMedia, sha256
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.request import ClipLimits, ScoreOptions, Source
from vmafx.scoring.result import Progress, Report
from vmafx.scoring.score import Scorer

VMAFX = str(Path(sys.executable).with_name("vmafx"))


@pytest.fixture(scope="module")
def long_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip that takes some seconds to score with one thread."""
    return video.long_clip(tmp_path_factory.mktemp("long") / "clip.mkv", frames=150)


def reading(path: Path) -> Iterator[int]:
    """The processes that have this file open."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and str(path) in _open_files(entry):
            yield int(entry.name)


def _open_files(process: Path) -> set[str]:
    """The files that a process has open; ignores those that it closes meanwhile."""
    files = set()
    with suppress(OSError):
        for link in (process / "fd").iterdir():
            with suppress(OSError):
                files.add(os.readlink(link))  # noqa: PTH115
    return files


def others_reading(path: Path) -> list[int]:
    return [pid for pid in reading(path) if pid != os.getpid()]


async def test_progress_increases_to_the_total_and_the_report_comes_last(long_clip: Path) -> None:
    scorer = Scorer()
    updates = [update async for update in scorer.stream(Source(str(long_clip)), Source(str(long_clip)))]
    *progress, report = updates
    assert isinstance(report, Report)
    scoring = [one for one in progress if isinstance(one, Progress) and one.stage == "scoring"]
    assert [one.done for one in scoring] == sorted(one.done for one in scoring)
    assert scoring[-1].done == scoring[-1].total == report.result.frames == 150
    assert len(scoring) > 10
    assert all(one.fps > 0 and one.eta is not None for one in scoring)
    assert scoring[-1].eta == 0


async def test_closing_the_stream_stops_ffmpeg(long_clip: Path, temp_folder: Path) -> None:
    scorer = Scorer()
    clip = Source(str(long_clip))
    async with aclosing(scorer.stream(clip, clip, ScoreOptions(threads=1))) as updates:
        async for update in updates:
            if isinstance(update, Progress) and update.stage == "scoring":
                break
        assert others_reading(long_clip)
    assert others_reading(long_clip) == []
    assert list(temp_folder.iterdir()) == []
    assert list(reading(long_clip)) == []  # not even this process has it open


MOMENTS: dict[str, Callable[[Path], object]] = {
    "immediately": lambda _: True,
    "once it is open": lambda clip: list(reading(clip)),
    "once another process reads it": others_reading,
    "once it is scored": lambda _: engines(os.getpid()),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_cancelled_task_leaves_no_process_and_no_file(moment: str, long_clip: Path, temp_folder: Path) -> None:
    scorer = Scorer()
    clip = Source(str(long_clip))
    task = asyncio.create_task(scorer.score(clip, clip, ScoreOptions(threads=1)))
    await asyncio.sleep(0)
    await eventually(lambda: MOMENTS[moment](long_clip), moment, every=0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert list(reading(long_clip)) == []
    assert list(temp_folder.iterdir()) == []


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_command_leaves_no_process_and_no_file(sign: int, long_clip: Path, tmp_path: Path) -> None:
    for folder in ("home", "tmp", "work"):
        (tmp_path / folder).mkdir()
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp")}
    command = [VMAFX, "score", str(long_clip), str(long_clip), "--threads", "1", "--report", "report.html"]
    with subprocess.Popen(
        command,
        env=environment,
        cwd=tmp_path / "work",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        until(lambda: bool(engines(process.pid)), "the clip is scored")
        process.send_signal(sign)
        process.communicate(timeout=30)
    assert process.returncode == (-sign if sign == signal.SIGKILL else 130)
    until(lambda: others_reading(long_clip) == [], "no process is left")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def engines(parent: int) -> list[int]:
    """The processes of this parent that score raw frames with libvmaf."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):  # a process that has ended since
            _, _, fields = (entry / "stat").read_text().rpartition(") ")
            if int(fields.split()[1]) == parent and b"libvmaf=" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize(("sign", "error"), [(signal.SIGKILL, NodeFault), (signal.SIGSEGV, EngineFailure)])
async def test_a_killed_or_crashed_engine_is_reported_with_its_signal(
    sign: signal.Signals, error: type[Exception], long_clip: Path
) -> None:
    clip = Source(str(long_clip))
    task = asyncio.create_task(Scorer().score(clip, clip, ScoreOptions(threads=1)))
    await eventually(lambda: engines(os.getpid()), "the clip is scored")
    for pid in engines(os.getpid()):
        os.kill(pid, sign)
    with pytest.raises(error, match=f"ffmpeg failed with signal {sign.name}"):
        await task


@pytest.mark.parametrize(("sign", "error"), [(signal.SIGKILL, NodeFault), (signal.SIGSEGV, BadInput)])
@pytest.mark.parametrize("moment", ["once another process reads it", "once it is scored"])
async def test_a_killed_or_crashed_decoder_is_reported_with_its_signal(
    moment: str, sign: signal.Signals, error: type[Exception], long_clip: Path
) -> None:
    """A crash is taken as the clip's fault, which it is on every machine, once the decoder has read of it."""
    clip = Source(str(long_clip))
    task = asyncio.create_task(Scorer().score(clip, clip, ScoreOptions(threads=1)))
    await eventually(lambda: MOMENTS[moment](long_clip), moment)
    for pid in others_reading(long_clip):
        os.kill(pid, sign)
    expected = (error, NodeFault) if moment == "once another process reads it" else error  # it may not have read it yet
    with pytest.raises(expected, match=f"signal {sign.name}"):
        await task
    assert others_reading(long_clip) == []


async def test_a_clip_that_exceeds_the_memory_limit_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "large.mkv"
    ffmpeg("-f", "lavfi", "-i", "color=size=3840x2160", "-frames:v", "1", "-pix_fmt", "yuv420p", "-c:v", "ffv1", large)
    clip = Source(str(large))
    # Where an allocation fails, the libraries report it or crash.
    with pytest.raises(BadInput, match=r"it cannot be read within 100 MiB of memory|crashed ffmpeg's libraries"):
        await Scorer(Engines(), limits=ClipLimits(memory=100 << 20)).score(clip, clip)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 1", "is not a working ffmpeg: .* failed with exit code 1: no error message"),
        ("echo hello", "is not ffmpeg: .* printed no ffmpeg version"),
        ("echo ffmpeg version 4.4.2", "has no libvmaf filter"),
    ],
)
async def test_an_unusable_ffmpeg_is_a_node_fault(script: str, message: str, long_clip: Path, tmp_path: Path) -> None:
    fake = tmp_path / "ffmpeg"
    fake.write_text(f"#!/bin/sh\ncase $* in *filter_complex*) exit 8;; esac\n{script}\n")
    fake.chmod(0o755)
    clip = Source(str(long_clip))
    with pytest.raises(NodeFault, match=message):
        await Scorer(Engines({"VMAFX_FFMPEG_BIN": str(fake)})).score(clip, clip)
    with pytest.raises(NodeFault, match="VMAFX_FFMPEG_BIN is set to 'nowhere', which is not an executable"):
        await Engines({"VMAFX_FFMPEG_BIN": "nowhere"}).choose()


async def test_results_are_cached_by_content_and_options(tmp_path: Path) -> None:
    folder, clip = tmp_path / "cache", lossless(scene(), tmp_path / "clip.mkv")
    scorer = Scorer(Engines(), cache=ResultCache(folder))
    copy = tmp_path / "copy.mkv"
    copy.write_bytes(clip.read_bytes())
    first = await scorer.score(Source(str(clip)), Source(str(clip)))
    again = await scorer.score(Source(str(clip)), Source(str(copy)), ScoreOptions(threads=1))
    assert (first.result.cached, again.result.cached) == (False, True)
    assert again.values == first.values
    assert again.result.distorted.uri == str(copy)
    other = await scorer.score(Source(str(clip)), Source(str(copy)), ScoreOptions(subsample=5))
    assert not other.result.cached
    assert other.result.key != first.result.key
    (entry,) = (path for path in folder.iterdir() if path.stem == first.result.key)
    entry.write_bytes(entry.read_bytes()[:100])
    assert not (await scorer.score(Source(str(clip)), Source(str(copy)))).result.cached


class RenamedLibvmaf(LibvmafEngine):
    """libvmaf on the CPU, under the name of another backend."""

    async def score(self, *arguments: Any) -> MeasuredRun:
        run = await LibvmafEngine(await find_ffmpeg(), "cpu", {}).score(*arguments)
        return msgspec.structs.replace(run, facts=msgspec.structs.replace(run.facts, backend=self.backend))


class AnyBackend(Engines):
    def check(self, backend: Backend | None) -> None:
        pass

    async def choose(self, backend: Backend | None = None, _measurement: Measurement | None = None) -> Engine:
        return RenamedLibvmaf(await find_ffmpeg(), backend or "cpu", {})


async def test_a_cached_result_is_reused_only_for_its_backend(tmp_path: Path) -> None:
    clip = Source(str(lossless(scene(frames=2), tmp_path / "clip.mkv")))
    scorer = Scorer(AnyBackend(), cache=ResultCache(tmp_path / "cache"))
    backends: tuple[Backend | None, ...] = ("cuda", None, "cpu", "cuda")  # None: the engine for cpu is the best
    results = [(await scorer.score(clip, clip, ScoreOptions(backend=one))).result for one in backends]
    assert [(one.engine.backend, one.cached) for one in results] == [
        ("cuda", False), ("cpu", False), ("cpu", True), ("cuda", True),
    ]  # fmt: skip


async def test_repeated_scores_leave_no_descriptor_open(tmp_path: Path) -> None:
    clip = Source(str(lossless(scene(frames=2), tmp_path / "clip.mkv")))
    scorer = Scorer()
    await scorer.score(clip, clip)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(4):
        await scorer.score(clip, clip)
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208 - other tests' idle connections may close meanwhile


async def test_a_cancelled_hash_that_has_not_started_closes_the_clip(long_clip: Path) -> None:
    """All threads of the pool are busy, so that hashing is queued."""
    busy, loop = threading.Event(), asyncio.get_running_loop()
    others = [loop.run_in_executor(None, busy.wait) for _ in range(64)]
    fd = os.open(long_clip, os.O_RDONLY)
    try:
        hashing = asyncio.create_task(sha256(OpenedMedia(fd, long_clip.stat().st_size, "clip")))
        await asyncio.sleep(0)
        hashing.cancel()
        busy.set()
        await asyncio.gather(hashing, *others, return_exceptions=True)
        assert hashing.cancelled()
    finally:
        os.close(fd)
    assert list(reading(long_clip)) == []


async def test_bad_local_clips_fail_while_another_clip_is_downloaded(tmp_path: Path) -> None:
    reference = lossless(scene(), tmp_path / "reference.mkv")
    ffmpeg("-i", reference, "-frames:v", "30", "-vf", "crop=128:144", tmp_path / "narrow.mp4")
    (tmp_path / "text.mp4").write_text("no clip")
    local = [tmp_path / name for name in ("none.mp4", "text.mp4", "narrow.mp4")]
    failures: dict[int, str] = {}
    async with WebServer() as web:
        content = reference.read_bytes()
        remote = [web.serve(f"/{name}.mkv", stalls(content, after=len(content) // 2)) for name in ("a", "b")]
        scorer = Scorer(Engines(), MediaPolicy(private=True))
        batch = BatchScorer(scorer, ScoreOptions(), parallel=1)
        task = asyncio.create_task(
            batch.score(
                Source(str(reference)),
                [*map(Source, remote), *(Source(str(path)) for path in local), Source("ftp://host/clip.mp4")],
                lambda _number, _progress: None,
                lambda number, error: failures.update({number: str(error)}),
            )
        )
        await eventually(lambda: len(failures) == 4 or task.done(), "all bad clips have failed")
        assert not task.done()
        assert len(web.requests) == 1  # the second remote clip waits for the first
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    reasons = ("there is no file", "text.mp4", "its aspect ratio", "ftp:// is not supported")
    assert all(reason in failures[number] for number, reason in enumerate(reasons, start=2)), failures


async def test_with_a_bad_reference_no_failures_of_clips_are_reported(tmp_path: Path) -> None:
    (tmp_path / "text.mkv").write_text("no clip")
    batch, failures = BatchScorer(Scorer(), ScoreOptions()), []
    clips = [Source("none.mp4"), Source(str(tmp_path / "text.mkv"))]
    with pytest.raises(BadInput, match=r"^reference"):
        await batch.score(clips[1], clips, lambda *_: None, lambda *failure: failures.append(failure))
    assert failures == []
