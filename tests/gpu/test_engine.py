"""The engine in its process: whole clips by Scorer, several clips with one reference, runs, and what goes wrong."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from io import FileIO
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from tests.gpu.conftest import BACKEND, ON_DEVICE
from tests.support.video import ffmpeg, lossless, scene
from tests.support.waiting import eventually
from vmafx.api.hardware import Backend
from vmafx.scoring.engines.engine import FrameFormat, MeasuredRun, Measurement, Run
from vmafx.scoring.engines.find import ENGINE_VARIABLE, Engines
from vmafx.scoring.engines.gpu import engine as gpu_engine
from vmafx.scoring.engines.gpu.definitions import LumaFormat
from vmafx.scoring.engines.gpu.engine import TorchEngine
from vmafx.scoring.engines.gpu.messages import Answer, MeasureTask
from vmafx.scoring.engines.gpu.process import DeviceProcess
from vmafx.scoring.errors import BadInput, EngineFailure, NodeFault, ScoringError
from vmafx.scoring.frame_stream import FrameScorer, RawPair, StreamSummary
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.models import open_model
from vmafx.scoring.request import ClipLimits, ScoreOptions, Source
from vmafx.scoring.result import Progress, Report
from vmafx.scoring.score import Scorer

SIZE, FRAMES, NAME = (128, 96), 20, "crf34.mp4"
OPTIONS = ScoreOptions(backend=BACKEND, threads=1)
OTHER = "use the backend cpu" if ON_DEVICE else "use the engine ffmpeg"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reference, three encodes, one of which is short, in 8 and 10 bits."""
    folder = tmp_path_factory.mktemp("clips")
    reference = lossless(scene(frames=FRAMES, size=SIZE), folder / "reference.mkv")
    for crf in (18, 34, 45):
        ffmpeg("-i", reference, "-c:v", "libx264", "-crf", str(crf), folder / f"crf{crf}.mp4")
    ffmpeg("-i", reference, "-c:v", "libx264", "-crf", "30", "-frames:v", "12", folder / "short.mp4")
    ffmpeg("-i", reference, "-c:v", "libx265", "-pix_fmt", "yuv420p10le", "-crf", "34", folder / "deep.mp4")
    ffmpeg("-i", reference, "-c:v", "libx264", "-pix_fmt", "yuv444p", "-crf", "34", folder / "full.mp4")
    return folder


@pytest.fixture
async def engines() -> AsyncIterator[Engines]:
    engines = Engines({**os.environ, ENGINE_VARIABLE: "torch"})
    yield engines
    await engines.close()


@pytest.fixture
async def engine(engines: Engines) -> TorchEngine:
    found = await engines.choose(BACKEND)
    assert isinstance(found, TorchEngine)
    return found


def source(path: Path) -> Source:
    return Source(str(path))


async def score(engines: Engines, folder: Path, name: str = NAME, options: ScoreOptions = OPTIONS) -> Report:
    return await Scorer(engines).score(source(folder / "reference.mkv"), source(folder / name), options)


async def by_libvmaf(folder: Path, name: str = NAME, options: ScoreOptions = OPTIONS) -> Report:
    cpu = msgspec.structs.replace(options, backend="cpu")
    return await score(Engines({**os.environ, ENGINE_VARIABLE: "ffmpeg"}), folder, name, cpu)


def assert_close(ours: Report, theirs: Report) -> None:
    """The same frames and columns, and values within the stated bounds.

    Those of features are wider here: in frames under 400 pixels wide, the coarse scales of ADM count the last column,
    where the AVX2 code of libvmaf 2.3 differs from its C code by up to 1.6e-4.
    """
    assert (ours.numbers, list(ours.values)) == (theirs.numbers, list(theirs.values))
    for name, column in theirs.values.items():
        relative, absolute = (0.0, 0.01) if name == "vmaf" else (3e-4, 2e-6)  # a log has six decimals
        np.testing.assert_allclose(ours.values[name], column, relative, absolute, err_msg=name)
    assert abs(ours.result.score - theirs.result.score) < 0.01


