"""Benchmark of `vmaf-tune compare --target-vmaf`: what it takes to find the setting for a score.

Run by `make bench-tune`.

Eight generated clips are encoded with libx264 for a target of VMAF 93. The contestants take turns on each clip, on the
same ffmpeg, the first turn alternating:

- vmaf-tune: searches on samples, then encodes and scores the whole clip.
- bisection: encodes and scores the whole clip, for whole CRFs, until the highest that reaches the target is known. With
  ffmpeg alone, as a script would.
- ab-av1, if it is on PATH (`cargo install ab-av1`; it also needs ffprobe): `auto-encode`, which searches on samples and
  encodes the whole clip, but does not score that.

Encodes are those of samples and of the whole; frames are those that were scored. Afterwards the whole encode of each
contestant is scored by `vmafx score`: a promise is kept if that is at least the target, and close if it is no more than
0.5 above it. Scoring for this check is not in the times.
"""

import argparse
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from bench.contestants import log
from bench.scoring import VMAFX

from vmafx.scoring.engines.ffmpeg import ffmpeg_path

TUNE = str(Path(VMAFX).with_name("vmaf-tune"))
TARGET, TOLERANCE, PRESET = 93.0, 0.5, "veryfast"
SIZE, RATE = "480x270", 24
BEST, WORST = 10, 46  # CRFs that bisection starts from
NOISE = "noise=alls={}:allf=t"
# Filter graphs of sources; each is generated and encoded without loss.
CLIPS = {
    "test picture": "testsrc2=s={size}:r={rate}",
    "fractal": "mandelbrot=s={size}:r={rate}:end_scale=0.02",
    "cells": "life=s={size}:mold=10:r={rate}:ratio=0.1:death_color=#C83232:life_color=#00ff00,boxblur=2",
    "grain": "gradients=s={size}:r={rate}:speed=0.02:seed=3," + NOISE.format(12),
    "gradient": "gradients=s={size}:r={rate}:speed=0.01:seed=9:nb_colors=4," + NOISE.format(2),
    "scroll": "testsrc=s=960x540:r={rate},scroll=h=0.004:v=0.002,scale={size}",
    "zoom": "mandelbrot=s={size}:r={rate}:start_scale=0.5:end_scale=0.001," + NOISE.format(4),
    "cuts": "testsrc2=s={size}:r={rate},scroll=h=0.01,hue=H=2*PI*floor(t/3)/7:s=1.5," + NOISE.format(6),
}


class Outcome(msgspec.Struct, frozen=True):
    """What one contestant did with one clip."""

    encodes: int
    frames: int  # scored
    seconds: float
    setting: float
    encode: Path
    promised: float  # VMAF, by the contestant


class Table(msgspec.Struct):
    """The outcomes of one contestant, and the scores of its whole encodes."""

    outcomes: list[Outcome] = []
    scores: list[float] = []


Contestant = Callable[[Path, Path], Outcome]


