"""FairQueue: callers take turns, nothing is lost, and positions come true."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.auth.fair_queue import FairQueue
from vmafx.http.errors import StatusError

CALLERS = ("ann", "bob", "eve")
Step = tuple[str, str]
steps = st.lists(st.tuples(st.sampled_from(("put", "get", "remove")), st.sampled_from(CALLERS)), max_size=60)


class Item:
    def __init__(self, caller: str) -> None:
        self.caller = caller


async def drain(queue: FairQueue[Item]) -> list[Item]:
    return [await queue.get() for _ in range(len(queue))]


def filled(*callers: str) -> tuple[FairQueue[Item], list[Item]]:
    queue: FairQueue[Item] = FairQueue(100)
    items = [Item(caller) for caller in callers]
    for item in items:
        queue.put(item.caller, item)
    return queue, items


@given(steps)
async def test_nothing_is_lost_and_items_of_a_caller_keep_their_order(done: list[Step]) -> None:
    queue: FairQueue[Item] = FairQueue(100)
    waiting: list[Item] = []
    for action, caller in done:
        own = [item for item in waiting if item.caller == caller]
        if action == "put":
            waiting.append(Item(caller))
            queue.put(caller, waiting[-1])
        elif action == "get" and waiting:
            item = await queue.get()
            assert item is next(one for one in waiting if one.caller == item.caller)
            waiting.remove(item)
        elif action == "remove" and own:
            assert queue.remove(caller, own[len(own) // 2])
            waiting.remove(own[len(own) // 2])
        assert len(queue) == len(waiting)
    assert set(await drain(queue)) == set(waiting)


@given(steps)
async def test_positions_are_the_order_in_which_items_come(done: list[Step]) -> None:
    queue, _ = filled()
    waiting: list[Item] = []
    for action, caller in done:
        if action == "put":
            waiting.append(Item(caller))
            queue.put(caller, waiting[-1])
        elif waiting:
            waiting.remove(await queue.get())
    positions = {item: queue.position(item.caller, item) for item in waiting}
    assert [positions[item] for item in await drain(queue)] == list(range(len(waiting)))


@given(st.lists(st.sampled_from(CALLERS), min_size=1, max_size=40))
async def test_no_caller_gets_two_turns_while_another_waits(callers: list[str]) -> None:
    queue, _ = filled(*callers)
    left = Counter(callers)
    turns: Counter[str] = Counter()
    for item in await drain(queue):
        assert turns[item.caller] <= min(turns[other] for other in left if left[other])
        turns[item.caller] += 1
        left[item.caller] -= 1


@given(st.lists(st.sampled_from(CALLERS), max_size=60), st.integers(2, 20))
def test_there_is_always_room_for_another_caller_until_the_queue_is_full(callers: list[str], limit: int) -> None:
    queue: FairQueue[Item] = FairQueue(limit)
    held: Counter[str] = Counter()
    for caller in callers:
        with suppress(StatusError):
            queue.check_room(caller, 7.0)
            queue.put(caller, Item(caller))
            held[caller] += 1
    assert len(queue) <= limit
    if len(held) == 1:
        assert len(queue) <= (limit + 1) // 2


def test_the_error_says_whose_jobs_fill_the_queue() -> None:
    queue: FairQueue[Item] = FairQueue(2)
    queue.put("ann", Item("ann"))
    with pytest.raises(StatusError, match="1 of your jobs are waiting"):
        queue.check_room("ann", 1)
    queue.put("bob", Item("bob"))
    with pytest.raises(StatusError, match="the queue is full") as raised:
        queue.check_room("eve", 7)
    assert (raised.value.code, raised.value.retry_after) == ("RESOURCE_EXHAUSTED", 7)


async def test_whoever_waits_gets_the_next_item() -> None:
    queue, _ = filled()
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for _ in range(3):
        queue.put("ann", Item("ann"))
    items = await asyncio.gather(*waiting)
    assert len(set(items)) == 3


@pytest.mark.parametrize("woken", [True, False])
async def test_a_cancelled_wait_loses_no_item(woken: bool) -> None:
    queue, _ = filled()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    item = Item("ann")
    if woken:
        queue.put("ann", item)
        first.cancel()
    else:
        first.cancel()
        await asyncio.sleep(0)
        queue.put("ann", item)
    assert await second is item
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_an_item_that_is_removed_before_it_is_taken_is_not_taken() -> None:
    queue, _ = filled()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    gone, item = Item("ann"), Item("bob")
    queue.put("ann", gone)
    assert queue.remove("ann", gone)
    assert not queue.remove("ann", gone)
    assert queue.position("ann", gone) is None
    await asyncio.sleep(0)
    queue.put("bob", item)
    assert await waiting is item
