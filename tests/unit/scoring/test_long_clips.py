"""Memory for a long clip: its frames are read, pooled, reported and cached without a second copy of all values."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

FRAMES = 500_000  # a quarter of the limit; memory is proportional to it
COLUMNS = ("integer_adm2", *(f"feature{number}" for number in range(13)), "vmaf")
PERIOD = 83  # frames after which the values repeat
# MiB: 65 for the values as arrays, 26 for the imports, and the rest for work on one column. Lists take four times
# as much, and a log decoded as a whole 800 in total.
MAX_MEMORY = 160


def write_log(path: Path) -> None:
    rows = [" ".join(f'{name}="{index + row}.000000"' for index, name in enumerate(COLUMNS)) for row in range(PERIOD)]
    mean = sum(len(COLUMNS) - 1 + number % PERIOD for number in range(FRAMES)) / FRAMES
    with path.open("w") as file:
        file.write('<VMAF version="2.3.0">\n  <frames>\n')
        file.writelines(f'    <frame frameNum="{number}" {rows[number % PERIOD]} />\n' for number in range(FRAMES))
        file.write("  </frames>\n  <pooled_metrics>\n")
        file.write(f'    <metric name="vmaf" min="14.000000" max="96.000000" mean="{mean:.6f}" />\n')
        file.write("  </pooled_metrics>\n</VMAF>\n")


@pytest.mark.timeout(600)
def test_a_long_clip_takes_little_more_memory_than_its_values(tmp_path: Path) -> None:
    """Measured is the peak of the resident memory of a process that does what `vmafx score` does after ffmpeg."""
    write_log(tmp_path / "log.xml")
    command = [sys.executable, "-m", "tests.support.long_clip", str(tmp_path), str(FRAMES)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    peaks = msgspec.json.decode(output, type=dict[str, int])
    assert peaks["read"] - peaks["imports"] >= FRAMES * len(COLUMNS) * 8 >> 20, peaks  # all of it was read
    assert max(peaks.values()) <= MAX_MEMORY, peaks
