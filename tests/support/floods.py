"""Floods of calls to a controller on this machine, each from a process of its own: `python -m tests.support.floods`.

The plan is the first line of the process's input, as JSON. The process floods until its input ends, at most for
MAX_SECONDS, and writes its counts as JSON lines. It yields the CPU to others: a flood is to fill the controller, not
the cores of this machine.
"""

import asyncio
import itertools
import os
import sys
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any
from uuid import uuid4

import aiohttp
import grpc
import msgspec
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.support.project import ROOT
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.controller_pb2_grpc import VmafxControllerStub

LOCAL = "127.0.0.1"
CONNECTIONS, STREAMS = 40, 256  # STREAMS is what the server allows per connection
CALLERS = 256  # calls at the same time, of floods with few connections
MAX_SECONDS = 300.0
CALLS_PER_SECOND = 500  # new calls: what is held and refused is tested, not how many calls a machine can serve
NICENESS = 10

Call = Callable[[], Awaitable[str]]  # makes one call, and returns how it ended


class FloodPlan(msgspec.Struct, frozen=True):
    """`token` is that of the caller; `node` and `session` are those of an agent that floods."""

    kind: str
    grpc: int
    http: int
    token: str = ""
    node: str = ""
    session: str = ""


class FloodCounts(msgspec.Struct):
    """Calls that are open, and those that have ended, by kind and status."""

    held: int = 0
    ended: dict[str, int] = {}

    def total(self, text: str) -> int:
        """The ended calls whose kind and status contain the text."""
        return sum(count for name, count in self.ended.items() if text in name)


class Flood:
    """A process that floods; `counts` are its latest."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.counts = FloodCounts()

    async def follow(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.counts = msgspec.json.decode(line, type=FloodCounts)

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None


@asynccontextmanager
async def flooding(plan: FloodPlan) -> AsyncIterator[Flood]:
    """Flood during the `with`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.floods", cwd=ROOT, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    flood = Flood(process)
    following = asyncio.create_task(flood.follow())
    try:
        process.stdin.write(msgspec.json.encode(plan) + b"\n")
        yield flood
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(30):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await following


