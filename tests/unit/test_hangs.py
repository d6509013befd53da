"""The set-up of pytest: a test that hangs fails with a stack trace, and child processes have default signals."""

import asyncio
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.default_signals import ENDING
from tests.support.project import ROOT

STATUS = ["cat", "/proc/self/status"]

HANGS = """
import asyncio
import threading

import pytest

async def never_returns():
    await asyncio.Event().wait()

@pytest.mark.timeout(1)
async def test_awaits():
    try:
        await never_returns()
    finally:
        print("cleaned up")

@pytest.mark.timeout(1)
def test_blocks():
    threading.Event().wait()

@pytest.mark.timeout(1)
async def test_blocks_the_loop():
    threading.Event().wait()

@pytest.fixture
async def stays_open():
    yield
    await never_returns()

@pytest.mark.timeout(1)
async def test_passes_and_does_not_end(stays_open):
    pass

@pytest.mark.timeout(1)
async def test_fails_and_does_not_end(stays_open):
    raise AssertionError("fails first")

@pytest.mark.timeout(1)
async def test_awaits_beside_a_busy_task():
    async def busy():
        while True:
            await asyncio.sleep(0)
    task = asyncio.create_task(busy())
    try:
        await never_returns()
    finally:
        task.cancel()

@pytest.mark.timeout(1)
async def test_awaits_a_thread():
    stop = threading.Event()
    try:
        await asyncio.to_thread(stop.wait)
    finally:
        stop.set()

def test_after():
    pass
"""


def test_a_test_that_hangs_fails_with_a_stack_trace(tmp_path: Path) -> None:
    (tmp_path / "test_inner.py").write_text(HANGS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = session\n"
        "asyncio_default_test_loop_scope = session\n"
    )
    command = [sys.executable, "-m", "pytest", "-rA", "-n", "1", "-p", "tests.support.hang_timeout"]
    output = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    ).stdout
    outcomes = {
        "FAILED": {
            "awaits", "blocks", "blocks_the_loop", "fails_and_does_not_end", "awaits_beside_a_busy_task",
            "awaits_a_thread",
        },
        "ERROR": {"passes_and_does_not_end", "fails_and_does_not_end"},
        "PASSED": {"after", "passes_and_does_not_end"},
    }  # fmt: skip
    for outcome, tests in outcomes.items():
        assert set(re.findall(rf"^{outcome} test_inner\.py::test_(\w+)", output, re.MULTILINE)) == tests, output
    assert output.count("the test took longer than 1.0 s") >= 4
    assert "in never_returns" in output  # the coroutine that waits, not the event loop
    assert "cleaned up" in output
    assert "Stack of thread asyncio_0" in output


def dispositions(status: str) -> tuple[int, int]:
    """The ignored and the blocked signals, as bit masks."""
    ignored, blocked = (int(re.findall(rf"{field}:\t(\w+)", status)[0], 16) for field in ("SigIgn", "SigBlk"))
    relevant = sum(1 << (number - 1) for number in (*ENDING, 13))  # and SIGPIPE
    return ignored & relevant, blocked & relevant


async def test_child_processes_have_default_signals() -> None:
    by_subprocess = subprocess.run(STATUS, capture_output=True, text=True, check=True).stdout  # noqa: ASYNC221 - on purpose
    assert dispositions(by_subprocess) == (0, 0)
    by_thread = await asyncio.to_thread(subprocess.run, STATUS, capture_output=True, text=True, check=True)
    assert dispositions(by_thread.stdout) == (0, 0)
    child = await asyncio.create_subprocess_exec(*STATUS, stdout=subprocess.PIPE)
    by_asyncio, _ = await child.communicate()
    assert dispositions(by_asyncio.decode()) == (0, 0)
    running_controller, terminal = pty.openpty()
    child = await asyncio.create_subprocess_exec(*STATUS, stdin=terminal, stdout=subprocess.PIPE, stderr=terminal)
    on_a_terminal, _ = await child.communicate()
    assert dispositions(on_a_terminal.decode()) == (0, 0)
    os.close(running_controller)
    os.close(terminal)


@pytest.mark.parametrize("workers", [0, 1])
def test_signals_are_reset_however_pytest_was_started(workers: int) -> None:
    """As a background job of a script, with nohup, or by a process that blocks signals."""
    numbers = [int(number) for number in ENDING]
    start = (
        "import os, signal, sys\n"
        f"signal.pthread_sigmask(signal.SIG_BLOCK, {numbers})\n"
        f"[signal.signal(number, signal.SIG_IGN) for number in {numbers}]\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    test = f"{Path(__file__).relative_to(ROOT)}::{test_child_processes_have_default_signals.__name__}"
    command = [sys.executable, "-c", start, "-m", "pytest", "-n", str(workers), "-p", "no:cacheprovider", test]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
