"""The demo without its processes: the manifest, the table, the next steps. test_plots.py tests the chart."""

from pathlib import Path

import pytest
import yaml
from rich.console import Console

from vmafx.demo import jobs
from vmafx.demo.clips import ENCODES
from vmafx.demo.jobs import scores, table, unscored
from vmafx.demo.main import next_steps
from vmafx.demo.progress import DemoError
from vmafx.fleet.rows import JobRow


def test_the_manifest_has_a_job_for_each_encode(tmp_path: Path) -> None:
    jobs.write(tmp_path / "jobs.yaml", tmp_path / "a b")
    documents = list(yaml.safe_load_all((tmp_path / "jobs.yaml").read_text()))
    assert [one["metadata"]["name"] for one in documents] == [encode.name for encode in ENCODES]
    assert documents[0]["spec"]["reference"].startswith("file:///")
    assert documents[0]["spec"]["reference"].endswith("/a%20b/reference.mkv")


def test_the_table_shows_each_job_and_a_failed_job_raises() -> None:
    rows = [
        JobRow(namespace="d", name="vp9", phase="Succeeded", score=87.125, node="this-machine"),
        JobRow(namespace="d", name="av1", phase="Failed", message="no such file"),
    ]
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(table(rows, {encode.name: 1234.5 for encode in ENCODES}))
    shown = [line.split() for line in captured.get().splitlines()]
    assert shown[0] == ["JOB", "CODEC", "KBIT/S", "PHASE", "NODE", "VMAF"]
    assert shown[1] == ["h264-low", "H.264", "1,234", "-", "-", "-"]
    assert shown[5] == ["vp9", "VP9", "1,234", "Succeeded", "this-machine", "87.12"]
    assert scores(rows[:1]) == {"vp9": 87.125}
    with pytest.raises(DemoError, match="job av1 failed: no such file"):
        scores(rows)


def test_the_next_steps_use_the_installed_command_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not any("make" in line for line in next_steps(tmp_path / "demo"))
    assert any("vmafx demo --keep  " in line for line in next_steps(tmp_path / "demo"))
    assert any("vmafx demo --keep --output other  " in line for line in next_steps(tmp_path / "other"))


def test_jobs_without_a_score_are_listed_with_their_phase() -> None:
    scored = [JobRow(namespace="d", name=one.name, phase="Succeeded", score=90.0) for one in ENCODES[:-2]]
    waiting = JobRow(namespace="d", name="vp9", phase="Pending", message="no node is free")
    assert unscored([*scored, waiting]) == "vp9 is Pending (no node is free), av1 is not listed"
