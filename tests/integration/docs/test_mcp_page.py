"""docs/mcp.md: its configurations work with the official client, and its tables are those of the code."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.support.mcp_server import call, failed
from tests.support.project import ROOT
from tests.support.waiting import PATIENCE, eventually
from vmafx.devcluster.cluster import free_port
from vmafx.mcp import resources, sessions, state
from vmafx.mcp.explain import MAX_EVALUATED
from vmafx.mcp.metrics import McpMetrics
from vmafx.mcp.server import SPECS
from vmafx.mcp.stdio import MAX_LINE

PAGE = (ROOT / "docs/mcp.md").read_text()


def block(language: str, text: str) -> str:
    """The block of the page, marked as run here, that contains this text."""
    blocks = re.findall(rf"test_mcp_page\.py -->\n```{language}\n(.*?)```", PAGE, re.DOTALL)
    (found,) = [one for one in blocks if text in one]
    return str(found)


def server(text: str) -> Any:
    return json.loads(block("json", text))["mcpServers"]["vmafx"]


async def test_the_configuration_for_standard_input(tmp_path: Path, clips: Path) -> None:
    given = server('"command"')
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    (folder,) = given["env"].values()
    environment = {**given["env"], "VMAFX_MEDIA_ROOTS": str(clips), "PATH": path, "HOME": str(tmp_path)}
    assert folder == "/home/me/Videos"
    parameters = StdioServerParameters(command=given["command"], args=given["args"], env=environment, cwd="/")
    with (tmp_path / "log").open("w") as log:
        async with Client(stdio_client(parameters, errlog=log)) as client:
            clip = str(clips / "reference.mkv")
            result = await call(client, "score", reference=clip, distorted=clip, wait=150)
            assert result["phase"] == "Succeeded"
            assert "VMAFX_MEDIA_ROOTS" in await failed(client, "score", reference="/etc/passwd", distorted=clip)
    assert (tmp_path / ".local/state/vmafx/mcp/servers/1/jobs" / f"{result['id']}.json").exists()


async def test_the_configuration_for_http(tmp_path: Path) -> None:
    port = free_port()
    script = block("sh", "--http-address").replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    assert script.count(f"127.0.0.1:{port}") == 1
    (tmp_path / "clips").mkdir()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = script.replace("VMAFX_MEDIA_ROOTS=$PWD/clips vmafx", "export VMAFX_MEDIA_ROOTS=$PWD/clips; exec vmafx")
    process = await asyncio.create_subprocess_exec(
        "sh", "-eu", "-c", script, cwd=tmp_path, env={"PATH": path, "HOME": str(tmp_path)},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        while b'"msg":"serving"' not in (line := await process.stderr.readline()):
            assert line, "the server has ended"
        given = server('"url"')
        key = (tmp_path / "keys").read_text().split()[1]
        headers = {name: value.replace("KEY", key) for name, value in given["headers"].items()}
        url = given["url"].replace("8080", str(port))
        async with (
            httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            assert len((await client.list_tools()).tools) == len(SPECS)
        process.terminate()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
    await eventually((tmp_path / "mcp-state").is_dir, "the state is there")


def test_the_tables_are_those_of_the_code() -> None:
    tools = PAGE.split("## Tools")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", tools, re.MULTILINE) == list(SPECS)
    limits = PAGE.split("## Limits")[1].split("\n## ")[0]
    for text in (
        f"{MAX_LINE >> 20} MiB on standard input",
        f"{sessions.MAX_OF_CALLER} for each caller, {sessions.MAX_SESSIONS} in all",
        f"for {sessions.IDLE_SECONDS / 60:.0f} minutes",
        f"{sessions.MAX_EVENTS:,} for each session, {sessions.MAX_EVENT_BYTES >> 20} MiB",
        f"{resources.MAX_BYTES >> 20} MiB",
        f"newest {resources.MAX_LISTED} jobs",
    ):
        assert text in limits, text
    kept = f"{state.MAX_FINISHED} jobs or {state.MAX_RECORD_BYTES >> 20} MiB"
    assert kept in " ".join(PAGE.split())
    assert f"{MAX_EVALUATED:,} are evaluated" in PAGE
    metrics = McpMetrics()
    metrics.observe(lambda: 0, lambda: 0)
    metrics.observe_sessions(lambda: 0)
    exported = {metric.name for metric in metrics.registry.collect() if metric.name.startswith("vmafx_")}
    listed = set(re.findall(r"^\| `(vmafx_mcp_\w+)` \|", PAGE, re.MULTILINE))
    assert {name.removesuffix("_total") for name in listed} == exported