@pytest.mark.parametrize("name", ["crf34.mp4", "deep.mp4", "full.mp4"])
@pytest.mark.parametrize("model", ["vmaf_v0.6.1", "vmaf_v0.6.1neg", "vmaf_4k_v0.6.1"])
async def test_a_clip_has_the_score_of_libvmaf(name: str, model: str, folder: Path, engines: Engines) -> None:
    options, progress = msgspec.structs.replace(OPTIONS, model=model), list[Progress]()
    reference, distorted = folder / "reference.mkv", folder / name
    ours = await Scorer(engines).score(source(reference), source(distorted), options, progress.append)
    assert_close(ours, await by_libvmaf(folder, name, options))
    facts = ours.result.engine
    assert (facts.backend, facts.torch, bool(facts.triton)) == (BACKEND, str(torch.__version__), ON_DEVICE)
    scored = [one.done for one in progress if one.stage == "scoring"]
    assert scored == sorted(scored)
    assert scored[-1] == FRAMES
    assert ours.result.frames == FRAMES


@pytest.mark.parametrize("subsample", [2, 3, 7])
async def test_subsampling(subsample: int, folder: Path, engines: Engines) -> None:
    options = msgspec.structs.replace(OPTIONS, subsample=subsample)
    assert_close(await score(engines, folder, options=options), await by_libvmaf(folder, options=options))


async def compare_all(
    scorer: Scorer, folder: Path, names: list[str], options: ScoreOptions
) -> list[Report | ScoringError]:
    async with scorer.open(source(folder / "reference.mkv"), "reference") as opened:
        reference = await scorer.probe(opened)
        clips = []
        async with AsyncExitStack() as stack:
            for name in names:
                clip = await stack.enter_async_context(scorer.open(source(folder / name), "distorted"))
                clips.append(await scorer.probe(clip))
            return await scorer.compare_all(reference, clips, options, [lambda _: None] * len(clips))


