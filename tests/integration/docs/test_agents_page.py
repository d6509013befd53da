"""The shell block of docs/agents.md that starts a controller, an operator and an agent, run as printed."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.project import ROOT
from tests.support.waiting import PATIENCE
from vmafx.devcluster import DevCluster
from vmafx.devcluster.cluster import free_port


def block() -> str:
    (found,) = re.findall(
        r"test_agents_page\.py -->\n```sh\n(.*?)```", (ROOT / "docs/agents.md").read_text(), re.DOTALL
    )
    return str(found)


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    """The folder in which the block runs; its dev cluster is removed afterwards."""
    yield tmp_path
    await asyncio.to_thread(DevCluster(tmp_path / "state" / "vmafx" / "dev" / "dev").down)


async def test_the_block_scores_a_job_and_stops_all_roles(
    folder: Path, clips: Path, speed: Path, kubectl_path: Path
) -> None:
    script = block()
    for port in ("9090", "8080"):  # may be in use on this machine
        assert script.count(f"127.0.0.1:{port}") == 2
        script = script.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free_port()}")
    (folder / "demo/clips").mkdir(parents=True)
    (folder / "demo/clips/reference.mkv").symlink_to(clips / "reference.mkv")
    (folder / "demo/clips/av1.mp4").symlink_to(clips / "distorted.mp4")
    (folder / "state/vmafx/agent").mkdir(parents=True)
    (folder / "state/vmafx/agent/speed.json").write_bytes(speed.read_bytes())
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{kubectl_path.parent}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(folder / "state"),
        "VMAFX_OPERATOR_PROBE_ADDR": "0",
        "VMAFX_OPERATOR_METRICS_ADDR": "0",
    }
    with (folder / "output.log").open("w") as output:
        process = await asyncio.create_subprocess_exec(
            "bash", "-euo", "pipefail", "-c", script, cwd=folder, env=environment, stdin=asyncio.subprocess.DEVNULL,
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        async with asyncio.timeout(2 * PATIENCE):
            code = await process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the roles, if the script did not stop them
    logs = "\n".join(
        (folder / name).read_text() for name in ("output.log", "controller.log", "operator.log", "agent.log")
    )
    assert code == 0, logs
    assert re.search(r"VMAF \d+\.\d+ +\(6 frames, .* on this-machine", logs), logs
    assert logs.count('"msg":"stopped"') == 3, logs
