"""The queue of keys, in virtual time."""

import asyncio
import random

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


def test_a_key_that_is_worked_on_is_given_to_nobody_else_and_comes_again_once() -> None:
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


def test_delays() -> None:
    async def scenario() -> None:
        keys, start = queue(), now()
        keys.add_after("late", 60)
        keys.add_after("soon", 10)
        keys.add_after("late", 30)  # the shorter counts
        keys.add_after("late", 90)  # and goes on counting
        keys.add_after("at once", 0)
        order = [(await keys.get(), round(now() - start)) for _ in range(3)]
        assert order == [("at once", 0), ("soon", 10), ("late", 30)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await keys.get()  # the longer delays are gone

    run(scenario())


def test_adding_a_key_makes_its_delay_pointless() -> None:
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


def test_patience_grows_with_every_failure_until_the_key_does_well() -> None:
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


def test_a_closed_queue_hands_out_what_it_has_and_ends() -> None:
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


async def taken(keys: WorkQueue[str]) -> str:
    """All that is ready, in the order in which it is handed out."""
    found = ""
    while len(keys):
        found += await keys.get()
    return found


def test_the_lower_lane_has_its_turn_when_nothing_else_waits() -> None:
    async def scenario() -> None:
        keys = queue()
        for key in "xyz":
            keys.add(key, low=True)
        keys.add("a")
        keys.add("z")  # as urgent as the others now
        keys.add("a", low=True)  # which takes nothing back
        assert len(keys) == 4
        assert await taken(keys) == "azxy"

    run(scenario())


def test_who_waits_for_work_is_called_for_the_lower_lane_too() -> None:
    async def scenario() -> None:
        keys = queue()
        idle = asyncio.create_task(keys.get())
        await asyncio.sleep(0)
        keys.add("x", low=True)
        assert await idle == "x"

    run(scenario())


@pytest.mark.parametrize(("again", "order"), [((True,), "ax"), ((False,), "xa"), ((True, False), "xa")])
def test_a_key_that_is_worked_on_comes_again_in_the_lane_it_was_added_to(again: tuple[bool, ...], order: str) -> None:
    async def scenario() -> None:
        keys = queue()
        keys.add("x")
        assert await keys.get() == "x"
        for low in again:
            keys.add("x", low=low)
        keys.done("x")
        keys.add("a")
        assert await taken(keys) == order

    run(scenario())


def test_a_delay_that_is_over_lifts_a_key_out_of_the_lower_lane() -> None:
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
            assert await taken(keys) == "axb"

    run(scenario())


def test_a_key_taken_from_the_lower_lane_has_no_delay_left() -> None:
    async def scenario() -> None:
        keys = queue()
        keys.add_after("x", 10)
        keys.add("x", low=True)
        assert await taken(keys) == "x"
        keys.done("x")
        await asyncio.sleep(20)
        assert len(keys) == 0

    run(scenario())


def test_a_closed_queue_hands_out_both_lanes() -> None:
    async def scenario() -> None:
        keys = queue()
        keys.add("x", low=True)
        keys.add("a")
        keys.close()
        keys.add("y", low=True)
        assert await taken(keys) == "ax"
        with pytest.raises(QueueClosed):
            await keys.get()

    run(scenario())


@given(seed=st.integers(0, 10_000))
def test_whatever_is_cancelled_no_key_is_lost_and_none_is_worked_on_twice_at_once(seed: int) -> None:
    """Workers that are cancelled at random moments, while keys are added at random moments."""

    async def scenario() -> None:
        dice, keys = random.Random(seed), queue()
        in_hand: set[str] = set()
        finished: dict[str, float] = {}
        added: dict[str, float] = {}

        async def worker() -> None:
            while True:
                key = await keys.get()
                assert key not in in_hand
                in_hand.add(key)
                started = now()
                try:
                    await asyncio.sleep(dice.random())
                    finished[key] = started
                except asyncio.CancelledError:
                    keys.add(key)  # as a controller's failed attempt would
                    raise
                finally:
                    in_hand.discard(key)
                    keys.done(key)

        workers = [asyncio.create_task(worker()) for _ in range(4)]
        for _ in range(60):
            key = dice.choice("abcdefgh")
            added[key] = now()
            if dice.random() < 0.7:
                keys.add(key, low=dice.random() < 0.5)
            else:
                keys.add_after(key, dice.random())
            if dice.random() < 0.4:
                victim = dice.randrange(4)
                workers[victim].cancel()
                workers[victim] = asyncio.create_task(worker())
            await asyncio.sleep(dice.random() / 4 if dice.random() < 0.5 else 0)
        await asyncio.sleep(100)
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        # Every key was taken up at or after the last time it was asked for.
        assert {key for key in added if finished.get(key, -1) < added[key]} == set()

    run(scenario())
