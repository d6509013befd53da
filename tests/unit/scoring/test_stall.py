"""The watch that ends scoring without progress."""

import asyncio
from collections.abc import Callable

import pytest

from vmafx.scoring import stall
from vmafx.scoring.errors import EngineFailure
from vmafx.scoring.stall import StallWatch


class Blocks:
    """Blocks of code that are watched and do nothing; each check finds that the time is up."""

    def __init__(self, watch: StallWatch, count: int) -> None:
        self.ended: list[int] = []
        self.note: dict[int, Callable[[], None]] = {}
        self._watch = watch
        self._tasks = [asyncio.create_task(self._run(number)) for number in range(count)]

    async def _run(self, number: int) -> None:
        with pytest.raises(EngineFailure, match="scoring stalled"):
            async with self._watch.watch() as self.note[number]:
                await asyncio.Event().wait()
        self.ended.append(number)

    async def check(self) -> list[int]:
        for _ in range(5):
            await asyncio.sleep(0)
        self._watch._check()
        for _ in range(5):
            await asyncio.sleep(0)
        return self.ended


@pytest.fixture(autouse=True)
def _no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall, "STALL_TIMEOUT", 0.0)
    monkeypatch.setattr(stall, "CHECK_INTERVAL", 1e6)


async def test_one_is_ended_and_then_all_if_none_goes_on() -> None:
    with StallWatch() as watch:
        blocks = Blocks(watch, 3)
        assert await blocks.check() == [0]
        assert await blocks.check() == [0, 1, 2]
        assert await blocks.check() == [0, 1, 2]


async def test_one_that_goes_on_is_not_ended_with_the_others() -> None:
    with StallWatch() as watch:
        blocks = Blocks(watch, 3)
        assert await blocks.check() == [0]
        blocks.note[1]()
        assert await blocks.check() == [0, 2]
        assert await blocks.check() == [0, 2, 1]
