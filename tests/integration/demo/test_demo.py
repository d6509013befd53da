"""`vmafx demo`, the whole of it, as a person runs it."""

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
    """Where temporary files go: what is left in it afterwards was left behind."""
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@asynccontextmanager
async def demo(
    output: Path, scratch: Path, *arguments: str, terminal: int | None = None, **variables: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    out = asyncio.subprocess.PIPE if terminal is None else terminal
    said = asyncio.subprocess.PIPE if terminal is None else terminal
    process = await asyncio.create_subprocess_exec(
        VMAFX, "demo", "--output", str(output), *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=said,
        env={**os.environ, "TMPDIR": str(scratch), "COLUMNS": "100", "TERM": "xterm", **variables},
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def left(scratch: Path) -> list[str]:
    """Files, and processes that were told of a place in there."""
    lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(process.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [line for line in lines if str(scratch) in line] + [path.name for path in scratch.iterdir()]


async def test_from_nothing_to_a_picture_and_kept_until_ctrl_c(
    tmp_path: Path, scratch: Path, kubectl_path: Path
) -> None:
    """Without --keep: tests/e2e."""
    output = tmp_path / "shown"
    async with Terminal() as terminal, demo(output, scratch, "--keep", terminal=terminal.theirs) as process:
        await terminal.shows("Running")  # the table is live
        await terminal.shows("export KUBECONFIG=", within=240)
        await terminal.shows("until Ctrl-C")
        (kubeconfig,) = scratch.glob("*/cluster/kubeconfig")
        command = [str(kubectl_path), "--kubeconfig", str(kubeconfig), "get", "vmjob,vmnode", "--no-headers"]
        shown = (await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)).stdout
        assert shown.count("Succeeded") == len(ENCODES)
        assert "vmafxnode.vmafx.dev/this-machine" in shown
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
        assert "Traceback" not in terminal.shown
    assert left(scratch) == []
    assert sorted(path.name for path in output.iterdir()) == [
        "agent", "clips", "jobs.yaml", "rate-quality.html", "rate-quality.png",
    ]  # fmt: skip
    page = (output / "rate-quality.html").read_text()
    found = {
        name: float(score)
        for name, score in re.findall(r'<th scope="row">([\w-]+)</th>.*?([\d.]+)</td></tr>', page)
    }  # fmt: skip
    assert found.keys() == {encode.name for encode in ENCODES}
    assert 30 < found["h264-low"] < found["h264-mid"] < found["h264-high"] < 100
    assert max(found.values()) - min(found.values()) > 30
    with av.open(str(output / "rate-quality.png")) as picture:
        assert next(picture.decode(video=0)).width == 1920


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_stopped_half_way(tmp_path: Path, scratch: Path, sign: signal.Signals) -> None:
    async with demo(tmp_path / "shown", scratch) as process:
        await line_with(process.stdout, "a Kubernetes API server", within=240)
        process.send_signal(sign)
        await process.communicate()
        assert process.returncode == (-signal.SIGKILL if sign is signal.SIGKILL else 130)
    if sign is signal.SIGKILL:  # nobody is left to remove files; but what ran ends
        await eventually(lambda: [one for one in left(scratch) if str(scratch) in one] == [], "no process is left")
    else:
        assert left(scratch) == []


async def test_a_failure_says_what_is_wrong(tmp_path: Path, scratch: Path) -> None:
    async with demo(tmp_path / "shown", scratch, VMAFX_FFMPEG_BIN="/bin/false") as process:
        _, said = await process.communicate()
    assert process.returncode == 1
    assert said.startswith(b"error: `vmafx agent` ended; it said last: agent exits: this machine cannot score")
    assert len(said.splitlines()) == 1
    assert left(scratch) == []