async def test_clips_with_one_reference_are_measured_in_one_task(
    folder: Path, engines: Engines, engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = []
    send = DeviceProcess.send

    def count(self: DeviceProcess, task: MeasureTask, descriptors: Sequence[int]) -> None:
        tasks.append((task.clips, len(descriptors)))
        send(self, task, descriptors)

    monkeypatch.setattr(DeviceProcess, "send", count)
    names = ["crf18.mp4", "crf34.mp4", "crf45.mp4"]
    together = await compare_all(Scorer(engines), folder, names, OPTIONS)
    assert tasks == [(3, 7)]  # the reference once, then a clip and its results three times
    for name, ours in zip(names, together, strict=True):
        assert isinstance(ours, Report)
        assert_close(ours, await by_libvmaf(folder, name))


async def test_a_clip_that_ends_early_does_not_end_the_others(folder: Path, engines: Engines) -> None:
    options = msgspec.structs.replace(OPTIONS, shortest=True)
    short, full = await compare_all(Scorer(engines), folder, ["short.mp4", "crf34.mp4"], options)
    assert isinstance(short, Report)
    assert isinstance(full, Report)
    assert (len(short.numbers), len(full.numbers)) == (12, FRAMES)
    assert_close(short, await by_libvmaf(folder, "short.mp4", options))
    assert_close(full, await by_libvmaf(folder))
    refused, other = await compare_all(Scorer(engines), folder, ["short.mp4", "crf34.mp4"], OPTIONS)
    assert isinstance(refused, BadInput)
    assert "it has 12 frames, but the reference has 20" in str(refused)
    assert isinstance(other, Report)


async def test_runs_are_exact(folder: Path, engine: TorchEngine) -> None:
    """The features of runs, put together, are those of one pass. The last bit of a score depends on their number."""
    luma = {name: _luma(folder / name) for name in ("reference.mkv", "crf34.mp4")}
    async with open_model("vmaf_v0.6.1", MediaPolicy()) as model:
        measurement = Measurement(model=model)
        whole = await _measure(engine, Run(), measurement, luma)
        parts = [await _measure(engine, run, measurement, luma) for run in (Run(0, 7), Run(7, 8), Run(8, 20))]
    assert [number for part in parts for number in part.numbers] == list(whole.numbers) == list(range(FRAMES))
    for name, column in whole.values.items():
        joined = [value for part in parts for value in part.values[name]]
        assert joined == (pytest.approx(list(column), rel=1e-12) if name == "vmaf" else list(column)), name


def _luma(path: Path) -> list[bytes]:
    raw = path.with_suffix(".luma")
    ffmpeg("-i", path, "-f", "rawvideo", "-pix_fmt", "gray", raw)
    content, size = raw.read_bytes(), SIZE[0] * SIZE[1]
    return [content[start : start + size] for start in range(0, len(content), size)]


def ignore_count(_scored: int) -> None:
    pass


async def _measure(
    engine: TorchEngine,
    run: Run,
    what: Measurement,
    luma: dict[str, list[bytes]],
    on_scored: Callable[[int], None] = ignore_count,
) -> MeasuredRun:
    fed = run.fed(engine.neighbours, what.subsample)

    def fed_frames(frames: list[bytes]) -> FileIO:
        file = FileIO(os.memfd_create("frames"), "w+")
        file.write(b"".join(frames[fed.first : fed.end]))
        file.seek(0)
        return file

    reference, distorted = map(fed_frames, luma.values())
    return await engine.score(run, what, FrameFormat(*SIZE, "yuv420p"), reference, distorted, on_scored)


async def test_a_caller_can_end_a_score(folder: Path, engine: TorchEngine) -> None:
    """By an error in its listener, as for too many frames."""

    def refuse(_scored: int) -> None:
        raise BadInput("options", "enough")

    luma = {name: _luma(folder / name) for name in ("reference.mkv", "crf34.mp4")}
    async with open_model("vmaf_v0.6.1", MediaPolicy()) as model:
        with pytest.raises(BadInput, match="enough"):
            await _measure(engine, Run(), Measurement(model=model), luma, refuse)
        assert len((await _measure(engine, Run(), Measurement(model=model), luma)).numbers) == FRAMES


async def test_a_stream_has_the_scores_of_the_clip(folder: Path, engines: Engines) -> None:
    """Only luma of its frames is kept for the engine."""
    frames, size = {}, SIZE[0] * SIZE[1] * 3 // 2
    for name in ("reference.mkv", "crf34.mp4"):
        raw = folder / f"{name}.yuv"
        ffmpeg("-i", folder / name, "-f", "rawvideo", "-pix_fmt", "yuv420p", raw)
        content = raw.read_bytes()
        frames[name] = [content[start : start + size] for start in range(0, len(content), size)]

    async def pairs() -> AsyncIterator[RawPair]:
        for pair in zip(*frames.values(), strict=True):
            yield RawPair(*pair)

    scorer = FrameScorer(engines, run_length=8)
    updates = [update async for update in scorer.stream(FrameFormat(*SIZE, "yuv420p"), pairs(), OPTIONS)]
    report = await by_libvmaf(folder)
    assert isinstance(updates[-1], StreamSummary)
    assert updates[-1].score == pytest.approx(report.result.score, abs=0.01)
    assert len(updates) == FRAMES + 1


async def test_processes_are_used_again(folder: Path, engines: Engines, engine: TorchEngine) -> None:
    before = set(engine._idle)
    reports = [await score(engines, folder) for _ in range(2)]
    assert set(engine._idle) == before
    assert len(before) == 1
    assert reports[0].values == reports[1].values
    async with engine.device_process() as process:  # as if another score used it
        assert {process} == before
        assert (await score(engines, folder)).values == reports[0].values
    assert len(engine._idle) == 2


async def test_what_the_engine_cannot_measure_is_said(folder: Path, engines: Engines, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"the engine for the backend {BACKEND} does not measure psnr; {OTHER}"):
        await score(engines, folder, options=msgspec.structs.replace(OPTIONS, features=("psnr",)))
    model, content = tmp_path / "other.json", {"feature_names": ["x"], "slopes": [1, 1], "intercepts": [0, 0]}
    content |= {"model": "", "model_type": "LIBSVMNUSVR", "score_clip": [0, 100]}
    model.write_text(json.dumps({"model_dict": content}))
    with pytest.raises(BadInput, match=OTHER):
        await score(engines, folder, options=msgspec.structs.replace(OPTIONS, model=str(model)))


async def test_a_limit_of_frames_holds_on_a_device(folder: Path, engines: Engines) -> None:
    scorer = Scorer(engines, limits=ClipLimits(frames=FRAMES - 1))
    with pytest.raises(BadInput, match="limit"):
        await scorer.score(source(folder / "reference.mkv"), source(folder / "crf34.mp4"), OPTIONS)


@pytest.mark.parametrize(("sign", "error"), [(signal.SIGSEGV, EngineFailure), (signal.SIGKILL, NodeFault)])
async def test_a_device_process_that_dies_fails_the_attempt(
    sign: signal.Signals,
    error: type[ScoringError],
    folder: Path,
    engines: Engines,
    engine: TorchEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not as bad input. The next score has another process."""
    receive = DeviceProcess.receive

    async def kill_first(self: DeviceProcess) -> Answer:
        os.kill(self._process.pid, sign)
        return await receive(self)

    with monkeypatch.context() as patched:
        patched.setattr(DeviceProcess, "receive", kill_first)
        with pytest.raises(error, match=f"the device process failed with signal {sign.name}"):
            await score(engines, folder)
    assert (await score(engines, folder)).result.frames == FRAMES


async def test_an_idle_process_that_has_died_is_replaced(folder: Path, engines: Engines, engine: TorchEngine) -> None:
    (process,) = engine._idle
    os.kill(process._process.pid, signal.SIGKILL)
    await eventually(lambda: process.has_ended, "the process has ended")
    assert (await score(engines, folder)).result.frames == FRAMES


async def test_a_task_for_a_process_that_has_died_is_a_fault_of_the_node(engine: TorchEngine) -> None:
    (process,) = engine._idle
    os.kill(process._process.pid, signal.SIGKILL)
    await eventually(lambda: process.has_ended, "the process has ended")
    process.send(MeasureTask(LumaFormat(*SIZE, 8), 100.0, 1, 1), [])
    with pytest.raises(NodeFault, match="SIGKILL"):
        await process.receive()


async def test_cancelling_ends_the_device_process(folder: Path, engines: Engines, engine: TorchEngine) -> None:
    process = next(iter(engine._idle))
    scoring = asyncio.create_task(score(engines, folder))
    await eventually(lambda: process not in engine._idle, "the process is used", every=0.01)
    scoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scoring
    assert process._process.returncode is not None
    assert not engine._idle


@pytest.mark.parametrize("backend", sorted({"cuda", "hip", "sycl", "metal"} - {BACKEND}))
async def test_a_missing_device_is_a_fault_of_the_node(backend: Backend, folder: Path, engines: Engines) -> None:
    with pytest.raises(NodeFault, match=rf"this machine has no engine for the backend {backend} \(an .* GPU\): torch"):
        await score(engines, folder, options=msgspec.structs.replace(OPTIONS, backend=backend))


async def test_idle_processes_end(
    folder: Path, engines: Engines, engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (process,) = engine._idle
    monkeypatch.setattr(gpu_engine, "IDLE_SECONDS", 0.0)
    await score(engines, folder)
    await eventually(lambda: process._process.returncode is not None, "the process has ended")
    assert not engine._idle
