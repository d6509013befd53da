"""`vmafx demo`, run as a user runs it."""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import av
import pytest

from tests.support.commands import VMAFX, Terminal, line_with
from tests.support.waiting import eventually
from vmafx.demo.clips import ENCODES

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """The folder for temporary files (TMPDIR); the demo must leave nothing in it."""
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@asynccontextmanager
async def demo(
    output: Path, scratch: Path, *arguments: str, terminal: int | None = None, **variables: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    output_stream = asyncio.subprocess.PIPE if terminal is None else terminal
    process = await asyncio.create_subprocess_exec(
        VMAFX, "demo", "--output", str(output), *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=output_stream, stderr=output_stream,
        env={**os.environ, "TMPDIR": str(scratch), "COLUMNS": "100", "TERM": "xterm", **variables},
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def leftovers(scratch: Path) -> list[str]:
    """Files in the folder, and command lines of processes that mention it."""
    lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(process.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [line for line in lines if str(scratch) in line] + [path.name for path in scratch.iterdir()]


async def test_a_kept_demo_scores_all_encodes_and_cleans_up_on_ctrl_c(
    tmp_path: Path, scratch: Path, kubectl_path: Path
) -> None:
    """tests/e2e tests it without --keep."""
    output = tmp_path / "output"
    async with Terminal() as terminal, demo(output, scratch, "--keep", terminal=terminal.theirs) as process:
        await terminal.shows("Running")  # the table is live
        await terminal.shows("export KUBECONFIG=", within=240)
        await terminal.shows("Press Ctrl-C to stop it")
        (kubeconfig,) = scratch.glob("*/cluster/kubeconfig")
        command = [str(kubectl_path), "--kubeconfig", str(kubeconfig), "get", "vmjob,vmnode", "--no-headers"]
        shown = (await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)).stdout
        assert shown.count("Succeeded") == len(ENCODES)
        assert "vmafxnode.vmafx.dev/this-machine" in shown
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
        assert "Traceback" not in terminal.shown
    assert leftovers(scratch) == []
    assert sorted(path.name for path in output.iterdir()) == [
        "agent", "clips", "jobs.yaml", "rate-quality.html", "rate-quality.png",
    ]  # fmt: skip
    page = (output / "rate-quality.html").read_text()
    scores = {
        name: float(score)
        for name, score in re.findall(r'<th scope="row">([\w-]+)</th>.*?([\d.]+)</td></tr>', page)
    }  # fmt: skip
    assert scores.keys() == {encode.name for encode in ENCODES}
    assert 30 < scores["h264-low"] < scores["h264-mid"] < scores["h264-high"] < 100
    assert max(scores.values()) - min(scores.values()) > 30
    with av.open(str(output / "rate-quality.png")) as picture:
        assert next(picture.decode(video=0)).width == 1920


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, scratch: Path, sign: signal.Signals) -> None:
    async with demo(tmp_path / "output", scratch) as process:
        await line_with(process.stdout, "Starting a Kubernetes API server", within=240)
        process.send_signal(sign)
        await process.communicate()
        assert process.returncode == (-signal.SIGKILL if sign is signal.SIGKILL else 130)
    # One that was being started when the signal came, or all after SIGKILL: the kernel ends them with the demo.
    await eventually(
        lambda: [one for one in leftovers(scratch) if str(scratch) in one] == [],
        "no process of the demo is running",
    )
    if sign is not signal.SIGKILL:  # after which files remain
        assert leftovers(scratch) == []


async def test_a_failed_role_is_reported_in_one_line_with_its_last_log_line(tmp_path: Path, scratch: Path) -> None:
    async with demo(tmp_path / "output", scratch, VMAFX_FFMPEG_BIN="/bin/false") as process:
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors.startswith(b"error: `vmafx agent` exited; its last log line: this machine cannot score")
    assert len(errors.splitlines()) == 1
    assert leftovers(scratch) == []