def run(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env=environment or dict(os.environ)
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def make_clip(folder: Path, name: str, graph: str, seconds: int) -> Path:
    path = folder / f"{name.replace(' ', '-')}.mkv"
    source = f"{graph.format(size=SIZE, rate=RATE)},format=yuv420p,setsar=1"
    ffmpeg("-f", "lavfi", "-i", source, "-t", str(seconds), "-c:v", "libx264", "-qp", "0", "-preset", "ultrafast", path)
    return path


def ffmpeg(*arguments: str | Path) -> str:
    return run([ffmpeg_path(), "-hide_banner", "-nostdin", "-y", *arguments])


def vmaf_tune(clip: Path, folder: Path) -> Outcome:
    command = [TUNE, "compare", clip, "--encoders", f"libx264:{PRESET}", "--target-vmaf", str(TARGET), "--json"]
    started = time.perf_counter()
    output = subprocess.run(
        [*map(str, command), "--work", str(folder / "work")],
        capture_output=True, check=True, env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
    ).stdout  # fmt: skip
    seconds = time.perf_counter() - started
    (variant,) = json.loads(output)["variants"]
    target = variant["target"]
    (found,) = [one for one in variant["encodes"] if one["quality"] == target["quality"]]
    on_samples = target.get("sampleEncodes", 0)
    frames = target.get("sampleFrames", 0) * on_samples + found["frames"] * target["wholeEncodes"]
    encodes = on_samples + target["wholeEncodes"]
    return Outcome(encodes, frames, seconds, target["quality"], Path(found["file"]), found["score"])


def bisection(clip: Path, folder: Path) -> Outcome:
    started, scores = time.perf_counter(), dict[int, float]()
    frames = 0
    low, high = BEST, WORST  # low reaches the target, high does not
    while high - low > 1:
        middle = (low + high) // 2
        encode = folder / f"{middle}.mp4"
        ffmpeg("-i", clip, "-c:v", "libx264", "-preset", PRESET, "-crf", str(middle), encode)
        # By number: by timestamp, which MP4 and Matroska round differently, frames would be paired with neighbours.
        numbered = f"[0:v]settb=1/{RATE},setpts=N[a];[1:v]settb=1/{RATE},setpts=N[b]"
        graph = f"{numbered};[a][b]libvmaf=n_threads={os.cpu_count()}"
        output = ffmpeg("-i", encode, "-i", clip, "-lavfi", graph, "-f", "null", "-")
        found = re.search(r"VMAF score: ([0-9.]+)", output)
        counted = re.findall(r"frame= *([0-9]+)", output)
        if found is None or not counted:
            raise SystemExit(f"ffmpeg printed no score:\n{output[-1000:]}")
        scores[middle] = float(found[1])
        frames += int(counted[-1])
        low, high = (middle, high) if scores[middle] >= TARGET else (low, middle)
    return Outcome(
        len(scores), frames, time.perf_counter() - started, low, folder / f"{low}.mp4", scores.get(low, math.nan)
    )


def ab_av1(clip: Path, folder: Path) -> Outcome:
    tools = folder / "bin"
    tools.mkdir()
    (tools / "ffmpeg").symlink_to(ffmpeg_path())
    environment = {
        **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(folder), "RUST_LOG": "info",
    }  # fmt: skip
    encode = folder / "whole.mp4"
    command: list[str | Path] = ["ab-av1", "auto-encode", "-i", clip, "-e", "libx264", "--preset", PRESET]
    # By default, it scales small videos up before it scores them, which is another measure.
    command += [
        "--vmaf-scale",
        "none",
        "--min-vmaf",
        str(TARGET),
        "--max-encoded-percent",
        "1000",
        "--temp-dir",
        folder,
        "-o",
        encode,
    ]
    started = time.perf_counter()
    output = run(command, environment)
    seconds = time.perf_counter() - started
    tried = re.findall(r"crf ([0-9.]+) VMAF ([0-9.]+)", output)
    if not tried:
        raise SystemExit(f"ab-av1 printed no attempts:\n{output[-2000:]}")
    distinct = dict(tried)
    sampled = min(frame_count(clip), 20 * RATE)  # one sample of 20 s
    reaching = [float(crf) for crf, score in distinct.items() if float(score) >= TARGET]
    setting = max(reaching, default=math.nan)
    promised = next((float(score) for crf, score in distinct.items() if float(crf) == setting), math.nan)
    return Outcome(len(distinct) + 1, sampled * len(distinct), seconds, setting, encode, promised)


def frame_count(clip: Path) -> int:
    flags = ["-v", "error", "-count_packets", "-select_streams", "v", "-show_entries", "stream=nb_read_packets"]
    return int(run(["ffprobe", *flags, "-of", "csv=p=0", clip]).split()[0].strip(","))


def score(clip: Path, encode: Path) -> float:
    output = subprocess.run(
        [VMAFX, "score", "--no-cache", "--quiet", "--json", str(clip), str(encode)], capture_output=True, check=True
    ).stdout
    return float(json.loads(output)["score"])


def benchmark(seconds: int, rounds: int) -> dict[str, Table]:
    contestants: dict[str, Contestant] = {"vmaf-tune": vmaf_tune, "bisection": bisection}
    if shutil.which("ab-av1") and shutil.which("ffprobe"):
        contestants["ab-av1"] = ab_av1
    else:
        log("ab-av1 or ffprobe is not on PATH: without it")
    tables = {name: Table() for name in contestants}
    with tempfile.TemporaryDirectory() as temporary:
        for number, (title, graph) in enumerate(CLIPS.items()):
            clip = make_clip(Path(temporary), title, graph, seconds)
            for turn in range(rounds):
                names = list(contestants)
                start = (number + turn) % len(names)
                for name in names[start:] + names[:start]:
                    with tempfile.TemporaryDirectory() as folder:
                        outcome = contestants[name](clip, Path(folder))
                        tables[name].outcomes.append(outcome)
                        tables[name].scores.append(score(clip, outcome.encode))
                    log(
                        f"{title}, {name}: CRF {outcome.setting:g}, {outcome.encodes} encodes, "
                        f"{outcome.seconds:.1f} s, promised {outcome.promised:.2f}, is {tables[name].scores[-1]:.2f}"
                    )
            clip.unlink()
    return tables


def print_tables(tables: dict[str, Table], seconds: int) -> None:
    print(
        f"\n{len(CLIPS)} clips of {seconds} s, {SIZE}, libx264 {PRESET}, target VMAF {TARGET:g}; sums, and medians:\n"
    )
    print("| | " + " | ".join(tables) + " |")
    print("|---|" + "---|" * len(tables))
    rows: dict[str, Callable[[Table], str]] = {
        "encodes, of samples and of the whole": lambda one: f"{sum(each.encodes for each in one.outcomes)}",
        "frames scored": lambda one: f"{sum(each.frames for each in one.outcomes):,}",
        "time, s": lambda one: f"{sum(each.seconds for each in one.outcomes):.1f}",
        "time per clip, median, s": lambda one: f"{statistics.median(each.seconds for each in one.outcomes):.1f}",
        "whole encodes that reach the target": lambda one: (
            f"{sum(score >= TARGET for score in one.scores)} of {len(one.scores)}"
        ),
        "whole encodes within 0.5 above the target": lambda one: (
            f"{sum(TARGET <= score <= TARGET + TOLERANCE for score in one.scores)} of {len(one.scores)}"
        ),
        "largest distance between promise and whole": lambda one: (
            f"{max(abs(each.promised - score) for each, score in zip(one.outcomes, one.scores, strict=True)):.2f}"
        ),
    }
    for title, cell in rows.items():
        print(f"| {title} | " + " | ".join(cell(table) for table in tables.values()) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=30, help="length of the clips (default: 30)")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    print_tables(benchmark(arguments.seconds, arguments.rounds), arguments.seconds)


if __name__ == "__main__":
    main()
