"""Benchmark of `vmafx score` against plain ffmpeg on the same clips, in turns.

Run by `make bench-scoring`. "By hand" means one ffmpeg with the libvmaf filter and a JSON log, and the same number of
threads for decoders, filters and libvmaf. vmafx scores the same frames and also hashes, probes, counts and pools, with
its cache disabled, and decodes in confined processes. "Together" scores several clips against one reference in one
command, and compares that with one command per clip. `--before VMAFX` names an older vmafx, to compare the start-up.
CPU and memory are the sums over all processes. Memory is the largest sum of resident pages that was seen, in a run of
its own, since looking at them takes time from the processes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import imageio_ffmpeg
import msgspec

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
VMAFX = str(Path(sys.executable).with_name("vmafx"))
SIZES = {"1080p": "1920x1080", "2160p": "3840x2160"}
GOAL, TOGETHER_GOAL, START_GOAL = 1.03, 0.9, 0.6


class Figures(msgspec.Struct):
    """The figures of one run."""

    seconds: float
    cpu: float


Command = list[str | Path]


def measure(command: Command) -> Figures:
    before, started = os.times(), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    seconds, after = time.perf_counter() - started, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Figures(seconds, used)


def peak_mib(command: Command) -> float:
    most = 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            most = max(most, sum(map(_resident, _family(process.pid))))
            time.sleep(0.02)
    return most


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for one in found:
        try:
            children = Path(f"/proc/{one}/task/{one}/children").read_text().split()
        except OSError:
            continue
        found += map(int, children)
    return found


def _resident(pid: int) -> float:
    """In MiB; pages that processes share are divided between them."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0.0)


def make_clips(folder: Path, size: str, frames: int) -> tuple[Path, Path]:
    reference, distorted = folder / f"reference-{size}.mp4", folder / f"distorted-{size}.mp4"
    quiet = (FFMPEG, "-hide_banner", "-loglevel", "error", "-nostdin", "-y")
    source = f"testsrc2=s={size}:r=30:d={frames / 30},noise=alls=12:allf=t"
    x264 = ("-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-crf")
    subprocess.run([*quiet, "-f", "lavfi", "-i", source, *x264, "16", reference], check=True)
    subprocess.run([*quiet, "-i", reference, *x264, "34", distorted], check=True)
    return reference, distorted


def by_hand(reference: Path, distorted: Path, threads: int, folder: Path) -> Command:
    thread_options = ("-threads", str(threads))
    libvmaf = f"[0:v][1:v]libvmaf=n_threads={threads}:log_fmt=json:log_path={folder / 'log.json'}"
    quiet = ("-hide_banner", "-loglevel", "error", "-nostdin")
    filters = ("-filter_complex_threads", str(threads), "-lavfi", libvmaf)
    clips = (*thread_options, "-i", distorted, *thread_options, "-i", reference)
    return [FFMPEG, *quiet, *clips, *filters, "-f", "null", "-"]


def by_vmafx(reference: Path, *distorted: Path, threads: int | None = None, program: str = VMAFX) -> Command:
    options = ("--no-cache", "--json", "--quiet", *(("--threads", str(threads)) if threads else ()))
    return [program, "score", reference, *distorted, *options]


def compare(folder: Path, name: str, frames: int, rounds: int) -> None:
    reference, distorted = make_clips(folder, SIZES[name], frames)
    print(f"\n{name}, {frames} frames, medians of {rounds} rounds in turns\n", flush=True)
    heads = (
        "threads",
        "by hand, s",
        "vmafx score, s",
        "ratio",
        "goal",
        "CPU ratio",
        "by hand, MiB",
        "vmafx score, MiB",
    )
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for threads in sorted({1, os.cpu_count() or 1}):
        commands = {
            "hand": by_hand(reference, distorted, threads, folder),
            "ours": by_vmafx(reference, distorted, threads=threads),
        }
        runs: dict[str, list[Figures]] = {side: [] for side in commands}
        for number in range(rounds):
            log(f"{name}, {threads} threads, round {number + 1} of {rounds}")
            for side in sorted(commands, reverse=number % 2 == 0):
                runs[side].append(measure(commands[side]))
        seconds = [median(one.seconds for one in side) for side in runs.values()]
        cpu = [median(one.cpu for one in side) for side in runs.values()]
        mib = [peak_mib(command) for command in commands.values()]
        print(
            f"| {threads} | {seconds[0]:.2f} | {seconds[1]:.2f} | {seconds[1] / seconds[0]:.3f} | {GOAL} |"
            f" {cpu[1] / cpu[0]:.3f} | {mib[0]:.0f} | {mib[1]:.0f} |",
            flush=True,
        )


