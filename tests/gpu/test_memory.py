"""A device that is full: batches become smaller, then the attempt fails as a fault of the node."""

import errno
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from tests.gpu.conftest import BACKEND, ON_DEVICE
from tests.support.video import lossless, scene
from vmafx.scoring.engines.find import ENGINE_VARIABLE, Engines
from vmafx.scoring.engines.gpu import measure
from vmafx.scoring.engines.gpu.definitions import LumaFormat
from vmafx.scoring.engines.gpu.devices import NoDevice, free_memory, release_memory
from vmafx.scoring.engines.gpu.measure import Meter, batch_size
from vmafx.scoring.engines.gpu.messages import (
    RESULT_COLUMNS,
    Answer,
    Ended,
    Finished,
    MeasureTask,
    OutOfMemory,
    ResultsNotWritten,
    Started,
)
from vmafx.scoring.engines.gpu.pipeline import Pipeline
from vmafx.scoring.errors import NodeFault
from vmafx.scoring.request import ScoreOptions, Source
from vmafx.scoring.score import Scorer

FRAMES, SIZE = 5, (64, 48)
pytestmark = pytest.mark.timeout(600)


def measured(device: torch.device, tmp_path: Path, meter: Meter | None = None) -> tuple[list[Answer], np.ndarray]:
    """What a meter answers for a clip that is compared with itself, and its results."""
    raw = tmp_path / "luma"
    raw.write_bytes(np.random.default_rng(3).integers(0, 256, FRAMES * SIZE[0] * SIZE[1], np.uint8).tobytes())
    answers: list[Answer] = []
    with (tmp_path / "results").open("w+b") as results:
        inputs = [os.open(raw, os.O_RDONLY) for _ in range(2)]
        task = MeasureTask(LumaFormat(*SIZE, 8), 100.0, 1, 1)
        (meter or Meter(device)).measure(task, inputs, [results.fileno()], answers.append)
        for fd in inputs:
            os.close(fd)
        results.seek(0)
        return answers, np.frombuffer(results.read()).reshape(-1, RESULT_COLUMNS)


@pytest.mark.parametrize("largest", [2, 1])
def test_batches_become_smaller_until_they_fit(
    largest: int, device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def limited(frames: LumaFormat, gain_limit: float, size: int, *rest: Any) -> Pipeline:
        tried.append(size)
        if size > largest:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return Pipeline(frames, gain_limit, size, *rest)

    _, expected = measured(device, tmp_path)
    monkeypatch.setattr(measure, "Pipeline", limited)
    meter = Meter(device)
    answers, results = measured(device, tmp_path, meter)
    assert tried == [16, 8, 4, 2, 1][: [2, 1].index(largest) + 4]
    assert isinstance(answers[-1], Finished)
    assert Ended(0, FRAMES) in answers
    np.testing.assert_array_equal(results, expected)
    tried.clear()
    monkeypatch.setattr(measure, "Pipeline", Pipeline)  # there is memory again
    measured(device, tmp_path, meter)
    assert meter._pipeline is not None
    assert meter._pipeline.size == 16


def test_without_memory_for_single_frames_the_task_is_given_up(
    device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Pipeline:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(measure, "Pipeline", full)
    (answer,), _ = measured(device, tmp_path)
    assert isinstance(answer, OutOfMemory)
    assert bool(answer.total) == ON_DEVICE


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), RuntimeError("can't allocate memory")], ids=repr)
def test_memory_that_is_full_later_ends_the_task(
    error: RuntimeError, device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[weakref.ref[Pipeline]] = []
    kept: list[Pipeline | None] = []

    def full(pipeline: Pipeline, _slot: int) -> None:
        submitted.append(weakref.ref(pipeline))
        raise type(error)(*error.args)  # a new one: an error keeps the variables of where it was raised

    def free(_: torch.device) -> tuple[int, int]:
        kept.append(submitted[0]())
        return 0, 0

    meter = Meter(device)
    with monkeypatch.context() as patched:
        patched.setattr(Pipeline, "submit", full)
        patched.setattr(measure, "free_memory", free)
        answers, _ = measured(device, tmp_path, meter)
    assert isinstance(answers[0], Started)
    assert isinstance(answers[-1], OutOfMemory)
    assert kept == [None]  # what it took is given back before the free memory is read
    assert isinstance(measured(device, tmp_path, meter)[0][-1], Finished)


def test_results_that_cannot_be_written_end_the_task(device: torch.device, tmp_path: Path) -> None:
    raw = tmp_path / "luma"
    raw.write_bytes(bytes(FRAMES * SIZE[0] * SIZE[1]))
    answers: list[Answer] = []
    inputs = [os.open(raw, os.O_RDONLY) for _ in range(2)]
    with Path("/dev/full").open("wb") as results:
        task = MeasureTask(LumaFormat(*SIZE, 8), 100.0, 1, 1)
        Meter(device).measure(task, inputs, [results.fileno()], answers.append)
    for fd in inputs:
        os.close(fd)
    assert answers[-1] == ResultsNotWritten(os.strerror(errno.ENOSPC))


def test_a_device_that_cannot_measure_a_frame_is_not_used(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Pipeline:
        raise RuntimeError("no kernel image is available for execution on the device\nmore")

    Meter(device).check()
    monkeypatch.setattr(measure, "Pipeline", broken)
    with pytest.raises(NoDevice, match=r"cannot measure a frame: RuntimeError: no kernel image .* device$"):
        Meter(device).check()


def test_other_errors_are_not_taken_for_a_full_device(
    device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Pipeline:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(measure, "Pipeline", broken)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        measured(device, tmp_path)


@contextmanager
def memory_left(device: torch.device, megabytes: int) -> Iterator[None]:
    """Takes all other free memory of the device."""
    free, _ = free_memory(device)
    taken = torch.empty(max(free - (megabytes << 20), 0), dtype=torch.uint8, device=device)
    try:
        yield
    finally:
        del taken
        release_memory(device)


def reserved_by_pipeline(frames: LumaFormat, device: torch.device) -> int:
    """Bytes for batches of full size: also those that a graph uses only while it runs."""
    release_memory(device)
    reserved = getattr(torch, device.type).memory_reserved
    before = int(reserved())
    pipeline = Pipeline(frames, 100.0, batch_size(frames, plain=False), 1, device)
    taken = int(reserved()) - before
    del pipeline
    release_memory(device)
    return taken


@pytest.mark.whole_device
@pytest.mark.skipif(not ON_DEVICE, reason="there is no device to fill")
async def test_a_full_device(device: torch.device, tmp_path: Path) -> None:
    size = (1280, 720)
    clip = Source(str(lossless(scene(frames=20, size=size), tmp_path / "clip.mkv")))
    most = reserved_by_pipeline(LumaFormat(*size, 8), device) >> 20
    engines = Engines({**os.environ, ENGINE_VARIABLE: "torch"})
    try:
        await engines.choose(BACKEND)  # the process has its own part of the memory
        scorer, options = Scorer(engines), ScoreOptions(backend=BACKEND)
        with memory_left(device, 4), pytest.raises(NodeFault, match="the memory of the device is full"):
            await scorer.score(clip, clip, options)
        with memory_left(device, most // 2):
            smaller = await scorer.score(clip, clip, options)
        with_other_model = msgspec.structs.replace(options, model="vmaf_v0.6.1neg")
        await scorer.score(clip, clip, with_other_model)  # the pipeline with small batches is given up
        assert smaller.values == (await scorer.score(clip, clip, options)).values
    finally:
        await engines.close()
