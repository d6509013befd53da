"""Batches: clips scored together share the decoding of the reference, and nothing else."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integration.scoring.test_process import engines, others_reading, reading
from tests.support.video import ffmpeg, lossless, scene
from tests.support.webserver import WebServer, has
from vmafx.scoring import stall
from vmafx.scoring.batch import BatchScorer, ClipFailed, ClipScored
from vmafx.scoring.cache import ResultCache
from vmafx.scoring.decoder.clip_decoder import ClipDecoder
from vmafx.scoring.errors import NodeFault
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.request import ScoreOptions, Source
from vmafx.scoring.result import Progress
from vmafx.scoring.score import Scorer

FRAMES = 40  # do not fit into the pipes, so that decoders live as long as engines


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a reference and distorted clips, good and bad."""
    folder = tmp_path_factory.mktemp("clips")
    reference = lossless(scene(frames=FRAMES), folder / "reference.mkv")
    for name, options in {
        "good.mp4": ("-c:v", "libx264", "-crf", "25"),
        "poor.mp4": ("-c:v", "libx264", "-crf", "40"),
        "small.mp4": ("-c:v", "libx264", "-crf", "30", "-vf", "scale=128:72"),
        "deep.mkv": ("-c:v", "ffv1", "-vf", "noise=alls=20", "-pix_fmt", "yuv420p10le"),
        "short.mp4": ("-c:v", "libx264", "-crf", "30", "-frames:v", str(FRAMES - 1)),
    }.items():
        ffmpeg("-i", reference, *options, folder / name)
    content = bytearray((folder / "good.mp4").read_bytes())
    for middle in range(len(content) // 3, len(content) * 2 // 3, 97):
        content[middle] ^= 0xFF
    (folder / "damaged.mp4").write_bytes(content)
    return folder


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The clips that were decoded, each with the number of its readers."""
    found, decode = list[tuple[str, int]](), ClipDecoder.decode

    def recording(self: ClipDecoder, conversion: Any, outputs: int = 1, **more: Any) -> Any:
        found.append((Path(self._opened.display_name).name, outputs))
        return decode(self, conversion, outputs, **more)

    monkeypatch.setattr(ClipDecoder, "decode", recording)
    return found


def ignore(_number: int, _progress: Progress) -> None:
    pass


async def alone(clips: Path, name: str) -> dict[str, list[float]]:
    scorer = Scorer(cache=ResultCache(clips / "alone"))
    report = await scorer.score(Source(str(clips / "reference.mkv")), Source(str(clips / name)))
    return {column: values.tolist() for column, values in report.values.items()}


def values(outcome: ClipScored | ClipFailed) -> dict[str, list[float]]:
    assert isinstance(outcome, ClipScored), outcome
    return {column: values.tolist() for column, values in outcome.report.values.items()}


def sources(clips: Path, *names: str) -> list[Source]:
    return [Source(str(clips / name)) for name in names]


async def test_the_reference_is_decoded_once_per_format_and_scores_do_not_change(
    clips: Path, decodings: list[tuple[str, int]]
) -> None:
    names = ("good.mp4", "deep.mkv", "poor.mp4", "small.mp4")
    batch = BatchScorer(Scorer(), ScoreOptions(), parallel=4)
    reference, *distorted = sources(clips, "reference.mkv", *names)
    outcomes = await batch.score(reference, distorted, ignore)
    assert [one for one in decodings if one[0] == "reference.mkv"] == [("reference.mkv", 3), ("reference.mkv", 1)]
    assert [values(outcome) for outcome in outcomes] == [await alone(clips, name) for name in names]


async def test_bad_clips_do_not_disturb_the_others(clips: Path, decodings: list[tuple[str, int]]) -> None:
    names = ("damaged.mp4", "good.mp4", "short.mp4", "poor.mp4")
    reference, *distorted = sources(clips, "reference.mkv", *names)
    damaged, good, short, poor = await BatchScorer(Scorer(), ScoreOptions(), parallel=4).score(
        reference, distorted, ignore
    )
    assert isinstance(damaged, ClipFailed)
    assert "decoding error" in str(damaged.error)
    assert isinstance(short, ClipFailed)
    assert f"it has {FRAMES - 1} frames, but the reference has {FRAMES}" in str(short.error)
    assert [values(good), values(poor)] == [await alone(clips, "good.mp4"), await alone(clips, "poor.mp4")]
    assert decodings.count(("reference.mkv", 4)) == 1


async def test_a_killed_decoder_fails_its_clip_only(clips: Path) -> None:
    victim = clips / "poor.mp4"

    def kill(number: int, progress: Progress) -> None:
        if number == 1 and progress.stage == "waiting":  # its decoder is kept, and decodes next
            for pid in others_reading(victim):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    reference, *distorted = sources(clips, "reference.mkv", "good.mp4", "poor.mp4", "small.mp4")
    good, poor, small = await BatchScorer(Scorer(), ScoreOptions(), parallel=3).score(reference, distorted, kill)
    assert isinstance(poor, ClipFailed)
    assert isinstance(poor.error, NodeFault)
    assert [values(good), values(small)] == [await alone(clips, "good.mp4"), await alone(clips, "small.mp4")]


async def test_a_stalled_decoder_fails_its_clip_only(clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for it, since the reference is decoded for all; so none of them makes progress."""
    monkeypatch.setattr(stall, "STALL_TIMEOUT", 3.0)
    monkeypatch.setattr(stall, "CHECK_INTERVAL", 0.1)
    victim = clips / "poor.mp4"

    def stop(number: int, progress: Progress) -> None:
        if number == 1 and progress.stage == "waiting":
            for pid in others_reading(victim):
                os.kill(pid, signal.SIGSTOP)

    reference, *distorted = sources(clips, "reference.mkv", "good.mp4", "poor.mp4", "small.mp4")
    good, poor, small = await BatchScorer(Scorer(), ScoreOptions(), parallel=3).score(reference, distorted, stop)
    assert isinstance(poor, ClipFailed)
    assert str(poor.error) == "scoring stalled: no frame within 3 s"
    assert [values(good), values(small)] == [await alone(clips, "good.mp4"), await alone(clips, "small.mp4")]


async def test_more_clips_than_are_scored_together_with_cached_and_remote_ones(
    clips: Path, decodings: list[tuple[str, int]], tmp_path: Path, server: WebServer
) -> None:
    scorer = Scorer(policy=MediaPolicy(private=True), cache=ResultCache(tmp_path / "cache"))
    reference, good, poor, small = sources(clips, "reference.mkv", "good.mp4", "poor.mp4", "small.mp4")
    await scorer.score(reference, poor)
    decodings.clear()
    remote = Source(server.serve("/remote.mkv", has((clips / "deep.mkv").read_bytes())))
    outcomes = await BatchScorer(scorer, ScoreOptions(), parallel=2).score(
        reference, [good, poor, remote, small, good], ignore
    )
    names = ("good.mp4", "poor.mp4", "deep.mkv", "small.mp4", "good.mp4")
    assert [values(outcome) for outcome in outcomes] == [await alone(clips, name) for name in names]
    cached = [isinstance(one, ClipScored) and one.report.result.cached for one in outcomes]
    assert cached == [False, True, False, False, True]


async def test_a_cancelled_batch_leaves_nothing(clips: Path, temp_folder: Path) -> None:
    reference, *distorted = sources(clips, "reference.mkv", "good.mp4", "poor.mp4", "small.mp4")
    scoring = asyncio.Event()
    batch = BatchScorer(Scorer(), ScoreOptions(), parallel=3)
    task = asyncio.create_task(
        batch.score(
            reference, distorted, lambda _number, progress: scoring.set() if progress.stage == "scoring" else None
        )
    )
    await scoring.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert [pid for source in (reference, *distorted) for pid in reading(Path(source.uri))] == []
    assert engines(os.getpid()) == []
    assert list(temp_folder.iterdir()) == []
