"""The two clocks: a monotonic one to measure with, and UTC time to write into objects."""

import asyncio
from datetime import UTC, datetime


def loop_time() -> float:
    """Seconds on the event loop's clock."""
    return asyncio.get_running_loop().time()


def micro_time() -> str:
    """Now, as metav1.MicroTime wants it: always with six digits."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def utc_now() -> datetime:
    """The time of day, for what is written down."""
    return datetime.now(UTC)