def compare_together(folder: Path, frames: int, rounds: int) -> None:
    """An FFV1 reference, which is slow to decode, and four distorted clips."""
    source, first = make_clips(folder, SIZES["1080p"], frames)
    reference = folder / "reference.mkv"
    quiet = (FFMPEG, "-hide_banner", "-loglevel", "error", "-nostdin", "-y")
    ffv1 = ("-c:v", "ffv1", "-level", "3", "-slices", "4")
    subprocess.run([*quiet, "-i", source, *ffv1, reference], check=True)
    clips = [first, *(folder / f"distorted-{number}.mp4" for number in (1, 2, 3))]
    for quality, clip in zip(("30", "38", "42"), clips[1:], strict=True):
        x264 = ("-c:v", "libx264", "-preset", "veryfast", "-crf", quality)
        subprocess.run([*quiet, "-i", source, *x264, clip], check=True)
    together: list[Figures] = []
    single: list[Figures] = []
    for number in range(rounds):
        log(f"together, round {number + 1} of {rounds}")
        together.append(measure(by_vmafx(reference, *clips)))
        runs = [measure(by_vmafx(reference, clip)) for clip in clips]
        single.append(Figures(sum(one.seconds for one in runs), sum(one.cpu for one in runs)))
    seconds = [median(one.seconds for one in side) for side in (together, single)]
    cpu = [median(one.cpu for one in side) for side in (together, single)]
    mib = [peak_mib(by_vmafx(reference, *clips)), peak_mib(by_vmafx(reference, first))]
    print(
        f"\nFFV1 1080p reference and four clips, {frames} frames: together {seconds[0]:.2f} s,"
        f" one by one {seconds[1]:.2f} s: {seconds[0] / seconds[1]:.3f} (goal {TOGETHER_GOAL});"
        f" CPU {cpu[0] / cpu[1]:.3f}; memory {mib[0]:.0f} and {mib[1]:.0f} MiB",
        flush=True,
    )


def start_up(folder: Path, rounds: int, before: str) -> None:
    """The fixed cost: two frames of the smallest size."""
    small = folder / "small.mkv"
    quiet = (FFMPEG, "-hide_banner", "-loglevel", "error", "-nostdin", "-y")
    subprocess.run([*quiet, "-f", "lavfi", "-i", "testsrc2=s=64x64:d=0.08", small], check=True)
    contestants = {
        "by hand": by_hand(small, small, 1, folder),
        "vmafx score": by_vmafx(small, small, threads=1),
    }
    if before:
        contestants["before"] = by_vmafx(small, small, threads=1, program=before)
    runs: dict[str, list[Figures]] = {name: [] for name in contestants}
    for _ in range(5 * rounds):
        for name, command in contestants.items():
            runs[name].append(measure(command))
    print("\nwhole command on two frames of 64x64, medians\n\n| | s | CPU-s | MiB |\n|---|---|---|---|")
    for name, figures in runs.items():
        seconds, cpu = median(one.seconds for one in figures), median(one.cpu for one in figures)
        print(f"| {name} | {seconds:.3f} | {cpu:.3f} | {peak_mib(contestants[name]):.0f} |", flush=True)
    if before:
        ratio = median(one.seconds for one in runs["vmafx score"]) / median(one.seconds for one in runs["before"])
        print(f"\nto before: {ratio:.3f} (goal {START_GOAL})")


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1080p,2160p", help="sizes to compare; empty for none")
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--together", type=int, default=100, metavar="FRAMES", help="0 to leave it out")
    parser.add_argument("--before", default="", metavar="VMAFX", help="an older vmafx, for the start-up")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        start_up(Path(folder), arguments.rounds, arguments.before)
        for name in filter(None, arguments.sizes.split(",")):
            compare(Path(folder), name, arguments.frames, arguments.rounds)
        if arguments.together:
            compare_together(Path(folder), arguments.together, arguments.rounds)


if __name__ == "__main__":
    main()
