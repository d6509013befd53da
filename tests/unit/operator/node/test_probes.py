"""The probe loop against a real HTTP server, over hours of virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from aiohttp import web

from tests.support.virtual import run
from vmafx.clock import loop_time
from vmafx.operator.node.decide import PROBE_INTERVAL
from vmafx.operator.node.probes import RETRY_AFTER, TIMEOUT, ControllerProber


class Controllers:
    """The controllers of all namespaces behind one port: /NAMESPACE/healthz."""

    def __init__(self) -> None:
        self.status: dict[str, int] = {}
        self.hanging: set[str] = set()
        self.asked: list[tuple[str, float]] = []

    async def healthz(self, request: web.Request) -> web.Response:
        namespace = request.match_info["namespace"]
        self.asked.append((namespace, loop_time()))
        if namespace in self.hanging:
            await asyncio.sleep(3600)
        return web.Response(status=self.status.get(namespace, 200))

    def times(self, namespace: str) -> list[float]:
        return [time for asked, time in self.asked if asked == namespace]


@asynccontextmanager
async def probing(namespaces: set[str]) -> AsyncIterator[tuple[Controllers, ControllerProber, list[tuple[str, float]]]]:
    """A running prober, the controllers that it probes, and the changes that it reported, with their times."""
    controllers, changes = Controllers(), list[tuple[str, float]]()
    app = web.Application()
    app.router.add_get("/{namespace}/healthz", controllers.healthz)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}/{{namespace}}/"
    prober = ControllerProber(address, lambda: namespaces, lambda namespace: changes.append((namespace, loop_time())))
    loop = asyncio.create_task(prober.run())
    try:
        yield controllers, prober, changes
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await runner.cleanup()


def about(time: float) -> object:
    return pytest.approx(time, abs=0.5)


def test_a_controller_is_probed_every_30_seconds_and_only_changes_are_reported() -> None:
    async def hour() -> None:
        async with probing({"a", "b"}) as (controllers, prober, changes):
            start = loop_time()
            await asyncio.sleep(3600)
            for namespace in ("a", "b"):
                times = controllers.times(namespace)
                assert len(times) == pytest.approx(3600 / PROBE_INTERVAL, abs=1)
                assert all(later - earlier == about(PROBE_INTERVAL) for earlier, later in pairwise(times))
            assert sorted(changes) == [("a", about(start)), ("b", about(start))]
            controllers.status["a"] = 500
            before = loop_time()
            await asyncio.sleep(PROBE_INTERVAL + 1)
            assert [namespace for namespace, _ in changes[2:]] == ["a"]
            assert changes[2][1] - before <= PROBE_INTERVAL + 1
            lost = prober.latest("a")
            assert lost is not None
            assert not lost.ok
            assert lost.detail.endswith("/a/healthz returned 500")
            del controllers.status["a"]
            await asyncio.sleep(RETRY_AFTER + 1)
            assert [namespace for namespace, _ in changes[3:]] == ["a"]
            back, other = prober.latest("a"), prober.latest("b")
            assert back is not None
            assert other is not None
            assert back.ok
            assert other.ok
            assert other.ok_for(loop_time()) == about(loop_time() - start)  # without interruption
            assert back.ok_for(loop_time()) <= RETRY_AFTER + 1

    run(hour())


def test_a_controller_that_hangs_fails_after_the_timeout_and_delays_no_other() -> None:
    async def body() -> None:
        async with probing({"quick", "slow"}) as (controllers, prober, changes):
            controllers.hanging.add("slow")
            start = loop_time()
            await asyncio.sleep(TIMEOUT + 1)
            assert changes == [("quick", about(start)), ("slow", about(start + TIMEOUT))]
            slow = prober.latest("slow")
            assert slow is not None
            assert slow.detail.endswith("did not answer within 5 s")
            await asyncio.sleep(10 * PROBE_INTERVAL)
            assert len(changes) == 2
            assert len(controllers.times("quick")) == 11
            assert all(
                later - earlier == about(TIMEOUT + RETRY_AFTER)
                for earlier, later in pairwise(controllers.times("slow"))
            )

    run(body())


def test_a_new_namespace_is_probed_at_once_and_a_removed_one_no_more() -> None:
    async def body() -> None:
        namespaces = {"old"}
        async with probing(namespaces) as (controllers, prober, changes):
            await asyncio.sleep(10)
            namespaces.add("new")
            assert prober.latest("new") is None  # this wakes the loop
            await asyncio.sleep(1)
            assert changes[-1] == ("new", about(loop_time() - 1))
            assert len(controllers.times("old")) == 1
            namespaces.remove("old")
            await asyncio.sleep(10 * PROBE_INTERVAL)
            assert len(controllers.times("old")) == 1
            assert prober.latest("old") is None

    run(body())
