"""`vmafx demo --training`, run as a user runs it."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.demo.test_demo import leftovers
from tests.support.commands import VMAFX
from vmafx.demo.clips import ENCODES

pytestmark = pytest.mark.timeout(400)


def test_the_model_learns_what_people_say(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        [VMAFX, "demo", "--training", "--output", str(tmp_path / "demo")],
        env={**os.environ, "TMPDIR": str(scratch), "COLUMNS": "120"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"^house +Running +\d{3,} +sha256:[0-9a-f]{64} ", done.stdout, re.MULTILINE)
    first, latest = map(int, re.findall(r"VERSION (\d+)", done.stdout))
    assert first == 1
    assert latest >= 2
    shown = [re.findall(rf"^{encode.name} +(.*)$", done.stdout, re.MULTILINE) for encode in ENCODES]
    rows = [[float(cell) for cell in row.split()] for (row,) in shown]
    assert all(abs(before - vmaf) < 1 for vmaf, _, before, _ in rows)  # the first version has seen no human scores
    first_error = sum(abs(before - people) for _, people, before, _ in rows)
    # By chance, jobs of one encode may be held out in several rounds; most runs halve the error at least.
    assert sum(abs(after - people) for _, people, _, after in rows) < 0.8 * first_error
    assert leftovers(scratch) == []
