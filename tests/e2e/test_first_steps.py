"""The commands of the README's first steps, run as printed."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.project import ROOT

pytestmark = pytest.mark.timeout(600)  # `make` may have to create .venv first


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of another user, so that no existing dev cluster is touched."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "KUBECONFIG"))
    }
    return {**inherited, "XDG_STATE_HOME": str(tmp_path)}


def run(command: str, environment: dict[str, str]) -> str:
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=570, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_make_demo_scores_and_plots_all_encodes_and_cleans_up(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    shown = run("make demo", {**environment, "TMPDIR": str(tmp_path / "scratch")})
    scored = r"^\S+ +(?:H.264|HEVC|VP9|AV1) +[\d,]+ +Succeeded +this-machine +\d+\.\d\d$"
    assert len(re.findall(scored, shown, re.MULTILINE)) == 6
    assert "Done in" in shown
    assert "vmafx demo --keep" in shown
    assert (ROOT / "demo" / "rate-quality.html").exists()
    assert list((tmp_path / "scratch").iterdir()) == []


def test_the_first_job_of_the_readme_succeeds(environment: dict[str, str], kubectl_path: Path) -> None:
    section = (ROOT / "README.md").read_text().partition("## Your first job\n")[2].partition("\n## ")[0]
    (start,) = re.findall(r"^    (.*)$", section, re.MULTILINE)
    (script,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    path = f"{kubectl_path.parent}:{environment['PATH']}"
    with running_demo(start, environment) as kubeconfig:
        shown = run(script, {**environment, "KUBECONFIG": kubeconfig, "PATH": path})
    assert re.search(r"first-job +Succeeded +\d+\.\d+ +this-machine", shown)


@contextmanager
def running_demo(command: str, environment: dict[str, str]) -> Iterator[str]:
    """Run a demo with --keep; yield the path of the kubeconfig that it prints."""
    with subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as demo:  # fmt: skip
        try:
            assert demo.stdout is not None
            exports = (re.search(r"export KUBECONFIG=(.*)", line) for line in demo.stdout)
            yield next(found[1] for found in exports if found)
        finally:
            os.killpg(demo.pid, signal.SIGTERM)
