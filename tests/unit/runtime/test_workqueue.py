"""The work queue, in virtual time."""

import asyncio
import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.virtual import run
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.workqueue import FIRST_DELAY, MAX_DELAY, QueueClosed, WorkQueue


def queue(jitter: float = 0.5) -> WorkQueue[str]:
    return WorkQueue(Metrics().queue("test"), jitter=lambda: jitter)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_key_waits_once_however_often_it_is_added() -> None:
    async def scenario() -> None:
        keys = queue()
        for key in "abab":
            keys.add(key)
        assert [await keys.get(), await keys.get(), len(keys)] == ["a", "b", 0]

    run(scenario())


def test_a_key_added_while_a_worker_has_it_is_taken_once_more_when_that_worker_is_done() -> None:
    async def scenario() -> None:
        keys = queue()
        keys.add("a")
        assert await keys.get() == "a"
        keys.add("a")
        keys.add("a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await keys.get()
        keys.done("a")
        assert await keys.get() == "a"
        keys.done("a")
        assert len(keys) == 0

    run(scenario())


def test_the_shortest_delay_of_a_key_counts() -> None:
    async def scenario() -> None:
        keys, start = queue(), now()
        keys.add_after("late", 60)
        keys.add_after("soon", 10)
        keys.add_after("late", 30)  # shorter: replaces the first
        keys.add_after("late", 90)  # longer: has no effect
        keys.add_after("at once", 0)
        order = [(await keys.get(), round(now() - start)) for _ in range(3)]
        assert order == [("at once", 0), ("soon", 10), ("late", 30)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await keys.get()  # the longer delays were dropped

    run(scenario())


def test_adding_a_key_cancels_its_delay() -> None:
    async def scenario() -> None:
        keys = queue()
        keys.add_after("a", 50)
        keys.add("a")
        assert await keys.get() == "a"
        keys.done("a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await keys.get()

    run(scenario())


def test_the_delay_of_a_rate_limited_key_grows_until_it_is_forgotten() -> None:
    async def scenario() -> None:
        keys, delays = queue(), []
        for _ in range(20):
            before = now()
            keys.add_rate_limited("a")
            keys.done(await keys.get())
            delays.append(round(now() - before, 6))
        assert delays[0] == pytest.approx(FIRST_DELAY)
        assert delays[1] == pytest.approx(2 * FIRST_DELAY)
        assert delays == sorted(delays)
        assert delays[-1] == pytest.approx(MAX_DELAY)
        keys.forget("a")
        before = now()
        keys.add_rate_limited("a")
        await keys.get()
        assert now() - before == pytest.approx(FIRST_DELAY)

    run(scenario())


def test_a_closed_queue_raises_once_it_is_empty() -> None:
    async def scenario() -> None:
        keys = queue()
        idle = asyncio.create_task(keys.get())
        await asyncio.sleep(0)
        keys.add("a")
        assert await idle == "a"
        keys.add("b")
        waiting = [asyncio.create_task(keys.get()) for _ in range(3)]
        keys.add_after("never", 10)
        keys.close()
        keys.add("refused")
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert sorted(str(type(result).__name__) for result in results) == ["QueueClosed", "QueueClosed", "str"]
        keys.done("a")
        keys.done("b")
        with pytest.raises(QueueClosed):
            await keys.get()

    run(scenario())


async def take_all(keys: WorkQueue[str]) -> str:
    """All ready keys, in order, those of low priority in brackets."""
    keys.close()
    taken = ["", ""]
    for low in (False, True):
        with suppress(QueueClosed):
            while True:
                taken[low] += await keys.get(low=low)
    return f"{taken[0]}({taken[1]})"


def test_each_lane_has_its_keys_in_order() -> None:
    async def scenario() -> None:
        keys = queue()
        for key in "xyz":
            keys.add(key, low=True)
        keys.add("a")
        keys.add("z")  # moves to the normal lane
        keys.add("a", low=True)  # does not move it back
        assert len(keys) == 4
        assert await take_all(keys) == "az(xy)"

    run(scenario())


def test_a_queue_is_busy_while_a_key_of_normal_priority_is_ready_or_a_worker_has_it() -> None:
    async def scenario() -> None:
        keys = queue()
        for key in "yz":
            keys.add(key, low=True)
        assert await keys.get(low=True) == "y"
        assert not keys.is_busy()
        keys.add("x")
        assert keys.is_busy()
        assert await keys.get() == "x"
        assert keys.is_busy()
        keys.done("x")
        assert not keys.is_busy()

    run(scenario())


def test_a_key_wakes_a_worker_of_its_lane() -> None:
    async def scenario() -> None:
        keys = queue()
        idle, low = asyncio.create_task(keys.get()), asyncio.create_task(keys.get(low=True))
        await asyncio.sleep(0)
        keys.add("x", low=True)
        assert await low == "x"
        assert not idle.done()
        keys.add("y", low=True)
        keys.add("y")  # moves to the normal lane
        assert await idle == "y"

    run(scenario())


@pytest.mark.parametrize(("again", "order"), [((True,), "a(x)"), ((False,), "xa()"), ((True, False), "xa()")])
def test_a_key_added_while_a_worker_has_it_gets_the_lane_it_was_added_to(again: tuple[bool, ...], order: str) -> None:
    async def scenario() -> None:
        keys = queue()
        keys.add("x")
        assert await keys.get() == "x"
        for low in again:
            keys.add("x", low=low)
        keys.done("x")
        keys.add("a")
        assert await take_all(keys) == order

    run(scenario())


def test_a_key_leaves_the_low_priority_lane_when_its_delay_ends() -> None:
    async def scenario() -> None:
        for first in (True, False):
            keys = queue()
            if first:
                keys.add("x", low=True)
            keys.add_after("x", 10)
            if not first:
                keys.add("x", low=True)
            await asyncio.sleep(5)
            keys.add("a")
            await asyncio.sleep(6)
            keys.add("b")
            assert await take_all(keys) == "axb()"

    run(scenario())


def test_taking_a_low_priority_key_cancels_its_delay() -> None:
    async def scenario() -> None:
        keys = queue()
        keys.add_after("x", 10)
        keys.add("x", low=True)
        assert await keys.get(low=True) == "x"
        keys.done("x")
        await asyncio.sleep(20)
        assert len(keys) == 0

    run(scenario())


def test_a_closed_queue_empties_both_lanes() -> None:
    async def scenario() -> None:
        keys = queue()
        keys.add("x", low=True)
        keys.add("a")
        keys.close()
        keys.add("y", low=True)
        assert await take_all(keys) == "a(x)"

    run(scenario())


@given(seed=st.integers(0, 10_000))
def test_cancelled_workers_lose_no_key_and_a_key_never_has_two_workers(seed: int) -> None:
    """Workers are cancelled, and keys added, at random times."""

    async def scenario() -> None:
        rng, keys = random.Random(seed), queue()
        in_progress: set[str] = set()
        finished: dict[str, float] = {}
        added: dict[str, float] = {}

        async def worker(*, low: bool) -> None:
            while True:
                key = await keys.get(low=low)
                assert key not in in_progress
                in_progress.add(key)
                started = now()
                try:
                    await asyncio.sleep(rng.random())
                    finished[key] = started
                except asyncio.CancelledError:
                    keys.add(key)  # as a reconcile loop does after a failure
                    raise
                finally:
                    in_progress.discard(key)
                    keys.done(key)

        workers = [asyncio.create_task(worker(low=number % 2 == 0)) for number in range(4)]
        for _ in range(60):
            key = rng.choice("abcdefgh")
            added[key] = now()
            if rng.random() < 0.7:
                keys.add(key, low=rng.random() < 0.5)
            else:
                keys.add_after(key, rng.random())
            if rng.random() < 0.4:
                victim = rng.randrange(4)
                workers[victim].cancel()
                workers[victim] = asyncio.create_task(worker(low=victim % 2 == 0))
            await asyncio.sleep(rng.random() / 4 if rng.random() < 0.5 else 0)
        await asyncio.sleep(100)
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        # Every key was processed after it was last added.
        assert {key for key in added if finished.get(key, -1) < added[key]} == set()

    run(scenario())
