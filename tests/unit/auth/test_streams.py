"""Streams whose caller is reviewed again and again, in virtual time."""

import asyncio
from collections.abc import AsyncGenerator, Callable

import pytest

from tests.support import virtual
from vmafx.auth.streams import INTERVAL, MAX_AGE, while_authorized
from vmafx.clock import loop_time
from vmafx.http.errors import Code, StatusError


class Stream:
    """A stream with an item every `pace` seconds; `decide` gets the seconds since its start at each review."""

    def __init__(self, pace: float, count: int, decide: Callable[[float], Code | None]) -> None:
        self._pace, self._count, self._decide = pace, count, decide
        self.started = loop_time()
        self.reviews: list[float] = []
        self.items: list[int] = []
        self.closed_at = -1.0

    def _elapsed(self) -> float:
        return round(loop_time() - self.started, 3)

    async def authorize(self) -> None:
        self.reviews.append(self._elapsed())
        if (code := self._decide(self._elapsed())) is not None:
            raise StatusError(code, "no")

    async def _produce(self) -> AsyncGenerator[int]:
        try:
            for number in range(self._count):
                await asyncio.sleep(self._pace)
                yield number
        finally:
            self.closed_at = self._elapsed()

    async def read(self) -> Code | None:
        """Read to the end; return the code of the error that ended it."""
        try:
            async for item in while_authorized(self._produce(), self.authorize):
                self.items.append(item)
        except StatusError as error:
            return error.code
        return None


def read(pace: float, count: int, decide: Callable[[float], Code | None]) -> tuple[Stream, Code | None]:
    async def scenario() -> tuple[Stream, Code | None]:
        stream = Stream(pace, count, decide)
        return stream, await stream.read()

    return virtual.run(scenario())


@pytest.mark.parametrize(("pace", "count"), [(7.0, 30), (1000.0, 1)])
def test_a_stream_is_reviewed_every_minute_whether_it_has_items_or_not(pace: float, count: int) -> None:
    stream, code = read(pace, count, lambda _: None)
    assert code is None
    assert stream.items == list(range(count))
    intervals = [later - earlier for earlier, later in zip(stream.reviews, stream.reviews[1:], strict=False)]
    assert len(intervals) == pace * count // INTERVAL
    assert set(intervals) == {INTERVAL}


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "PERMISSION_DENIED"])
@pytest.mark.parametrize("pace", [7.0, 1000.0])
def test_a_stream_ends_when_its_caller_is_rejected(pace: float, code: Code) -> None:
    stream, ended_by = read(pace, 100, lambda at: code if at > 100 else None)
    assert ended_by == code
    assert stream.closed_at == 2 * INTERVAL
    assert len(stream.items) == 2 * INTERVAL // pace


def test_a_caller_that_is_rejected_at_the_start_gets_nothing() -> None:
    stream, code = read(1.0, 10, lambda _: "PERMISSION_DENIED")
    assert (stream.items, code, stream.reviews) == ([], "PERMISSION_DENIED", [0])


@pytest.mark.parametrize("code", ["UNAVAILABLE", "RESOURCE_EXHAUSTED"])
def test_a_stream_survives_a_short_time_without_decisions(code: Code) -> None:
    stream, ended_by = read(7.0, 30, lambda at: code if 50 < at < INTERVAL + 20 else None)
    assert ended_by is None
    assert len(stream.items) == 30
    stream, ended_by = read(7.0, 30, lambda at: code if at > 50 else None)
    assert ended_by == code
    assert stream.closed_at == MAX_AGE


def test_an_error_of_the_stream_and_its_early_end_close_it() -> None:
    async def fails() -> AsyncGenerator[int]:
        yield 1
        raise ValueError("broken")

    async def scenario() -> None:
        stream = Stream(1.0, 10, lambda _: None)
        with pytest.raises(ValueError, match="broken"):
            async for _ in while_authorized(fails(), stream.authorize):
                pass
        reading = asyncio.create_task(stream.read())
        await asyncio.sleep(2.5)
        reading.cancel()
        await asyncio.wait({reading})
        assert stream.items == [0, 1]
        assert stream.closed_at == 2.5

    virtual.run(scenario())
