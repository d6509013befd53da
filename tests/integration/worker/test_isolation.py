"""Variables of the environment that make Python run code have no effect on a worker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hostile_python import hostile_variables
from tests.support.worker_command import Worker, attempt
from vmafx.jobs import worker_process
from vmafx.process.tether import tethered


def test_the_variables_run_code_in_a_python_that_is_not_isolated(tmp_path: Path) -> None:
    """Otherwise the next tests could not fail."""
    variables, proof = hostile_variables(tmp_path)
    for name in ("PYTHONPATH", "PYTHONWARNINGS"):
        environment = {"PATH": os.environ["PATH"], name: variables[name], "BROWSER": variables["BROWSER"]}
        subprocess.run([sys.executable, "-c", ""], env=environment, check=True, stderr=subprocess.DEVNULL)
        assert proof.exists(), name
        proof.unlink()


def test_the_command_of_a_pod_is_isolated(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    variables, proof = hostile_variables(tmp_path)
    code, result, log = worker.run(attempt(worker_clips), **variables)
    assert (code, result.frames) == (0, 12), log
    assert not proof.exists()


def test_a_module_in_the_working_folder_is_not_imported(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    (tmp_path / "vmafx.py").write_text("raise SystemExit(77)\n")
    assert worker.run(attempt(worker_clips))[0] == 0


def test_the_command_of_an_agent_is_isolated(tmp_path: Path) -> None:
    variables, proof = hostile_variables(tmp_path)
    done = subprocess.run(
        tethered(list(worker_process.COMMAND)),
        env={"PATH": os.environ["PATH"], "VMAFX_ANSWER_FILE": str(tmp_path / "result"), **variables},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 4, done.stderr
    assert "VMAFX_WORK is invalid" in (tmp_path / "result").read_text()
    assert not proof.exists()


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONWARNINGS", "BROWSER", "LD_PRELOAD"])
def test_an_agent_does_not_pass_such_variables_on(tmp_path: Path, name: str) -> None:
    runner = worker_process.WorkerRunner(tmp_path / "work", {name: "x", "PATH": "/bin"})
    assert runner._environ == {"PATH": "/bin"}
