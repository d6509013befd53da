"""Benchmark of VMAF on a GPU: `make bench-gpu`.

Prints, in this order: the bandwidth of a copy on the device; by how much the kernels differ from plain PyTorch; frames
per second with frames that are on the device, for sizes, bit depths and batches, with the share of that bandwidth; the
gain of 2, 4 and 8 distorted clips with one reference; what each kernel takes, and the memory of a score; and whole
files, from H.264, beside decoding alone, on the CPU and on NVIDIA's decoder, and libvmaf on the CPU. Batches of
different frames take turns, so that no cache holds them from one round to the next. `--device cpu` measures plain
PyTorch on small frames: to try this program, not to compare.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import imageio_ffmpeg
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from vmafx.api.hardware import Backend
from vmafx.scoring.batch import BatchScorer, ClipScored
from vmafx.scoring.engines.find import ENGINE_VARIABLE, EngineKind, Engines
from vmafx.scoring.engines.gpu import fused
from vmafx.scoring.engines.gpu.definitions import LumaFormat
from vmafx.scoring.engines.gpu.devices import free_memory, release_memory
from vmafx.scoring.engines.gpu.measure import batch_size
from vmafx.scoring.engines.gpu.pipeline import Batch, Pipeline, make_sums
from vmafx.scoring.engines.gpu.plain import PlainSums
from vmafx.scoring.plan import make_plan
from vmafx.scoring.request import ScoreOptions, Source
from vmafx.scoring.score import Scorer

Size = tuple[int, int]
SIZES: dict[str, Size] = {"1080p": (1920, 1080), "2160p": (3840, 2160)}
SMALL: dict[str, Size] = {"180p": (320, 180)}  # for plain PyTorch on a CPU
GOALS = {"1080p": 5000, "2160p": 1300}
GAIN_LIMIT = 100.0
ROTATED = 3  # batches
CLIPS = (2, 4, 8)  # with one reference
BEST_BATCH = 8


class Speed(NamedTuple):
    """Distorted frames per second, and what was measured."""

    fps: float
    work: Callable[[int], object]


class Bench:
    """Measurements on one device."""

    def __init__(self, device: torch.device, rounds: int) -> None:
        self.device, self.rounds = device, rounds

    def milliseconds(self, work: Callable[[int], object], rounds: int = 0) -> float:
        """The median time of a call, by the clock of the device if it has one."""
        for number in range(ROTATED):
            work(number)
        self.wait()
        return statistics.median(self._time(work, number) for number in range(rounds or self.rounds))

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _time(self, work: Callable[[int], object], number: int) -> float:
        if self.device.type != "cuda":
            started = time.perf_counter()
            work(number)
            return (time.perf_counter() - started) * 1e3
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work(number)
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    def copy_bandwidth(self) -> float:
        """Bytes per second that a copy on the device reads and writes."""
        size = 4 << 30 if self.device.type == "cuda" else 64 << 20
        one, other = (torch.empty(size, dtype=torch.uint8, device=self.device) for _ in range(2))
        return 2e3 * float(one.numel()) / self.milliseconds(lambda _: other.copy_(one), 10)

    def clips(self, count: int, size: Size, bits: int, seed: int) -> tuple[Tensor, Tensor]:
        """Frames with detail at several sizes, and the same with noise and less contrast."""
        generator = torch.Generator(self.device).manual_seed(seed)
        width, height = size
        picture = torch.zeros((count, 1, height, width), device=self.device)
        for factor in (1, 4, 16, 64):
            small = torch.randn(
                (count, 1, -(-height // factor), -(-width // factor)), device=self.device, generator=generator
            )
            picture += torch.nn.functional.interpolate(small, (height, width), mode="bilinear") * factor**0.5 * 4
        picture = picture[:, 0]
        noise = torch.randn(picture.shape, device=self.device, generator=generator)
        kind, most = (torch.uint8, 255) if bits == 8 else (torch.uint16, (1 << bits) - 1)

        def levels(values: Tensor) -> Tensor:
            return ((values + 125) * (most / 255)).round().clamp(0, most).to(torch.int32).to(kind)

        return levels(picture), levels(picture * 0.9 + noise * 3)

    def speed(self, size: Size, bits: int, batch_size: int, clips: int = 1) -> Speed:
        """That of frames which are on the device."""
        pairs = [self.clips(batch_size, size, bits, seed) for seed in range(ROTATED)]
        batch = Batch(LumaFormat(*size, bits), GAIN_LIMIT, batch_size, clips, self.device)

        def work(number: int) -> object:
            reference, distorted = pairs[number % ROTATED]
            batch.luma[0].copy_(reference)
            batch.luma[1:].copy_(distorted)
            return batch.run()

        return Speed(batch_size * clips / self.milliseconds(work) * 1e3, work)

    def memory(self, size: Size, bits: int, clips: int = 1) -> int:
        """Bytes of the device that a device process takes to score clips of this size, without its context."""
        frames = LumaFormat(*size, bits)
        release_memory(self.device)
        free, _ = free_memory(self.device)
        pipeline = Pipeline(frames, GAIN_LIMIT, batch_size(frames, plain=False), clips, self.device)
        taken = free - free_memory(self.device)[0]
        del pipeline
        return taken

    def difference_from_plain(self, bits: int) -> float:
        """The largest relative difference of a sum between what the device uses and plain PyTorch."""
        size = (1280, 720) if self.device.type == "cuda" else SMALL["180p"]
        reference, distorted = self.clips(4, size, bits, 99)
        frames = LumaFormat(*size, bits)
        used, plain = make_sums(frames, GAIN_LIMIT, self.device), PlainSums(frames, GAIN_LIMIT, self.device)
        one, two = used.reference(reference), plain.reference(reference)
        pairs = [(one.sums, two.sums), (used.distorted(one, distorted), plain.distorted(two, distorted))]
        return max(float(((a - b) / b.abs().clamp_min(1e-9)).abs().max()) for a, b in pairs)


def kernel_bytes(size: Size, bits: int, device: torch.device) -> Counter[str]:
    """Bytes of one pair of frames that each kernel reads or writes, each tensor of a launch counted once."""
    launch, counted = fused.launch, Counter[str]()

    def count(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        tensors = [one for one in arguments if isinstance(one, Tensor)]
        counted[kernel.__name__] += sum(one.numel() * one.element_size() for one in tensors)
        launch(kernel, grid, *arguments, **constants)

    frames, kind = LumaFormat(*size, bits), torch.uint8 if bits == 8 else torch.uint16
    luma = torch.zeros((1, size[1], size[0]), dtype=kind, device=device)
    blurred = torch.zeros((2, size[1], size[0]), dtype=torch.uint16, device=device)
    sums = fused.FusedSums(frames, GAIN_LIMIT, device)
    fused.launch = count
    try:
        sums.distorted(sums.reference(luma), luma)
        sums.blurred(luma, blurred[1:])
        sums.difference(blurred[:-1], blurred[1:])
    finally:
        fused.launch = launch
    return counted


def kernel_times(bench: Bench, work: Callable[[int], object], frames: int) -> list[tuple[str, float]]:
    """Seconds per frame of each kernel, the longest first."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for number in range(ROTATED):
            work(number)
        bench.wait()
    totals: dict[str, float] = defaultdict(float)
    for event in profiled.key_averages():
        totals[event.key] += event.self_device_time_total
    return sorted(((name, taken / 1e6 / ROTATED / frames) for name, taken in totals.items()), key=lambda item: -item[1])


