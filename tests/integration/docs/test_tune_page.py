"""docs/tune.md: its commands work, and its tables are those of the code."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.project import ROOT
from tests.support.tune import encodes
from tests.support.video import lossless, scene
from vmafx.tune.encoders import ENCODERS
from vmafx.tune.outputs import METRIC_LABELS, METRICS

PAGE = (ROOT / "docs/tune.md").read_text()


def block(language: str, text: str) -> str:
    """The block of the page, marked as run here, that contains this text."""
    blocks = re.findall(rf"test_tune_page\.py -->\n```{language}\n(.*?)```", PAGE, re.DOTALL)
    (found,) = [one for one in blocks if text in one]
    return str(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working folder of somebody who has run the demo."""
    made = tmp_path / "demo" / "clips"
    made.mkdir(parents=True)
    lossless(scene(frames=6), made / "reference.mkv")
    return tmp_path


def run(script: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-eu", "-c", script], cwd=folder, env={"PATH": path, "HOME": str(folder), "COLUMNS": "100"},
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip


def test_the_commands_of_the_quick_start(folder: Path) -> None:
    done = run(block("sh", "demo/encoders.html"), folder)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^libsvtav1: BD-VMAF|^libsvtav1: BD-rate [+-][\d.]+ % against libx264", done.stdout, re.MULTILINE)
    assert re.search(r"^libsvtav1: [\d.]+ gives [\d.]+ at [\d,]+ kbit/s", done.stdout, re.MULTILINE)
    assert (folder / "demo/encoders.html").stat().st_size > 1000


def test_the_script_for_ci_fails_below_the_threshold_and_keeps_its_reports(folder: Path) -> None:
    (folder / "ci").mkdir()
    (folder / "ci/tune.yaml").write_text(block("yaml", "encoders:"))
    shutil.copy(folder / "demo/clips/reference.mkv", folder)
    script = block("sh", "--fail-under 80")
    fine = run(script.replace("--fail-under 80", "--fail-under 1"), folder)
    assert (fine.returncode, fine.stdout) == (0, "all encodes are fine\n"), fine.stderr
    found = encodes(json.loads((folder / "quality/encoders.json").read_text()))
    assert list(found) == [
        "libx264:veryfast 22", "libx264:veryfast 28", "libx264:veryfast 34",
        "libsvtav1:12:tune=0 30", "libsvtav1:12:tune=0 40", "libsvtav1:12:tune=0 50",
    ]  # fmt: skip
    lowest = min(encode["score"] for encode in found.values())
    poor = run(script.replace("--fail-under 80", f"--fail-under {lowest + 0.1}"), folder)
    assert (poor.returncode, poor.stdout) == (1, "an encode is below the threshold; see quality/encoders.html\n")
    (suite,) = ElementTree.parse(folder / "quality/junit.xml").getroot()  # noqa: S314 - our own
    assert (suite.get("tests"), int(suite.get("failures", "0")) >= 1) == ("6", True)
    (folder / "reference.mkv").unlink()
    wrong = run(script, folder)
    assert (wrong.returncode, wrong.stdout) == (2, "the clip or an option is wrong\n")


def test_the_table_of_encoders_is_complete() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")
    ]
    expected = [
        [
            f"`{one.name}`",
            one.codec,
            f"{one.best:g} to {one.worst:g}" + ("" if one.step == 1 else f", steps of {one.step:g}"),
            ", ".join(f"{quality:g}" for quality in one.qualities),
            f"{one.presets[0]} to {one.presets[-1]} ({one.preset})",
        ]
        for one in ENCODERS.values()
    ]
    assert [row for row in rows if len(row) == 5] == expected
    for preset in ENCODERS["libx264"].presets:
        assert re.search(rf"\b{preset}\b", PAGE)


def test_the_table_of_options_is_complete() -> None:
    table = PAGE.partition("| Encoder | Options |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `([\w-]+)` \| (`.*`) \|$", table, re.MULTILINE)
    found = {encoder: re.findall(r"`(.+?)`", options) for encoder, options in rows}
    assert found == {one.name: list(one.passed) for one in ENCODERS.values() if one.passed}


def test_the_metrics_are_those_that_are_pushed() -> None:
    assert re.findall(r"^\| `(vmaf_tune_\w+)` \|", PAGE, re.MULTILINE) == [name for name, _ in METRICS.values()]
    sentence = re.sub(r"\s+", " ", PAGE.partition("Their labels are ")[2].partition(";")[0])
    assert set(re.findall(r"`(\w+)`", sentence)) == {"source", *METRIC_LABELS}
