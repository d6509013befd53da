"""Commands that build images: they have a time limit, and nothing of them outlives it or this process."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.image.buildah import BuildFailed, missing_requirement, run_with_progress
from tests.support.project import ROOT
from tests.support.waiting import until
from vmafx.devcluster.progress import PlainProgress

pytestmark = pytest.mark.image


@pytest.fixture(scope="module", autouse=True)
def _can_build() -> None:
    if reason := missing_requirement():
        pytest.fail(f"this machine cannot build the image: {reason}")


class Interrupted:
    """A reporter during whose detail Ctrl-C is pressed."""

    def step(self, text: str) -> None:
        raise AssertionError(text)

    def detail(self, text: str) -> None:
        raise KeyboardInterrupt


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """It mounts, starts a process, and does not end; that process has the folder in its command line."""
    script = f'mount -t tmpfs tmpfs {tmp_path}; trap "" TERM INT; sh -c "echo started; sleep 300; : {tmp_path}"; true'
    return ["sh", "-c", script]


def running(folder: Path) -> list[str]:
    """The processes with the folder in their command line, but those that started them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line and line.startswith("sh\0"):
            found.append(line)
    return found


def test_the_result_has_the_status_and_the_last_lines() -> None:
    done = run_with_progress(["sh", "-c", "seq 100; echo error >&2; exit 3"], PlainProgress())
    assert (done.returncode, done.stdout.splitlines()[-2:]) == (3, ["100", "error"])


def test_a_command_that_takes_too_long_ends(tmp_path: Path, command: list[str]) -> None:
    started = time.monotonic()
    with pytest.raises(BuildFailed, match=r"`sh -c` took longer than 1 s: started"):
        run_with_progress(command, PlainProgress(), within=1)
    assert time.monotonic() - started < 30
    assert running(tmp_path) == []


def test_an_interrupted_command_ends(tmp_path: Path, command: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_with_progress(command, Interrupted())
    until(lambda: running(tmp_path) == [], "its processes are gone", 30)


def test_a_command_ends_with_the_process_that_started_it(tmp_path: Path, command: list[str]) -> None:
    script = (
        "import sys; from tests.support.image.buildah import run_with_progress as run;"
        "from vmafx.devcluster.progress import PlainProgress; run(sys.argv[1:], PlainProgress())"
    )
    with subprocess.Popen([sys.executable, "-c", script, *command], cwd=ROOT) as process:
        until(lambda: len(running(tmp_path)) == 2, "the command runs", 60)
        process.send_signal(signal.SIGKILL)
    until(lambda: running(tmp_path) == [], "its processes are gone", 30)
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
