"""The probe loop, hours of it: against a real HTTP server in the same loop, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from aiohttp import web

from tests.support.virtual import run
from vmafx.clock import loop_time
from vmafx.operator.node.decide import PROBE_INTERVAL as EVERY
from vmafx.operator.node.probes import RETRY_AFTER, TIMEOUT, ControllerProber


class Controllers:
    """The controllers of all namespaces behind one port: /NAMESPACE/healthz."""

    def __init__(self) -> None:
        self.status: dict[str, int] = {}
        self.hangs: set[str] = set()
        self.asked: list[tuple[str, float]] = []

    async def healthz(self, request: web.Request) -> web.Response:
        namespace = request.match_info["namespace"]
        self.asked.append((namespace, loop_time()))
        if namespace in self.hangs:
            await asyncio.sleep(3600)
        return web.Response(status=self.status.get(namespace, 200))

    def times(self, namespace: str) -> list[float]:
        return [time for asked, time in self.asked if asked == namespace]


@asynccontextmanager
async def probing(namespaces: set[str]) -> AsyncIterator[tuple[Controllers, ControllerProber, list[tuple[str, float]]]]:
    """A running loop, what it asks, and what it told and when."""
    controllers, told = Controllers(), list[tuple[str, float]]()
    app = web.Application()
    app.router.add_get("/{namespace}/healthz", controllers.healthz)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}/{{namespace}}/"
    probes = ControllerProber(address, lambda: namespaces, lambda namespace: told.append((namespace, loop_time())))
    loop = asyncio.create_task(probes.run())
    try:
        yield controllers, probes, told
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await runner.cleanup()


def about(time: float) -> object:
    return pytest.approx(time, abs=0.5)


def test_one_question_every_30_seconds_and_a_word_only_on_change() -> None:
    async def hour() -> None:
        async with probing({"a", "b"}) as (controllers, probes, told):
            start = loop_time()
            await asyncio.sleep(3600)
            for namespace in ("a", "b"):
                times = controllers.times(namespace)
                assert len(times) == pytest.approx(3600 / EVERY, abs=1)
                assert all(later - earlier == about(EVERY) for earlier, later in pairwise(times))
            assert sorted(told) == [("a", about(start)), ("b", about(start))]
            controllers.status["a"] = 500
            before = loop_time()
            await asyncio.sleep(EVERY + 1)
            assert [namespace for namespace, _ in told[2:]] == ["a"]
            assert told[2][1] - before <= EVERY + 1
            lost = probes.latest("a")
            assert lost is not None
            assert not lost.ok
            assert lost.detail.endswith("/a/healthz says 500")
            del controllers.status["a"]
            await asyncio.sleep(RETRY_AFTER + 1)
            assert [namespace for namespace, _ in told[3:]] == ["a"]
            back, there = probes.latest("a"), probes.latest("b")
            assert back is not None
            assert there is not None
            assert back.ok
            assert there.ok
            assert there.ok_for(loop_time()) == about(loop_time() - start)  # without a break
            assert back.ok_for(loop_time()) <= RETRY_AFTER + 1

    run(hour())


def test_a_controller_that_hangs_is_told_after_the_timeout_and_delays_no_other() -> None:
    async def body() -> None:
        async with probing({"quick", "slow"}) as (controllers, probes, told):
            controllers.hangs.add("slow")
            start = loop_time()
            await asyncio.sleep(TIMEOUT + 1)
            assert told == [("quick", about(start)), ("slow", about(start + TIMEOUT))]
            slow = probes.latest("slow")
            assert slow is not None
            assert slow.detail.endswith("gave no answer within 5 s")
            await asyncio.sleep(10 * EVERY)
            assert len(told) == 2
            assert len(controllers.times("quick")) == 11
            assert all(
                later - earlier == about(TIMEOUT + RETRY_AFTER)
                for earlier, later in pairwise(controllers.times("slow"))
            )

    run(body())


def test_a_new_namespace_is_asked_at_once_and_one_that_went_no_more() -> None:
    async def body() -> None:
        there = {"old"}
        async with probing(there) as (controllers, probes, told):
            await asyncio.sleep(10)
            there.add("new")
            assert probes.latest("new") is None  # asking is what wakes the loop
            await asyncio.sleep(1)
            assert told[-1] == ("new", about(loop_time() - 1))
            assert len(controllers.times("old")) == 1
            there.remove("old")
            await asyncio.sleep(10 * EVERY)
            assert len(controllers.times("old")) == 1
            assert probes.latest("old") is None

    run(body())
