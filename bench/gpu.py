"""Benchmark of VMAF on a GPU, with frames that are on the device: `python -m bench.gpu`.

Prints frames per second for sizes, bit depths and numbers of distorted clips, the bandwidth of device memory, and what
each kernel takes. Batches of different frames take turns, so that no cache holds them from one round to the next.
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from vmafx.scoring.engines.gpu.definitions import LumaFormat
from vmafx.scoring.engines.gpu.fused import FusedSums
from vmafx.scoring.engines.gpu.pipeline import Batch
from vmafx.scoring.engines.gpu.plain import PlainSums

SIZES = {"1080p": (1920, 1080), "2160p": (3840, 2160)}
GOALS = {"1080p": 5000, "2160p": 1300}
GAIN_LIMIT = 100.0
ROTATED = 3  # batches


def make_clips(count: int, size: tuple[int, int], bits: int, seed: int) -> tuple[Tensor, Tensor]:
    """Frames with detail at several sizes, and the same with noise and less contrast."""
    generator = torch.Generator("cuda").manual_seed(seed)
    width, height = size
    picture = torch.zeros((count, 1, height, width), device="cuda")
    for factor in (1, 4, 16, 64):
        small = torch.randn((count, 1, -(-height // factor), -(-width // factor)), device="cuda", generator=generator)
        picture += torch.nn.functional.interpolate(small, (height, width), mode="bilinear") * factor**0.5 * 4
    picture = picture[:, 0]
    noise = torch.randn(picture.shape, device="cuda", generator=generator)
    kind, most = (torch.uint8, 255) if bits == 8 else (torch.uint16, (1 << bits) - 1)

    def levels(values: Tensor) -> Tensor:
        return ((values + 125) * (most / 255)).round().clamp(0, most).to(torch.int32).to(kind)

    return levels(picture), levels(picture * 0.9 + noise * 3)


def milliseconds(work: Callable[[int], object], rounds: int) -> float:
    """The median time of a call, by the clock of the device."""
    for number in range(ROTATED):
        work(number)
    torch.cuda.synchronize()
    times = []
    for number in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work(number)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def copy_bandwidth() -> float:
    """Bytes per second that a copy on the device reads and writes."""
    one, other = (torch.empty(4 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    return 2 * one.numel() / milliseconds(lambda _: other.copy_(one), 10) * 1e3


def measure(name: str, bits: int, size: int, clips: int, rounds: int) -> tuple[float, Callable[[int], object]]:
    """Distorted frames per second, and the measured work."""
    (width, height), device = SIZES[name], torch.device("cuda")
    pairs = [make_clips(size, SIZES[name], bits, seed) for seed in range(ROTATED)]
    batch = Batch(LumaFormat(width, height, bits), GAIN_LIMIT, size, clips, device)

    def work(number: int) -> object:
        reference, distorted = pairs[number % ROTATED]
        batch.luma[0].copy_(reference)
        batch.luma[1:].copy_(distorted)
        return batch.run()

    return size * clips / milliseconds(work, rounds) * 1e3, work


def check(bits: int) -> float:
    """The largest relative difference of a sum between the kernels and plain PyTorch."""
    reference, distorted = make_clips(4, (1280, 720), bits, 99)
    frames = LumaFormat(1280, 720, bits)
    fused, plain = (kind(frames, GAIN_LIMIT, reference.device) for kind in (FusedSums, PlainSums))
    one, two = fused.reference(reference), plain.reference(reference)
    pairs = [(one.sums, two.sums), (fused.distorted(one, distorted), plain.distorted(two, distorted))]
    blurred = [torch.empty(reference.shape, dtype=torch.uint16, device=reference.device) for _ in range(2)]
    fused.blurred(reference, blurred[0])
    plain.blurred(reference, blurred[1])
    assert torch.equal(*(plane.to(torch.int32) for plane in blurred))
    assert torch.equal(*(sums.difference(blurred[0][:-1], blurred[0][1:]) for sums in (fused, plain)))
    return max(float(((a - b) / b.abs().clamp_min(1e-9)).abs().max()) for a, b in pairs)


def kernel_times(work: Callable[[int], object], frames: int) -> list[tuple[str, float]]:
    """Microseconds per frame of each kernel, the longest first."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for number in range(ROTATED):
            work(number)
        torch.cuda.synchronize()
    totals: dict[str, float] = defaultdict(float)
    for event in profiled.key_averages():
        totals[event.key] += event.self_device_time_total
    return sorted(((name, time / ROTATED / frames) for name, time in totals.items()), key=lambda item: -item[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batches", default="1,2,4,8,16")
    arguments = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    print("copy on the device:", round(copy_bandwidth() / 1e9), "GB/s")
    for bits in (8, 10):
        print(f"{bits} bit: kernels differ from plain PyTorch by at most {check(bits):.1e}")
    for name, goal in GOALS.items():
        for bits in (8, 10):
            for batch in map(int, arguments.batches.split(",")):
                fps, work = measure(name, bits, batch, 1, arguments.rounds)
                print(f"{name} {bits} bit, batch {batch}: {fps:.0f} fps (goal {goal})", flush=True)
    for name in SIZES:
        fps, work = measure(name, 8, 8, 1, 3)
        for kernel, time in kernel_times(work, 8)[:16]:
            print(f"  {name} {time:8.1f} us/frame {kernel[:60]}")


if __name__ == "__main__":
    main()
