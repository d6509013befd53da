"""Encoders that are fed through a pipe."""

import asyncio
import os
from collections.abc import Callable
from io import FileIO

from vmafx.tune.encoding import feed_encoder


async def test_cancelling_ends_an_encoder_that_has_all_its_frames() -> None:
    """It may still take minutes for the last ones."""
    waiting, ended = asyncio.Event(), list[str]()

    async def encode(pipe: FileIO) -> int:
        with pipe:
            assert await asyncio.to_thread(pipe.readall) == b"frames"
            waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("encoder")
        return 1

    async def feed(pipe: int, _stop_encoder: Callable[[], None]) -> None:
        os.write(pipe, b"frames")

    feeding = asyncio.create_task(feed_encoder(encode, feed))
    await waiting.wait()
    feeding.cancel()
    await asyncio.wait([feeding])
    assert feeding.cancelled()
    assert ended == ["encoder"]
