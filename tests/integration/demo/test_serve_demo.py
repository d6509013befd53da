"""`vmafx demo --serve`, run as a user runs it."""

import asyncio
import json
import shlex
import signal
import subprocess
from pathlib import Path

import aiohttp

from tests.integration.demo.test_demo import demo, leftovers
from tests.support.commands import line_with


async def test_the_printed_request_scores_the_clips_and_ctrl_c_ends_the_server(tmp_path: Path) -> None:
    scratch, output = tmp_path / "scratch", tmp_path / "my demo"
    scratch.mkdir()
    async with demo(output, scratch, "--serve") as process:
        address = (await line_with(process.stdout, "Open http://")).split()[1]
        clips = [(await line_with(process.stdout, f"my demo/clips/{name}")) for name in ("reference", "h264-low")]
        request = shlex.split(await line_with(process.stdout, "curl http://"))
        await line_with(process.stdout, "Press Ctrl-C")
        answer = await asyncio.to_thread(subprocess.run, request, capture_output=True, check=True, timeout=120)
        result = json.loads(answer.stdout)
        assert 20 < result["score"] < 60
        async with aiohttp.ClientSession() as session, session.get(address) as page:
            assert '<form id="form"' in await page.text()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
    assert leftovers(scratch) == []
    assert {Path(line.strip()) for line in clips} == set((output / "clips").iterdir())
