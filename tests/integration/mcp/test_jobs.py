"""Jobs: they survive the server, report progress, and end when a client cancels them."""

import asyncio
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

from tests.support.leftovers import end_processes_in
from tests.support.mcp_server import (
    HANDSHAKE,
    MODULE,
    STATELESS,
    HttpServer,
    StdioServer,
    Transport,
    call,
    failed,
    started,
)
from tests.support.tune import HALF_THEN_HANG, FaultyFfmpeg, encodes
from tests.support.waiting import PATIENCE, eventually
from vmafx.mcp.stdio import MAX_LINE

INITIALIZE = {
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
TWO_ENCODERS = {"encoders": ["libx264:ultrafast", "libx265:ultrafast"], "qualities": [30]}


async def phase(client: Client, job_id: str) -> str:
    return str((await call(client, "get_job", id=job_id))["phase"])


def no_process(folder: Path) -> bool:
    return not end_processes_in(folder, within=0.0)


@pytest.mark.parametrize(
    ("number", "mode"), [(signal.SIGTERM, HANDSHAKE), (signal.SIGTERM, STATELESS), (signal.SIGKILL, STATELESS)]
)
async def test_a_job_continues_after_the_server_was_ended(
    number: signal.Signals, mode: str, tmp_path: Path, clips: Path, faulty: FaultyFfmpeg
) -> None:
    """Also one whose request still waits, which ends with the server: that is no cancellation."""
    faulty.fault(HALF_THEN_HANG)
    async with HttpServer(tmp_path, roots=clips, **faulty.environment) as server:

        async def compare() -> None:
            async with server.client(mode) as client:
                await client.call_tool("compare", {"source": str(clips / "reference.mkv"), "wait": 150, **TWO_ENCODERS})

        calling, known = asyncio.create_task(compare()), ""
        await server.half_way()
        if number == signal.SIGKILL:
            async with server.client(mode) as client:
                (job,) = (await call(client, "list_jobs"))["jobs"]
                known = job["id"]
        (kept,) = server.finished()
        before = kept.stat().st_mtime_ns
        assert server.process is not None
        server.process.send_signal(number)
        assert await server.process.wait() == (0 if number == signal.SIGTERM else -number)
        await asyncio.gather(calling, return_exceptions=True)
        await eventually(lambda: no_process(tmp_path), "its children have ended with it")
        faulty.fault("")
        await server.start()
        async with server.client(mode) as client:
            (job,) = (await call(client, "list_jobs"))["jobs"]
            assert known in {"", job["id"]}
            done = await call(client, "get_job", id=job["id"], wait=150)
            assert done["phase"] == "Succeeded"
            assert [one.get("resumed", False) for one in encodes(done["compare"]).values()] == [True, False]
        assert kept.stat().st_mtime_ns == before, "the first encode was not made again"


async def test_a_caller_has_a_share_of_the_queue(tmp_path: Path, clips: Path, faulty: FaultyFfmpeg) -> None:
    faulty.fault(HALF_THEN_HANG)
    server = StdioServer(tmp_path, "--queue", "2", roots=clips, **faulty.environment)
    arguments = {"source": str(clips / "reference.mkv"), "wait": 0, **TWO_ENCODERS}
    async with server.client() as client:
        first = await call(client, "compare", **arguments)
        await eventually(lambda: _is_running(client, first["id"]), "the first job runs")
        second = await call(client, "compare", **arguments)
        assert "your share of the queue" in await failed(client, "compare", **arguments)
        assert (await call(client, "cancel_job", id=second["id"]))["phase"] == "Cancelled", "which was waiting"
        phases = [job["phase"] for job in (await call(client, "list_jobs"))["jobs"]]
        assert phases == ["Cancelled", "Running"]


@pytest.mark.parametrize(
    ("transport", "mode"), [("stdio", HANDSHAKE), ("stdio", STATELESS), ("http", HANDSHAKE), ("http", STATELESS)]
)
async def test_a_cancelled_request_ends_its_job_and_the_encoder(
    transport: Transport, mode: str, tmp_path: Path, clips: Path, faulty: FaultyFfmpeg
) -> None:
    faulty.fault(HALF_THEN_HANG)
    async with started(transport, tmp_path, clips, **faulty.environment) as server, server.client(mode=mode) as client:
        seen = list[tuple[float, float | None, str | None]]()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            seen.append((progress, total, message))

        arguments = {"source": str(clips / "reference.mkv"), "wait": 150, **TWO_ENCODERS}
        calling = asyncio.create_task(client.call_tool("compare", arguments, progress_callback=on_progress))
        await server.half_way()
        await eventually(lambda: seen, "progress has arrived")
        assert [one[0] for one in seen] == sorted({one[0] for one in seen}), "progress grows"
        assert {one[1] for one in seen} == {100}
        assert "libx264:ultrafast 30" in str(seen[-1][2]) or "libx265:ultrafast 30" in str(seen[-1][2])
        calling.cancel()
        await asyncio.wait({calling})
        await eventually(lambda: not server.partial(), "the encode was deleted")
        (job,) = (await call(client, "list_jobs"))["jobs"]
        assert job["phase"] == "Cancelled"


async def test_a_job_whose_id_is_known_goes_on_when_a_request_is_cancelled(
    tmp_path: Path, clips: Path, faulty: FaultyFfmpeg
) -> None:
    faulty.fault(HALF_THEN_HANG)
    async with StdioServer(tmp_path, roots=clips, **faulty.environment).client() as client:
        job = await call(client, "compare", source=str(clips / "reference.mkv"), wait=0, **TWO_ENCODERS)
        waiting = asyncio.create_task(client.call_tool("get_job", {"id": job["id"], "wait": 150}))
        await eventually(lambda: _is_running(client, job["id"]), "the job runs")
        waiting.cancel()
        await asyncio.wait({waiting})
        assert await phase(client, job["id"]) == "Running"
        assert "has no reports" in await failed_to_read(client, f"vmafx://jobs/{job['id']}/report.html")
        assert (await call(client, "cancel_job", id=job["id"]))["phase"] == "Cancelled"
        message = await failed(client, "explain_score", job=job["id"])
        assert "is a compare" in message


async def _is_running(client: Client, job_id: str) -> bool:
    return await phase(client, job_id) == "Running"


async def failed_to_read(client: Client, uri: str) -> str:
    with pytest.raises(Exception, match=r".") as caught:  # MCPError, whose message is looked at
        await client.read_resource(uri)
    return str(caught.value)


async def test_the_end_of_standard_input_ends_the_server_and_the_next_one_continues(
    tmp_path: Path, clips: Path, faulty: FaultyFfmpeg
) -> None:
    faulty.fault(HALF_THEN_HANG)
    server = StdioServer(tmp_path, roots=clips, **faulty.environment)
    arguments = {"source": str(clips / "reference.mkv"), "wait": 150, **TWO_ENCODERS}
    async with server.client() as client:
        calling = asyncio.create_task(client.call_tool("compare", arguments))
        await server.half_way()
        async with server.client() as other:  # a second assistant of the same user
            assert (await call(other, "list_jobs"))["jobs"] == [], "jobs of a server that runs are its own"
    await asyncio.gather(calling, return_exceptions=True)
    await eventually(lambda: no_process(tmp_path), "nothing of the server is left")
    faulty.fault("")
    async with server.client() as client:
        (job,) = (await call(client, "list_jobs"))["jobs"]
        done: Any = await call(client, "get_job", id=job["id"], wait=150)
        assert [one.get("resumed", False) for one in encodes(done["compare"]).values()] == [True, False]


async def test_sigterm_ends_a_server_whose_standard_input_is_open_and_nothing_else_is_printed(
    tmp_path: Path, clips: Path
) -> None:
    server = StdioServer(tmp_path, roots=clips)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", MODULE, cwd=tmp_path, env=server.environment,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    arguments = {"reference": str(clips / "reference.mkv"), "distorted": str(clips / "distorted.mp4"), "wait": 150}
    for message in (
        INITIALIZE,
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "score", "arguments": arguments}},
    ):  # fmt: skip
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    answers = [json.loads(await process.stdout.readline()) for _ in range(2)]
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[0]["result"]["protocolVersion"] == "2025-06-18"
    assert answers[1]["result"]["structuredContent"]["phase"] == "Succeeded"
    process.terminate()
    printed, logged = await process.communicate()
    assert (process.returncode, printed) == (0, b"")
    assert b"Traceback" not in logged