class _Flooder:
    def __init__(self, plan: FloodPlan, stack: AsyncExitStack) -> None:
        self._plan, self._stack = plan, stack
        self._metadata = _bearer(plan.token)
        self._numbers = itertools.count()
        self._ended: Counter[str] = Counter()
        self._held = 0

    def write_counts(self) -> None:
        counts = FloodCounts(self._held, dict(self._ended))
        sys.stdout.write(f"{msgspec.json.encode(counts).decode()}\n")
        sys.stdout.flush()

    async def run(self) -> None:
        """Repeat each call of the flood when it has ended."""
        floods = {
            "strangers": self._strangers,
            "pulls": self._pulls,
            "tokens": self._tokens,
            "ids": self._ids,
            "streams": self._streams,
            "reports": self._reports,
        }
        calls = await floods[self._plan.kind]()
        pause = len(calls) / CALLS_PER_SECOND
        await asyncio.gather(*(self._repeat(call, pause) for call in calls))

    async def _repeat(self, call: Call, pause: float) -> None:
        while True:
            self._held += 1
            try:
                ended = await call()
            finally:
                self._held -= 1
            self._ended[ended] += 1
            await asyncio.sleep(pause)

    async def _channel(self) -> grpc.aio.Channel:
        options = [("grpc.use_local_subchannel_pool", 1)]
        address = f"{LOCAL}:{self._plan.grpc}"
        return await self._stack.enter_async_context(grpc.aio.insecure_channel(address, options))

    async def _http(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=0)
        session = aiohttp.ClientSession(f"http://{LOCAL}:{self._plan.http}", connector=connector)
        return await self._stack.enter_async_context(session)

    async def _strangers(self) -> list[Call]:
        """Calls without credentials: watches of health, reflection, and calls whose message is not sent."""
        calls: list[Call] = []
        for _ in range(CONNECTIONS):
            channel = await self._channel()
            kinds = (_half_open(channel), _watch(channel), _half_open(channel), _reflection(channel))
            calls += itertools.islice(itertools.cycle(kinds), STREAMS)
        return calls

    async def _pulls(self) -> list[Call]:
        """Long polls of one agent, far more than it needs."""
        calls: list[Call] = []
        request = wire.PullWorkRequest(
            node_id=self._plan.node, session_token=self._plan.session, running_job_ids=wire.RunningJobs(),
            wait_seconds=60,
        )  # fmt: skip
        for _ in range(CONNECTIONS):
            stub = VmafxControllerStub(await self._channel())
            calls += [_named("pull", partial(stub.PullWork, request, metadata=self._metadata))] * STREAMS
        return calls

    async def _reports(self) -> list[Call]:
        """Reports of one agent about jobs that do not exist, without their names, and heartbeats with such jobs."""
        stub = VmafxControllerStub(await self._channel())
        me: dict[str, Any] = {"node_id": self._plan.node, "session_token": self._plan.session}

        def report() -> Any:
            request = wire.ReportResultRequest(**me, job_id=f"{uuid4()}-0", final=True, error="none")
            return stub.ReportResult(request, metadata=self._metadata)

        def beat() -> Any:
            running = [wire.RunningJob(id=f"{uuid4()}-0", name="none") for _ in range(64)]
            request = wire.HeartbeatRequest(**me, running_job_ids=wire.RunningJobs(jobs=running))
            return stub.Heartbeat(request, metadata=self._metadata)

        return [_named("report", report), _named("heartbeat", beat)] * (CALLERS // 2)

    async def _tokens(self) -> list[Call]:
        """Invalid tokens, a new one in each call."""
        stub, http = VmafxControllerStub(await self._channel()), await self._http()

        def send() -> Any:
            metadata = _bearer(invalid_token(next(self._numbers)))
            return stub.Heartbeat(wire.HeartbeatRequest(), metadata=metadata)

        async def request() -> str:
            headers = {"Authorization": f"Bearer {invalid_token(next(self._numbers))}"}
            return await _status(http.get("/v1/jobs", headers=headers))

        return [_named("grpc", send), request] * (CALLERS // 2)

    async def _ids(self) -> list[Call]:
        """IDs of jobs that do not exist."""
        stub, http = VmafxControllerStub(await self._channel()), await self._http()

        async def request() -> str:
            headers = {"Authorization": f"Bearer {self._plan.token}"}
            return await _status(http.get(f"/v1/jobs/{uuid4()}", headers=headers))

        def send() -> Any:
            return stub.GetJob(wire.GetJobRequest(job_id=str(uuid4())), metadata=self._metadata)

        return [_named("grpc", send), request] * (CALLERS // 2)

    async def _streams(self) -> list[Call]:
        """Streams of all jobs over HTTP, which are read."""
        http = await self._http()

        async def stream() -> str:
            headers = {"Authorization": f"Bearer {self._plan.token}"}
            timeout = aiohttp.ClientTimeout(total=None)
            return await _status(http.get("/v1/jobs", headers=headers, timeout=timeout))

        return [stream] * CALLERS


def invalid_token(number: int) -> str:
    """A well-formed JWT that only the API server can recognize as invalid."""
    parts = (b'{"alg":"ES256"}', b'{"n":%d}' % number, b"signature")
    return ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def _bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),) if token else ()


def _named(kind: str, send: Callable[[], Any]) -> Call:
    async def call() -> str:
        return f"{kind} {(await send().code()).name}"

    return call


async def _status(request: AbstractAsyncContextManager[aiohttp.ClientResponse]) -> str:
    """Make a request, read the response to its end, and return its status."""
    try:
        async with request as response:
            async for _ in response.content.iter_any():
                pass
    except aiohttp.ClientError as error:
        return f"http {type(error).__name__}"
    return f"http {response.status}"


def _half_open(channel: grpc.aio.Channel) -> Call:
    return _named("half-open", channel.stream_unary("/vmafx.controller.v1.VmafxController/Heartbeat"))


def _watch(channel: grpc.aio.Channel) -> Call:
    health: Any = health_pb2_grpc.HealthStub(channel)
    return _named("watch", lambda: health.Watch(health_pb2.HealthCheckRequest()))


def _reflection(channel: grpc.aio.Channel) -> Call:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[arg-type]
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    return _named("reflection", lambda: stub.ServerReflectionInfo(iter([request])))


async def _main() -> None:
    plan = msgspec.json.decode(sys.stdin.readline(), type=FloodPlan)
    async with AsyncExitStack() as stack:
        flooder = _Flooder(plan, stack)
        running = asyncio.ensure_future(flooder.run())
        end = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_SECONDS):
                while not (running.done() or end.done()):
                    flooder.write_counts()
                    await asyncio.wait({running, end}, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
        flooder.write_counts()
        if running.done():
            running.result()
        os._exit(0)  # the calls end with their connections


if __name__ == "__main__":
    os.nice(NICENESS)
    asyncio.run(_main())
