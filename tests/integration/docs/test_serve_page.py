"""docs/serve.md: its commands work, and it names every path and every metric."""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import ROOT
from tests.support.serve_process import ServeProcess
from tests.support.served_api import document

PAGE = (ROOT / "docs/serve.md").read_text()


@pytest.fixture
def folder(tmp_path: Path, clips: Path) -> Path:
    """The working folder of somebody who has run the demo."""
    made = tmp_path / "demo" / "clips"
    made.mkdir(parents=True)
    shutil.copy(clips / "reference.mkv", made)
    shutil.copy(clips / "distorted.mp4", made / "av1.mp4")
    return tmp_path


async def run(command: str, folder: Path) -> str:
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


async def test_the_commands_of_the_quick_start(folder: Path) -> None:
    section = PAGE.partition("\n## Quick start\n")[2].partition("\n## ")[0]
    by_uri, by_upload, in_background, poll, events = re.findall(r"^    (curl .*)$", section, re.MULTILINE)
    async with ServeProcess(folder, roots=folder / "demo" / "clips") as server:

        def here(command: str, job: str = "") -> str:
            return command.replace("localhost:8080", f"localhost:{server.port}").replace("/ID", f"/{job}")

        first: dict[str, Any] = json.loads(await run(here(by_uri), folder))
        second: dict[str, Any] = json.loads(await run(here(by_upload), folder))
        assert first["score"] == second["score"] > 0
        assert "psnr_y" in second["features"]
        for part, clip in (("reference", "reference.mkv"), ("distorted", "av1.mp4")):
            in_background = in_background.replace(f'"{part}": "…"', f'"{part}": "{folder}/demo/clips/{clip}"')
        accepted = await run(here(in_background.replace("respond-async", "respond-async, x=y")), folder)
        assert accepted.startswith(("HTTP/1.1 202 ", "HTTP/1.1 200 "))
        reply = await server.score(folder / "demo/clips/av1.mp4", folder / "demo/clips/av1.mp4", "respond-async")
        job = reply.headers["Location"].rpartition("/")[2]
        assert json.loads(await run(here(poll, job), folder))["state"] == "succeeded"
        assert "event: done" in await run(here(events, job), folder)


def test_every_path_is_listed() -> None:
    section = PAGE.partition("\n## Every path\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`(?:(?:GET|POST|DELETE) )?(/[\w/{}.]+)", section))
    documented = {path.replace("report.{format}", "report.html") for path in document()["paths"]}
    assert listed == documented


async def test_every_metric_is_listed(folder: Path) -> None:
    listed = set(re.findall(r"`(vmafx_serve_\w+)`", PAGE.partition("\n## Metrics\n")[2]))
    async with ServeProcess(folder, roots=folder) as server:
        exported = re.findall(r"^# TYPE (vmafx_serve_\w+) ", (await server.get("/metrics")).body.decode(), re.MULTILINE)
    assert listed == set(exported)
