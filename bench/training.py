"""Benchmark of training: speed beside scikit-learn and River, memory, pauses for checkpoints, and what is learned.

Run by `make bench-training`. Samples are features as those of real clips, 300 frames of each clip one after the other,
with the scores of vmaf_v0.6.1. All contestants learn the same samples in the same order, each in a process of its own
with one thread, in turns; speed is by CPU time. Ours trains a network with 16 hidden units, keeps an average of its
weights, normalises the features, shuffles the samples and watches for divergence; the others train a linear model.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import msgspec
import numpy as np
from bench.usage import memory_mib
from tests.support.sample_streams import FRAMES, Stream, base, config, corrected, frames_of_clips, start

from vmafx import logs
from vmafx.devcluster import paths
from vmafx.scoring.learned import encode_model
from vmafx.scoring.result import MODEL_FEATURES
from vmafx.segments import SegmentLog
from vmafx.training.config import TrainingConfig
from vmafx.training.learner import Learner
from vmafx.training.network import Array
from vmafx.training.online import OnlineTraining
from vmafx.training.samples import SamplePush, SampleSource, encode_batch, make_batch

HERE = Path(__file__).parent
OURS = "vmafx"
CONTESTANTS = (OURS, "scikit-learn", "river, one by one", "river, learn_many")
BATCH_SIZES = (32, 300)
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
MILLION = 1_000_000
CHECKPOINT_EVERY = 90_000  # samples
MAX_PAUSE_MS = 50.0


def install_peers() -> Path:
    """The Python of a virtual environment with scikit-learn and River, created once and cached."""
    folder = paths.cache() / "bench" / "learners"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        log("installing scikit-learn and River (once, about a minute)")
        venv.create(folder, with_pip=True, clear=True)
        packages = ["-q", "-c", str(HERE.parent / "constraints.txt"), "scikit-learn", "river", "pandas"]
        subprocess.run([str(python), "-m", "pip", "install", *packages], check=True)
        (folder / "ready").touch()
    return python


def compare_speed(samples: int, rounds: int) -> None:
    peers = install_peers()
    stream = Stream.of_teacher(frames_of_clips(samples // FRAMES, seed=1))
    normalised = (stream.features - stream.features.mean(axis=0)) / stream.features.std(axis=0)
    model = np.frombuffer(encode_model(start().model), np.uint8)
    seconds: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stream.npz"
        np.savez(file, normalised=normalised, model=model, **stream._asdict())
        for number in range(rounds):
            for size in BATCH_SIZES:
                for name in CONTESTANTS[number % 4 :] + CONTESTANTS[: number % 4]:
                    log(f"speed, round {number + 1} of {rounds}, {name}, {size}")
                    python = sys.executable if name == OURS else str(peers)
                    seconds.setdefault((name, size), []).append(_run_contestant(python, file, name, size))
    print(f"\nSamples per CPU second, medians of {rounds} rounds of {samples:,} samples\n")
    print(f"| | {' | '.join(f'calls of {size}' for size in BATCH_SIZES)} | ratio to ours |\n|---|---|---|---|")
    for name in CONTESTANTS:
        rates = [samples / statistics.median(seconds[name, size]) for size in BATCH_SIZES]
        ours = [samples / statistics.median(seconds[OURS, size]) for size in BATCH_SIZES]
        ratios = ", ".join(f"{rate / own:.2f}" for rate, own in zip(rates, ours, strict=True))
        print(f"| {name} | {' | '.join(f'{rate:,.0f}' for rate in rates)} | {ratios} |", flush=True)


def _run_contestant(python: str, file: Path, name: str, size: int) -> float:
    command = [python, str(HERE / "peer-learners" / "peer.py"), str(file), name, str(size)]
    done = subprocess.run(command, env={**os.environ, **ONE_THREAD}, stdout=subprocess.PIPE, check=True, text=True)
    return float(json.loads(done.stdout))


def measure_memory(millions: int) -> None:
    """Learn many samples with checkpoints, as a trainer does, in this process."""
    learner, stream = Learner(start(), config()), Stream.of_teacher(frames_of_clips(1000, seed=2))
    learner.hold_out(stream.features[-2000:], stream.targets[-2000:], clip=1)
    resident, pauses = [memory_mib(os.getpid(), "VmRSS")], []
    for before in range(0, millions * MILLION, FRAMES):
        begin, learned = before % len(stream.targets), before + FRAMES
        rows = slice(begin, begin + FRAMES)
        learner.learn(stream.features[rows], stream.targets[rows], stream.weights[rows])
        if not learned % CHECKPOINT_EVERY:
            pauses.append(_checkpoint_ms(learner))
        if learned // MILLION > before // MILLION:
            resident.append(memory_mib(os.getpid(), "VmRSS"))
            log(f"memory, {learned // MILLION} of {millions} million samples")
    print(f"\nResident MiB over {millions} million samples, at the start and after every million:")
    print(", ".join(f"{mib:.1f}" for mib in resident))
    state_kib = len(learner.state()) / 1024
    met = "met" if max(pauses) < MAX_PAUSE_MS else "**missed**"
    print(
        f"\nPause for a checkpoint (state of {state_kib:.0f} KiB, model, quality on {learner.held_out:,} samples):"
        f" median {statistics.median(pauses):.2f} ms, maximum {max(pauses):.2f} ms of {len(pauses)}"
        f" (goal below {MAX_PAUSE_MS:g} ms: {met})",
        flush=True,
    )


def measure_trainer(clips: int) -> None:
    """All that is done with samples: made by a worker, spooled by an agent, stored and learned by a trainer."""
    values = _columns(frames_of_clips(clips, seed=6))
    seconds = dict.fromkeys(
        ("worker: make and encode", "agent: spool", "trainer: check and store", "trainer: learn"), 0.0
    )
    pauses: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        spool = SegmentLog(Path(folder) / "spool")
        often = msgspec.structs.replace(config(), checkpoint_interval=0.0, min_samples=20 * FRAMES)
        training = OnlineTraining(often, Path(folder) / "trainer", start)
        for number, columns in enumerate(values):
            step = _Stopwatch(seconds)
            batch = make_batch("vmaf_v0.6.1", range(FRAMES), columns)
            content = encode_batch(batch) if batch is not None else b""
            step.took("worker: make and encode")
            spool.append(content)
            step.took("agent: spool")
            training.accept(SamplePush(SampleSource("default", "n", f"job-{number}", f"job-{number}-0"), content))
            step.took("trainer: check and store")
            training.learn(8)
            step.took("trainer: learn")
            began = time.perf_counter()
            if training.checkpoint_if_due() is not None:
                pauses.append(1000 * (time.perf_counter() - began))
        training.close()
    print(f"\nCost of the samples of a job ({FRAMES} samples, {len(content):,} bytes), means of {clips} jobs, in ms:")
    print(", ".join(f"{name} {1000 * total / clips:.2f}" for name, total in seconds.items()))
    stored = seconds["trainer: check and store"] + seconds["trainer: learn"]
    print(f"Samples per second through a trainer, synced to disk one by one: {clips * FRAMES / stored:,.0f}")
    middle = statistics.median(pauses)
    print(
        f"Pause for a checkpoint, its files included: median {middle:.1f} ms, maximum {max(pauses):.1f} ms", flush=True
    )


def _columns(features: Array) -> list[dict[str, list[float]]]:
    """The features and scores of each clip, as a worker has them."""
    table = np.column_stack([features, base().predict(features)])
    names = (*MODEL_FEATURES, "vmaf")
    clips = table.reshape(-1, FRAMES, len(names))
    return [{name: clip[:, column].tolist() for column, name in enumerate(names)} for clip in clips]


class _Stopwatch:
    """Adds the time since its last reading to one of the sums."""

    def __init__(self, sums: dict[str, float]) -> None:
        self._sums, self._since = sums, time.perf_counter()

    def took(self, name: str) -> None:
        now = time.perf_counter()
        self._sums[name] += now - self._since
        self._since = now


def _checkpoint_ms(learner: Learner) -> float:
    began = time.perf_counter()
    learner.accept_checkpoint()
    learner.quality()
    learner.state()
    encode_model(learner.model())
    return 1000 * (time.perf_counter() - began)


def measure_quality(samples: int) -> None:
    features, held_out = frames_of_clips(samples // FRAMES, seed=3), frames_of_clips(2000, seed=4, frames=1)
    stream, scores = Stream.of_teacher(features), base().predict(held_out)
    print(f"\nMean squared error on 2,000 frames of other clips, after {samples:,} samples\n")
    print("| learning rate | labels | base model | plain SGD | average (EMA) |\n|---|---|---|---|---|")
    falling = np.clip(stream.targets - np.linspace(0, 20, len(stream.targets)), 0, 100)
    cases = {
        "known function of the teacher's scores": (corrected(features, stream.targets), corrected(held_out, scores)),
        "the teacher's, with noise of up to 15 points": (stream.with_noise(seed=5).targets, scores),
        "the teacher's, falling by 20 points until the end": (falling, np.clip(scores - 20, 0, 100)),
    }
    for rate in (0.001, 0.01):
        for title, (targets, labels) in cases.items():
            # With a decay of 0, the average is the weights in training: plain SGD.
            settings = [config(learning_rate=rate, ema_decay=decay) for decay in (0.0, 0.999)]
            errors = [_held_out_error(stream._replace(targets=targets), one, held_out, labels) for one in settings]
            untrained = float(np.mean((scores - labels) ** 2))
            print(f"| {rate} | {title} | {' | '.join(f'{error:.3f}' for error in (untrained, *errors))} |", flush=True)


def _held_out_error(stream: Stream, settings: TrainingConfig, held_out: Array, labels: Array) -> float:
    learner = Learner(start(), settings)
    learner.hold_out(held_out, labels, clip=1)
    for begin in range(0, len(stream.targets), FRAMES):
        rows = slice(begin, begin + FRAMES)
        learner.learn(stream.features[rows], stream.targets[rows], stream.weights[rows])
        if problem := learner.divergence():
            raise SystemExit(problem)
    return learner.quality().loss or 0.0


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--millions", type=int, default=10)
    arguments = parser.parse_args()
    logs.configure("error", "console")
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {os.cpu_count()} cores")
    print(f"distilled vmaf_v0.6.1: root mean square error {start().rms_error:.3f}, maximum {start().max_error:.3f}")
    compare_speed(arguments.samples, arguments.rounds)
    measure_memory(arguments.millions)
    measure_trainer(arguments.samples // FRAMES)
    measure_quality(arguments.samples)


if __name__ == "__main__":
    main()