async def test_sigterm_ends_a_server_whose_client_does_not_read(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", MODULE, cwd=tmp_path, env=StdioServer(tmp_path).environment,
        stdin=asyncio.subprocess.PIPE, stdout=writing,
    )  # fmt: skip
    assert process.stdin is not None
    messages = (INITIALIZE, {"method": "notifications/initialized"}, {"id": 2, "method": "tools/list"})
    process.stdin.writelines(json.dumps({"jsonrpc": "2.0", **one}).encode() + b"\n" for one in messages)
    await eventually(lambda: is_writing_to_a_full_pipe(process.pid), "the server waits for its client to read")
    process.terminate()
    assert await process.wait() == 0
    os.close(writing)
    os.close(reading)


def is_writing_to_a_full_pipe(pid: int) -> bool:
    return any("pipe_write" in task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/wchan"))


async def test_a_message_that_is_too_long_ends_the_server(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", MODULE, cwd=tmp_path, env=StdioServer(tmp_path).environment,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, logged = await process.communicate(b"x" * (MAX_LINE + (1 << 20)))
    assert process.returncode == 0
    assert b"a message is too long" in logged


@pytest.mark.parametrize(
    ("redirection", "status", "expected"),
    [("< /dev/null", 0, "stopped"), ("< messages", 0, "stopped"), ("<&-", 1, "standard input or output is closed")],
)
def test_standard_input_may_be_a_file_or_empty_but_not_closed(
    redirection: str, status: int, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "messages").write_text('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    done = subprocess.run(
        ["sh", "-c", f'exec "{sys.executable}" -m {MODULE} {redirection}'], cwd=tmp_path, check=False,
        env=StdioServer(tmp_path).environment, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, expected in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr


def test_standard_output_stays_blocking_where_it_is_the_same_socket_as_standard_input(tmp_path: Path) -> None:
    """As of sshd and inetd: a client that reads slowly must not make a write fail."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    with ours, theirs:
        os.set_blocking(theirs.fileno(), True)
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE], stdin=theirs.fileno(), stdout=theirs.fileno(), cwd=tmp_path,
            env=StdioServer(tmp_path).environment,
        )  # fmt: skip
        ours.sendall(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        assert ours.recv(1 << 16)
        assert not fcntl.fcntl(theirs, fcntl.F_GETFL) & os.O_NONBLOCK
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(PATIENCE) == 0


async def test_a_second_server_on_http_refuses_the_state_of_the_first(tmp_path: Path, clips: Path) -> None:
    async with HttpServer(tmp_path, roots=clips) as server:
        other = HttpServer(tmp_path, roots=clips)
        with pytest.raises(AssertionError, match="give each its own with --state"):
            await other.start()
        assert (await server.call("GET", "/readyz"))[0] == 200
