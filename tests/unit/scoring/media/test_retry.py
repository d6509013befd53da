"""Retries of interrupted transfers."""

from datetime import UTC, datetime

import pytest

from vmafx.backoff import Backoff
from vmafx.scoring.errors import NodeFault
from vmafx.scoring.media.retry import MIN_ADVANCE, RetryPolicy, TransferInterrupted, retry_after, retry_transfer

NO_DELAY = RetryPolicy(backoff=Backoff(0.0, 0.0), max_asked=0.0)
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Transfer:
    """Fails once per step, at the size that the step gives; succeeds after the last step."""

    def __init__(self, *steps: int) -> None:
        self.steps, self.size, self.calls = list(steps), 0, 0

    async def __call__(self) -> None:
        self.calls += 1
        if self.steps:
            self.size = self.steps.pop(0)
            raise TransferInterrupted("connection lost")

    async def run(self, retry: RetryPolicy = NO_DELAY) -> int:
        await retry_transfer(self, lambda: self.size, retry, "cannot fetch clip")
        return self.calls


async def test_a_transfer_fails_after_five_tries_without_progress() -> None:
    transfer = Transfer(*[0] * 9)
    with pytest.raises(NodeFault, match="cannot fetch clip: connection lost, 5 times in a row"):
        await transfer.run()
    assert transfer.calls == 5


async def test_progress_resets_the_count_of_failures() -> None:
    steps = [number * MIN_ADVANCE for number in range(1, 20)]
    assert await Transfer(*steps).run() == 20


async def test_a_few_bytes_are_not_progress() -> None:
    with pytest.raises(NodeFault):
        await Transfer(*range(1, 20)).run()


async def test_reaching_the_same_size_again_is_not_progress() -> None:
    with pytest.raises(NodeFault):
        await Transfer(*[5 * MIN_ADVANCE] * 9).run()


async def test_small_steps_add_up_to_progress() -> None:
    steps = [number * MIN_ADVANCE // 2 for number in range(1, 20)]
    assert await Transfer(*steps).run() == 20


def test_delays_double_up_to_a_limit_with_jitter() -> None:
    policy = RetryPolicy(backoff=Backoff(1.0, 5.0, jitter=lambda: 0.5))
    assert [policy.wait(failures, None) for failures in (1, 2, 3, 4, 9)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert RetryPolicy(backoff=Backoff(1.0, 30.0, jitter=lambda: 0.0)).wait(1, None) == 0.5


def test_retry_after_is_honoured_up_to_a_limit() -> None:
    assert RetryPolicy(max_asked=60.0).wait(1, 7.0) == 7.0
    assert RetryPolicy(max_asked=60.0).wait(1, 1e9) == 60.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("3", 3.0),
        ("0", 0.0),
        ("", None),
        ("soon", None),
        ("-3", None),
        ("²", None),
        ("Fri, 02 Jan 2026 03:04:15 GMT", 10.0),
        ("Fri, 02 Jan 2026 03:04:15 -0000", 10.0),
        ("Fri, 02 Jan 2025 03:04:15 GMT", 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str, seconds: float | None) -> None:
    assert retry_after(header, NOW) == seconds