class Files(NamedTuple):
    """Clips of one size on the disk."""

    reference: Path
    distorted: list[Path]
    frames: int
    size: Size


def encode(folder: Path, size: Size, frames: int) -> Files:
    """A reference and eight encodes, in H.264, with the bitrates of films: a little noise, as of a camera."""
    picture = f"testsrc2=size={size[0]}x{size[1]}:rate=30,noise=alls=3:allf=t"
    reference, distorted = folder / "reference.mp4", {folder / f"crf{crf}.mp4": crf for crf in range(22, 46, 3)}

    def encoder(path: Path, quality: int, *source: str) -> "subprocess.Popen[bytes]":
        command = (imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *source, "-frames:v", str(frames))
        coding = ("-pix_fmt", "yuv420p", "-c:v", "libx264", "-preset", "veryfast", "-crf", str(quality))
        return subprocess.Popen((*command, *coding, str(path)))

    assert encoder(reference, 18, "-f", "lavfi", "-i", picture).wait() == 0
    encoders = [encoder(path, quality, "-i", str(reference)) for path, quality in distorted.items()]
    assert [one.wait() for one in encoders] == [0] * len(encoders)
    return Files(reference, list(distorted), frames, size)


async def decoding_fps(files: Files, clips: int) -> float:
    """Distorted frames per second if confined decoders decode the reference and the clips at once, and nothing else."""
    scorer, options = Scorer(Engines()), ScoreOptions()
    async with AsyncExitStack() as stack:
        probed = []
        for path in (files.reference, *files.distorted[:clips]):
            clip = await stack.enter_async_context(scorer.open(Source(str(path)), "distorted"))
            probed.append(await scorer.probe(clip, 1))
        started = time.perf_counter()
        reading = []
        for one in probed:
            conversion = make_plan(probed[0].clip, one.clip, options).distorted
            decoding = one.decoder.decode(conversion, threads=options.thread_count(), luma_only=True)
            reading.append(asyncio.to_thread(_read_all, (await stack.enter_async_context(decoding)).outputs[0]))
        read = await asyncio.gather(*reading)
        seconds = time.perf_counter() - started
    width, height = files.size
    assert read == [files.frames * width * height] * (clips + 1)
    return files.frames * clips / seconds


