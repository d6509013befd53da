"""The commands that the README tells a newcomer to type, as printed."""

import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(600)  # `make` may have to set up first
ROOT = Path(__file__).parents[2]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user of their own: no cluster of anybody else is touched."""
    outside = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "KUBECONFIG"))
    }
    return {**outside, "XDG_STATE_HOME": str(tmp_path)}


def run(command: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=570, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_scores_draws_and_leaves_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    shown = run("make demo", {**environment, "TMPDIR": str(tmp_path / "scratch")})
    scored = r"^\S+ +(?:H.264|HEVC|VP9|AV1) +[\d,]+ +Succeeded +this-machine +\d+\.\d\d$"
    assert len(re.findall(scored, shown, re.MULTILINE)) == 6
    assert "All done in" in shown
    assert "vmafx demo --keep" in shown
    assert (ROOT / "demo" / "rate-quality.html").exists()
    assert list((tmp_path / "scratch").iterdir()) == []


def test_the_first_job_of_the_readme(environment: dict[str, str]) -> None:
    section = (ROOT / "README.md").read_text().partition("## Your first job\n")[2].partition("\n## ")[0]
    commands = "\n".join(line.strip() for line in section.splitlines() if line.startswith("    "))
    shown = run(commands, environment)
    assert re.search(r"first-job +Pending", shown)
    assert "The pristine clip, as a URI." in shown
    assert shown.rstrip().endswith("cluster 'dev' is down")
