"""Benchmark of `vmafx score` against plain ffmpeg on the same clips, in turns.

Run by `make bench-scoring`. "By hand" means one ffmpeg with the libvmaf filter and a JSON log, and the same number of
threads for decoders, filters and libvmaf. vmafx scores the same frames and also hashes, probes, counts and pools, with
its cache disabled. "Two passes" decodes both clips to raw files first and scores these.
CPU is the sum of all processes.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import imageio_ffmpeg
import msgspec

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
VMAFX = str(Path(sys.executable).with_name("vmafx"))
SIZES = {"1080p": "1920x1080", "2160p": "3840x2160"}
GOAL = 1.03


class Figures(msgspec.Struct):
    """The figures of one run."""

    seconds: float
    cpu: float
    own_mib: float = 0.0  # of the process itself, without its children


def measure(*command: str | Path) -> Figures:
    before, started, own = os.times(), time.perf_counter(), 0.0
    with subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            own = max(own, _resident(process.pid))
            time.sleep(0.01)
    seconds, after = time.perf_counter() - started, os.times()
    if process.returncode:
        raise SystemExit(f"{command[0]} failed")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Figures(seconds, used, own)


def _resident(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:")), 0.0)


def make_clips(folder: Path, size: str, frames: int) -> tuple[Path, Path]:
    reference, distorted = folder / f"reference-{size}.mp4", folder / f"distorted-{size}.mp4"
    quiet = (FFMPEG, "-hide_banner", "-loglevel", "error", "-nostdin", "-y")
    source = f"testsrc2=s={size}:r=30:d={frames / 30},noise=alls=12:allf=t"
    x264 = ("-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-crf")
    subprocess.run([*quiet, "-f", "lavfi", "-i", source, *x264, "16", reference], check=True)
    subprocess.run([*quiet, "-i", reference, *x264, "34", distorted], check=True)
    return reference, distorted


def by_hand(reference: Path, distorted: Path, threads: int, folder: Path) -> Figures:
    thread_options = ("-threads", str(threads))
    libvmaf = f"[0:v][1:v]libvmaf=n_threads={threads}:log_fmt=json:log_path={folder / 'log.json'}"
    quiet = ("-hide_banner", "-loglevel", "error", "-nostdin")
    filters = ("-filter_complex_threads", str(threads), "-lavfi", libvmaf)
    clips = (*thread_options, "-i", distorted, *thread_options, "-i", reference)
    return measure(FFMPEG, *quiet, *clips, *filters, "-f", "null", "-")


def by_vmafx(reference: Path, distorted: Path, threads: int) -> Figures:
    return measure(VMAFX, "score", reference, distorted, "--threads", str(threads), "--no-cache", "--json")


def in_two_passes(reference: Path, distorted: Path, threads: int, folder: Path) -> Figures:
    raw = []
    decoding = Figures(0, 0)
    for clip in (reference, distorted):
        raw.append(folder / f"{clip.stem}.y4m")
        quiet = ("-hide_banner", "-loglevel", "error", "-nostdin", "-y")
        one = measure(FFMPEG, *quiet, "-threads", str(threads), "-i", clip, raw[-1])
        decoding = Figures(decoding.seconds + one.seconds, decoding.cpu + one.cpu)
    scoring = by_hand(raw[0], raw[1], threads, folder)
    for path in raw:
        path.unlink()
    return Figures(decoding.seconds + scoring.seconds, decoding.cpu + scoring.cpu)


def compare(folder: Path, name: str, frames: int, rounds: int) -> None:
    reference, distorted = make_clips(folder, SIZES[name], frames)
    print(f"\n{name}, {frames} frames, medians of {rounds} rounds in turns\n", flush=True)
    heads = ("threads", "by hand, s", "vmafx score, s", "ratio", "goal", "CPU ratio", "own memory, MiB")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for threads in (1, 2):
        hand: list[Figures] = []
        ours: list[Figures] = []
        for number in range(rounds):
            log(f"{name}, {threads} threads, round {number + 1} of {rounds}")
            if number % 2:
                hand.append(by_hand(reference, distorted, threads, folder))
            ours.append(by_vmafx(reference, distorted, threads))
            if not number % 2:
                hand.append(by_hand(reference, distorted, threads, folder))
        seconds = [statistics.median(one.seconds for one in side) for side in (hand, ours)]
        cpu = [statistics.median(one.cpu for one in side) for side in (hand, ours)]
        own = max(one.own_mib for one in ours)
        print(
            f"| {threads} | {seconds[0]:.2f} | {seconds[1]:.2f} | {seconds[1] / seconds[0]:.3f} | {GOAL} |"
            f" {cpu[1] / cpu[0]:.3f} | {own:.0f} |",
            flush=True,
        )
    if name == "1080p":
        compare_passes(reference, distorted, folder, rounds)
        fixed_cost(folder, rounds)


def compare_passes(reference: Path, distorted: Path, folder: Path, rounds: int) -> None:
    one = [by_vmafx(reference, distorted, 2) for _ in range(rounds)]
    two = [in_two_passes(reference, distorted, 2, folder) for _ in range(rounds)]
    seconds = [statistics.median(run.seconds for run in side) for side in (one, two)]
    print(f"\none pass {seconds[0]:.2f} s, two passes {seconds[1]:.2f} s: {seconds[0] / seconds[1]:.2f}", flush=True)


def fixed_cost(folder: Path, rounds: int) -> None:
    """The fixed cost: two frames of the smallest size."""
    small = folder / "small.mkv"
    quiet = (FFMPEG, "-hide_banner", "-loglevel", "error", "-nostdin", "-y")
    subprocess.run([*quiet, "-f", "lavfi", "-i", "testsrc2=s=64x64:d=0.08", small], check=True)
    hand = [by_hand(small, small, 1, folder) for _ in range(3 * rounds)]
    ours = [by_vmafx(small, small, 1) for _ in range(3 * rounds)]
    median = statistics.median
    print(
        f"\nwhole command on two frames of 64x64: by hand {median(one.seconds for one in hand):.2f} s, vmafx score"
        f" {median(one.seconds for one in ours):.2f} s, {median(one.cpu for one in ours):.2f} CPU-s,"
        f" {max(one.own_mib for one in ours):.0f} MiB",
        flush=True,
    )


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1080p,2160p")
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.sizes.split(","):
            compare(Path(folder), name, arguments.frames, arguments.rounds)


if __name__ == "__main__":
    main()