def _read_all(pipe: FileIO) -> int:
    room, total = bytearray(1 << 20), 0
    while count := pipe.readinto(room):
        total += count
    return total


def hardware_decoding(files: Files, *arguments: str) -> str:
    """What bench/hardware_decoding.py prints, in a process of its own."""
    program = Path(__file__).with_name("hardware_decoding.py")
    command = [sys.executable, str(program), str(files.distorted[0]), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout or done.stderr or f"exit code {done.returncode}").splitlines()
    return lines[-1]


async def file_fps(files: Files, engine: EngineKind, backend: Backend, clips: int) -> tuple[float, list[float]]:
    """Distorted frames per second, and the scores. A device process is there already."""
    engines = Engines({**os.environ, ENGINE_VARIABLE: engine})
    scorer = BatchScorer(Scorer(engines), ScoreOptions(backend=backend), parallel=clips)
    try:
        for _ in range(1 if engine == "ffmpeg" else 2):
            started = time.perf_counter()
            distorted = [Source(str(path)) for path in files.distorted[:clips]]
            outcomes = await scorer.score(Source(str(files.reference)), distorted, lambda *_: None)
            seconds = time.perf_counter() - started
    finally:
        await engines.close()
    scores = [one.report.result.score for one in outcomes if isinstance(one, ClipScored)]
    assert len(scores) == clips, outcomes
    return files.frames * clips / seconds, scores


