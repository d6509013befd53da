"""Name lookups against a resolver that hangs: they share threads by name, and delay nothing else."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from tests.support.waiting import eventually
from vmafx.kube.connect import DialTarget, ServerAddress, dial
from vmafx.kube.fetch import LOOKUPS, fetch
from vmafx.kube.http1 import CallConnection
from vmafx.kube.lookup import NameLookups

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class Resolver:
    """Resolves names to 127.0.0.1; those that start with "hanging" only after `release`."""

    def __init__(self) -> None:
        self.started: Counter[str] = Counter()
        self.release = threading.Event()
        self._real = socket.getaddrinfo

    def __call__(self, host: str, port: int, *, flags: int = 0, **options: Any) -> Any:
        if not flags & socket.AI_NUMERICHOST:
            self.started[host] += 1
            if host.startswith("hanging"):
                self.release.wait()
            if host.endswith("unknown"):
                raise socket.gaierror(socket.EAI_NONAME, "unknown name")
            host = "127.0.0.1"
        return self._real(host, port, flags=flags, **options)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    yield resolver
    resolver.release.set()


async def connected(port: int) -> bool:
    """Whether the API server's name is found and it accepts a connection."""
    connection = CallConnection()
    await dial(DialTarget(ServerAddress("api-server", port)), connection)
    connection.abort()
    return True


async def test_names_of_other_servers_do_not_delay_the_api_server(resolver: Resolver) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    fetches = [asyncio.create_task(fetch(f"http://hanging-{number}:{port}/")) for number in range(40)]
    await eventually(lambda: sum(resolver.started.values()) >= 8, "all threads for other servers are busy")
    assert await connected(port)
    assert sum(resolver.started.values()) == 8 + 1
    for task in fetches:
        task.cancel()
    await asyncio.gather(*fetches, return_exceptions=True)
    resolver.release.set()
    await LOOKUPS.look_up("last", port)
    assert sum(resolver.started.values()) == 8 + 2  # those that no caller waits for are dropped
    server.close()


@pytest.mark.parametrize("new_loop", LOOPS)
def test_lookups_of_one_name_share_a_thread_also_if_a_caller_leaves(
    resolver: Resolver, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def look_up() -> None:
        lookups = NameLookups(2)
        tasks = [asyncio.create_task(lookups.look_up("hanging", 80)) for _ in range(5)]
        await eventually(lambda: resolver.started["hanging"], "the lookup runs")
        tasks[0].cancel()
        assert (await lookups.look_up("other", 80))[0][4] == ("127.0.0.1", 80)
        resolver.release.set()
        assert {addresses[0][4] for addresses in await asyncio.gather(*tasks[1:])} == {("127.0.0.1", 80)}
        assert (tasks[0].cancelled(), resolver.started) == (True, {"hanging": 1, "other": 1})
        await lookups.look_up("hanging", 80)
        assert resolver.started["hanging"] == 2  # results are not kept

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(look_up())


async def test_an_error_reaches_every_caller(resolver: Resolver) -> None:
    lookups = NameLookups(1)
    calls = (lookups.look_up(name, 80) for name in ("hanging-unknown", "hanging-unknown", "\ud800"))
    results = asyncio.gather(*calls, return_exceptions=True)
    await eventually(lambda: resolver.started, "a lookup runs")
    resolver.release.set()
    assert [isinstance(error, OSError) for error in await results] == [True, True, False]
    assert (await lookups.look_up("other", 80))[0][4] == ("127.0.0.1", 80)  # the thread goes on


HANGING = """
import asyncio, socket, threading
from vmafx.kube.fetch import fetch

def hang(*_, flags=0, **options):
    if flags:
        raise socket.gaierror()
    threading.Event().wait()

async def main():
    try:
        async with asyncio.timeout(0.1):
            await fetch("http://name/")
    except TimeoutError:
        print("no reply")

socket.getaddrinfo = hang
asyncio.run(main())
"""


def test_a_process_ends_although_a_lookup_hangs() -> None:
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("no reply\n", "")
