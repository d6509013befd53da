"""The two clocks: monotonic time for durations, UTC time for timestamps."""

import asyncio
from datetime import UTC, datetime


def loop_time() -> float:
    """Seconds on the monotonic clock of the event loop."""
    return asyncio.get_running_loop().time()


def micro_time() -> str:
    """The current time as a Kubernetes MicroTime, always with six decimals."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def utc_now() -> datetime:
    """The current time, for timestamps."""
    return datetime.now(UTC)