def measure_files(backend: Backend, sizes: dict[str, Size], most: int) -> None:
    smallest = min(width * height for width, height in sizes.values())
    for name, size in sizes.items():
        frames = most * smallest // (size[0] * size[1])
        with tempfile.TemporaryDirectory() as folder:
            files = encode(Path(folder), size, frames)
            rates = [path.stat().st_size * 8 * 30 / frames / 1e6 for path in (files.reference, *files.distorted)]
            print(f"{name} files of {frames} frames: {', '.join(f'{rate:.1f}' for rate in rates)} Mbit/s at 30 fps")
            if backend == "cuda":
                print(f"{name} file: one clip on NVIDIA's decoder: {hardware_decoding(files)}")
                print(f"{name} file: the same, confined: {hardware_decoding(files, 'confined')}", flush=True)
            libvmaf, expected = asyncio.run(file_fps(files, "ffmpeg", "cpu", 1))
            print(f"{name} file: libvmaf on the CPU {libvmaf:.0f} fps", flush=True)
            for clips in (1, *CLIPS):
                alone = asyncio.run(decoding_fps(files, clips))
                fps, scores = asyncio.run(file_fps(files, "torch", backend, clips))
                print(
                    f"{name} file: {clips} clips on {backend} {fps:.0f} fps, {fps / libvmaf:.1f} of libvmaf, "
                    f"{fps / alone:.2f} of decoding alone ({alone:.0f} fps)",
                    flush=True,
                )
            print(
                f"{name} file: the score of the first clip differs by {abs(scores[0] - expected[0]):.5f} from libvmaf's"
            )


def measure_frames(bench: Bench, sizes: dict[str, Size], batches: list[int]) -> None:
    bandwidth, on_gpu = bench.copy_bandwidth(), bench.device.type == "cuda"
    print(f"copy on the device: {bandwidth / 1e9:.0f} GB/s")
    for bits in (8, 10):
        print(f"{bits} bit: sums differ from plain PyTorch by at most {bench.difference_from_plain(bits):.1e}")
    for name, size in sizes.items():
        for bits in (8, 10):
            for batch in batches:
                fps = bench.speed(size, bits, batch).fps
                text = f"{name} {bits} bit, batches of {batch}: {fps:.0f} fps (goal {GOALS.get(name, '-')})"
                if on_gpu:
                    moved = kernel_bytes(size, bits, bench.device).total()
                    text += f", {fps * moved / bandwidth:.0%} of the bandwidth of a copy"
                print(text, flush=True)
        one = bench.speed(size, 8, BEST_BATCH).fps
        for clips in CLIPS:
            fps = bench.speed(size, 8, BEST_BATCH, clips).fps
            print(
                f"{name} 8 bit, {clips} clips with one reference: {fps:.0f} fps, {fps / one:.2f} of one clip",
                flush=True,
            )
        if on_gpu:
            for clips in (1, *CLIPS):
                print(f"{name} 8 bit, {clips} clips: {bench.memory(size, 8, clips) >> 20} MiB of the device's memory")
            read_or_written = kernel_bytes(size, 8, bench.device)
            for kernel, taken in kernel_times(bench, bench.speed(size, 8, BEST_BATCH).work, BEST_BATCH)[:16]:
                share = f", {read_or_written[kernel] / bandwidth / taken:.0%}" if kernel in read_or_written else ""
                print(f"  {name} {taken * 1e6:8.1f} us/frame{share} {kernel[:60]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="ROCm builds of torch call theirs cuda"
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batches", default="1,2,4,8,16")
    parser.add_argument(
        "--frames", type=int, default=600, help="of the clips in files; fewer of larger ones, as many pixels"
    )
    parser.add_argument("--only", choices=("frames", "files"))
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error(f"torch {torch.__version__} finds no GPU; --device cpu tries this program without one")
    device, sizes = torch.device(arguments.device), SIZES if arguments.device == "cuda" else SMALL
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {os.cpu_count()} cores"
    print(f"{where}, torch {torch.__version__}")
    if arguments.only != "files":
        measure_frames(Bench(device, arguments.rounds), sizes, list(map(int, arguments.batches.split(","))))
    if arguments.only != "frames":
        backend: Backend = "cpu" if device.type == "cpu" else "hip" if torch.version.hip else "cuda"
        measure_files(backend, sizes, arguments.frames)


if __name__ == "__main__":
    main()
