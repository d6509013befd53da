"""Does what `vmafx score` does after ffmpeg, with the log of a long clip, and prints its peak memory after each step.

A process of its own: python -m tests.support.long_clip FOLDER FRAMES, with the log in FOLDER/log.xml.
"""

import sys
from array import array
from pathlib import Path

import msgspec

from vmafx.reports.curves import downsample
from vmafx.reports.files import write_report
from vmafx.scoring.cache import ResultCache
from vmafx.scoring.engines.libvmaf_log import read_log
from vmafx.scoring.learned import LearnedModel
from vmafx.scoring.pooling import pool, summary
from vmafx.scoring.result import ClipFacts, EngineFacts, Report, ScoreResult

MODEL = LearnedModel(
    base="vmaf_v0.6.1", features=("adm2", "feature1"), mean=(0.0, 0.0), deviation=(1.0, 1.0), hidden=((0.1, 0.1),),
    bias=(0.0,), output=(0.9,), offset=0.0,
)  # fmt: skip


def peak() -> int:
    """The peak of the resident memory of this process, in MiB; ru_maxrss would be that of its parent, if larger."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) >> 10 for line in status.splitlines() if line.startswith("VmHWM:"))


def main(folder: Path, frames: int) -> dict[str, int]:
    peaks = {"imports": peak()}
    with (folder / "log.xml").open("rb") as file:
        log = read_log(file, frames, 1, ())
    peaks["read"] = peak()
    clip = ClipFacts("clip.mp4", "", "mov", "h264", 64, 64, "yuv420p", frames)
    values = log.values | {"vmaf": MODEL.predict(log.values)}
    peaks["predicted"] = peak()
    result = ScoreResult(
        score=pool(values["vmaf"], "median"),
        pooling="median",
        model="model",
        frames=frames,
        fps=1.0,
        features={name: summary(column) for name, column in values.items()},
        reference=clip,
        distorted=clip,
        width=64,
        height=64,
        pixelFormat="yuv420p",
        subsample=1,
        engine=EngineFacts("7.0", log.version),
        key="key",
    )
    report = Report(result, log.numbers, values)
    peaks["pooled"] = peak()
    for name in ("report.json", "report.csv"):
        write_report(folder / name, [report])
    peaks["written"] = peak()
    for column in values.values():
        downsample(report.numbers, column, 300)
    peaks["downsampled"] = peak()
    cache = ResultCache(folder / "cache")
    cache.put(report)
    peaks["cached"] = peak()
    middle = {name: column[frames // 2] for name, column in values.items()}
    del report, log, values
    found = cache.get("key")
    assert found is not None
    assert (found.result, found.numbers) == (result, array("q", range(frames)))
    assert {name: column[frames // 2] for name, column in found.values.items()} == middle
    return peaks | {"read from the cache": peak()}


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(main(Path(sys.argv[1]), int(sys.argv[2]))))
