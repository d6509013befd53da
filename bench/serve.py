"""Benchmark of `vmafx serve`: its overhead over `vmafx score`, cached answers, memory with uploads, weight of the page.

Run by `make bench-serve`.

- overhead: `POST /v1/score` against `vmafx score --no-cache` on the same clips and with as many threads, in turns; each
  round has another pooling method, so that nothing is answered from a cache. The command's time includes its start.
- cached answers: requests for clips that were scored before, by 16 connections that each wait for their answer, against
  a handler of the same HTTP library (aiohttp) that reads a JSON body and sends the same bytes, in turns. The client
  runs on the same cores.
- memory: 100 clients upload two files of 10 MiB each at the same time, which are refused once they have arrived, since
  they are noise. The peak is that of the server's process.
- page: the files of the page without pictures, as a browser loads them.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
from aiohttp import web
from bench.contestants import log
from bench.scoring import VMAFX, make_clips
from bench.usage import memory_mib

from vmafx.devcluster.cluster import free_port
from vmafx.serving.page import FILES

SIZE, HOST = "1280x720", "127.0.0.1"
OVERHEAD_GOAL, RATE_GOAL, PAGE_GOAL = 1.03, 0.5, 300_000
CONNECTIONS, UPLOADS, UPLOAD_BYTES = 16, 100, 10 << 20
READY_SECONDS = 60.0


class Rate(msgspec.Struct, frozen=True):
    """Answers of one run."""

    per_second: float
    p50_ms: float
    p99_ms: float


class Server:
    """A running `vmafx serve`."""

    def __init__(self, port: int, process: asyncio.subprocess.Process, session: aiohttp.ClientSession) -> None:
        self.port, self.pid, self.session = port, process.pid, session

    async def score(self, body: Mapping[str, object]) -> bytes:
        headers = {"Prefer": "wait=60"}
        async with self.session.post("/v1/score", json=body, headers=headers) as response:
            answer = await response.read()
            if response.status != 200:
                raise SystemExit(f"the server answered {response.status}: {answer[:500].decode()}")
            return answer

    async def wait_until_idle(self) -> None:
        """Pictures of frames are taken after the answer."""
        while True:
            async with self.session.get("/metrics") as response:
                if 'vmafx_serve_unfinished_jobs{state="running"} 0.0' in await response.text():
                    return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    port = free_port()
    environment = {**os.environ, "VMAFX_MEDIA_ROOTS": str(folder), "VMAFX_LOG_LEVEL": "warn"}
    flags = ["--http-address", f"{HOST}:{port}", "--grpc-address", "0", "--data", str(folder / "data")]
    process = await asyncio.create_subprocess_exec(VMAFX, "serve", *flags, env=environment)
    timeout = aiohttp.ClientTimeout(total=300)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(f"http://{HOST}:{port}", timeout=timeout, connector=connector) as session:
        try:
            await _ready(session, "/readyz")
            yield Server(port, process, session)
        finally:
            process.terminate()
            await process.wait()


async def _ready(session: aiohttp.ClientSession, path: str) -> None:
    deadline = time.perf_counter() + READY_SECONDS
    while time.perf_counter() < deadline:
        try:
            async with session.get(path) as response:
                if response.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.05)
    raise SystemExit(f"not ready within {READY_SECONDS:.0f} s")


async def overhead(server: Server, reference: Path, distorted: Path, rounds: int) -> None:
    threads = str(os.cpu_count() or 1)
    by_server, by_command = list[float](), list[float]()
    for number in range(rounds + 1):  # the first warms up
        pooling = f"p{number + 1}"

        async def request(pooling: str = pooling) -> None:
            await server.score(
                {"reference": str(reference), "distorted": str(distorted), "options": {"pooling": pooling}}
            )

        async def command(pooling: str = pooling) -> None:
            line = [VMAFX, "score", "--no-cache", "--quiet", "--json", "--threads", threads, "--pool", pooling]
            await asyncio.to_thread(
                subprocess.run, [*line, str(reference), str(distorted)], stdout=subprocess.DEVNULL, check=True
            )

        turns = [(request, by_server), (command, by_command)]
        for run, seconds in turns if number % 2 else reversed(turns):
            started = time.perf_counter()
            await run()
            seconds.append(time.perf_counter() - started)
            await server.wait_until_idle()
        log(f"round {number} of {rounds}: server {by_server[-1]:.2f} s, command {by_command[-1]:.2f} s")
    ours, theirs = statistics.median(by_server[1:]), statistics.median(by_command[1:])
    verdict = "met" if ours / theirs <= OVERHEAD_GOAL else "**missed**"
    print(f"\nOverhead, {SIZE}, medians of {rounds} rounds:\n\n| | s |\n|---|---|")
    print(f"| `vmafx score` | {theirs:.3f} |\n| `POST /v1/score` | {ours:.3f} |")
    print(f"| ratio (goal: at most {OVERHEAD_GOAL}) | {ours / theirs:.3f}: {verdict} |")


async def requests(port: int, path: str, body: bytes, seconds: float) -> Rate:
    """Send the same request over and over, on CONNECTIONS connections."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    message, times, until = head.encode() + body, list[float](), time.perf_counter() + seconds

    async def client() -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        while (started := time.perf_counter()) < until:
            writer.write(message)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not head.startswith(b"http/1.1 200"):
                raise SystemExit(f"unexpected answer: {head[:200]!r}")
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            await reader.readexactly(length)
            times.append(time.perf_counter() - started)
        writer.close()

    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
    times.sort()
    return Rate(len(times) / seconds, times[len(times) // 2] * 1000, times[int(len(times) * 0.99)] * 1000)


async def cached(server: Server, reference: Path, distorted: Path, rounds: int) -> None:
    request = {"reference": str(reference), "distorted": str(distorted)}
    body = json.dumps(request).encode()
    await server.score(request)
    answer = await server.score(request)
    if not json.loads(answer)["cached"]:
        raise SystemExit("the answer is not cached")
    port = free_port()
    bare = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.serve", "--bare", str(port), stdin=subprocess.PIPE
    )
    assert bare.stdin is not None
    bare.stdin.write(answer)
    bare.stdin.close()
    async with aiohttp.ClientSession(f"http://{HOST}:{port}") as session:
        await _ready(session, "/ready")
    runs: dict[str, list[Rate]] = {"bare handler": [], "`vmafx serve`": []}
    ports = {"bare handler": (port, "/"), "`vmafx serve`": (server.port, "/v1/score")}
    try:
        for number in range(rounds):
            for name in runs if number % 2 else reversed(runs):
                runs[name].append(await requests(*ports[name], body, 5.0))
                log(f"cached, round {number + 1}: {name} {runs[name][-1].per_second:.0f} requests/s")
    finally:
        bare.terminate()
        await bare.wait()
    print(f"\nCached answers of {len(answer):,} bytes, {CONNECTIONS} connections, medians of {rounds} rounds:\n")
    print("| | requests/s | p50 ms | p99 ms |\n|---|---|---|---|")
    medians = {name: _median(rates) for name, rates in runs.items()}
    for name, rate in medians.items():
        print(f"| {name} | {rate.per_second:,.0f} | {rate.p50_ms:.2f} | {rate.p99_ms:.2f} |")
    ratio = medians["`vmafx serve`"].per_second / medians["bare handler"].per_second
    print(f"| ratio (goal: at least {RATE_GOAL}) | {ratio:.2f}: {'met' if ratio >= RATE_GOAL else '**missed**'} | | |")


def _median(rates: list[Rate]) -> Rate:
    return Rate(*map(statistics.median, zip(*map(msgspec.structs.astuple, rates), strict=True)))


def run_bare(port: int) -> None:
    """The same HTTP library with as little as possible around it."""
    answer = sys.stdin.buffer.read()

    async def respond(request: web.Request) -> web.Response:
        await request.json()
        return web.Response(body=answer, content_type="application/json")

    async def ready(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_post("/", respond)
    app.router.add_get("/ready", ready)
    web.run_app(app, host=HOST, port=port, print=None, access_log=None)


async def uploads(folder: Path) -> None:
    noise = os.urandom(UPLOAD_BYTES)
    async with serving(folder) as server:
        before = memory_mib(server.pid, "VmRSS")

        async def upload() -> int:
            form = aiohttp.FormData()
            for part in ("reference", "distorted"):
                form.add_field(part, noise, filename=f"{part}.mp4", content_type="video/mp4")
            async with server.session.post("/v1/score", data=form, headers={"Prefer": "wait=60"}) as response:
                await response.read()
                return response.status

        statuses = await asyncio.gather(*(upload() for _ in range(UPLOADS)))
        peak = memory_mib(server.pid, "VmHWM")
    seen = ", ".join(f"{statuses.count(status)} times {status}" for status in sorted(set(statuses)))
    total = UPLOADS * 2 * UPLOAD_BYTES >> 20
    print(f"\n{UPLOADS} uploads at once, {total:,} MiB in all ({seen}):\n\n| | MiB |\n|---|---|")
    print(f"| before | {before:.0f} |\n| peak | {peak:.0f} |\n| per upload | {(peak - before) / UPLOADS:.1f} |")


async def page(server: Server) -> None:
    sizes = {}
    for path in FILES:
        async with server.session.get(path) as response:
            sizes[path] = len(await response.read())
    total = sum(sizes.values())
    verdict = "met" if total <= PAGE_GOAL else "**missed**"
    print(f"\nThe page: {total:,} bytes in {len(sizes)} files (goal: at most {PAGE_GOAL:,}): {verdict}")


async def benchmark(rounds: int, frames: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clips = make_clips(folder, SIZE, frames)
        await asyncio.sleep(1.5)  # a file that has just been changed is not answered from memory
        async with serving(folder) as server:
            await overhead(server, *clips, rounds)
            await cached(server, *clips, rounds)
            await page(server)
        await uploads(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--bare", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bare:
        run_bare(arguments.bare)
    else:
        asyncio.run(benchmark(arguments.rounds, arguments.frames))


if __name__ == "__main__":
    main()
