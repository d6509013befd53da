"""What every ffmpeg that is fed raw frames needs: its input, its log, and a count of the frames that it processed."""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from vmafx.scoring.engines.engine import FrameFormat

ANY_RATE = "25"
QUEUED_FRAMES = 2  # of each clip, in ffmpeg
LOG_FLAGS = ("-hide_banner", "-nostdin", "-nostats", "-loglevel", "error")
LOG_CHUNK, MAX_LINES, MAX_LINE_LENGTH = 1 << 16, 40, 500


def frame_counter(fd: int) -> list[str]:
    """Output options with which ffmpeg writes a line to `fd` for each frame that it has processed."""
    return ["-stats_enc_post", f"/dev/fd/{fd}", "-stats_enc_post_fmt", "s"]


def raw_input(frames: FrameFormat, fd: int, rate: str = ANY_RATE) -> list[str]:
    """Raw frames from a pipe. Where frames are paired by number, any frame rate will do that both have."""
    size = f"{frames.width}x{frames.height}"
    arguments = ["-protocol_whitelist", "fd", "-thread_queue_size", str(QUEUED_FRAMES), "-probesize", "32"]
    arguments += ["-f", "rawvideo", "-video_size", size, "-pixel_format", frames.pixel_format, "-framerate", rate]
    return [*arguments, "-fd", str(fd), "-i", "fd:"]


@asynccontextmanager
async def counter_pipe() -> AsyncIterator[tuple[asyncio.StreamReader, int]]:
    """A pipe: its reader, and a descriptor for writing, which the caller closes once ffmpeg has it."""
    reading, writing = os.pipe()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", 0)
    )
    try:
        yield reader, writing
    finally:
        transport.close()


async def count_frames(reader: asyncio.StreamReader, on_frames: Callable[[int], None]) -> int:
    """Counts the frames that ffmpeg reports, a line each, until it closes the pipe."""
    frames = 0
    while chunk := await reader.read(1 << 16):
        if new := chunk.count(b"s"):
            frames += new
            on_frames(frames)
    return frames


async def read_lines(stderr: asyncio.StreamReader | None, lines: deque[str]) -> None:
    pending = ""
    while stderr and (chunk := await stderr.read(LOG_CHUNK)):
        *complete, pending = (pending + chunk.decode(errors="replace")).split("\n")
        lines.extend(line.strip()[:MAX_LINE_LENGTH] for line in complete)
        pending = pending[-LOG_CHUNK:]
    lines.append(pending.strip()[:MAX_LINE_LENGTH])
