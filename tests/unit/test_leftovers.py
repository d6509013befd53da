"""Processes of tests end with them, stopped ones too."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.leftovers import end_processes_in
from tests.support.machines import Machine, running

WORK = {"VMAFX_WORK": '{"id":"uid-0"}'}


async def start(folder: Path, **variables: str) -> asyncio.subprocess.Process:
    """A process that does not end by itself, nor with its parent."""
    environment = {"PATH": os.environ["PATH"], **variables}
    return await asyncio.create_subprocess_exec(
        "sleep", "infinity", env=environment, cwd=folder, start_new_session=True
    )


async def ended(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(60):
        return await process.wait()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_stopped_worker_ends_with_its_machine(tmp_path: Path, fails: bool) -> None:
    """Also one that is stopped before the kernel would end it with its agent."""
    speed = tmp_path / "speed.json"
    speed.write_text("{}")
    machine, worker = Machine("machine", "127.0.0.1:1", tmp_path, speed), await start(tmp_path, **WORK)
    with suppress(AssertionError):
        async with running(machine):
            machine.halt(worker.pid)
            assert not fails
    assert await ended(worker) == -signal.SIGKILL


async def test_a_process_with_the_pid_of_an_ended_worker_is_not_killed(tmp_path: Path) -> None:
    machine, other = Machine("machine", "127.0.0.1:1", tmp_path, tmp_path), await start(tmp_path)
    machine.halted[other.pid] = "uid-0"
    machine.end_halted()
    assert other.returncode is None
    other.kill()
    await ended(other)


async def test_processes_that_were_left_in_a_folder_are_ended_and_named(tmp_path: Path) -> None:
    inside, beside = tmp_path / "inside", tmp_path / "inside-not"
    for folder in (inside, beside):
        folder.mkdir()
    stopped, outside = await start(inside), await start(beside)
    stopped.send_signal(signal.SIGSTOP)
    (left,) = await asyncio.to_thread(end_processes_in, inside, 0.0)
    assert left == f"process {stopped.pid}: sleep infinity"
    assert await ended(stopped) == -signal.SIGKILL
    assert await asyncio.to_thread(end_processes_in, inside, 60.0) == []
    outside.kill()
    assert await ended(outside) == -signal.SIGKILL
