"""Runs ffmpeg with libvmaf on two clips: one process decodes, scores and counts the frames."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import BinaryIO

import msgspec

from vmafx.process.child import child
from vmafx.scoring.clip import CONTAINER_DEMUXERS, Clip, raw_options
from vmafx.scoring.engine import Engine
from vmafx.scoring.errors import BadInput, EngineFailure, InputPart, spawn_errors_as_node_fault
from vmafx.scoring.ffmpeg_log import FfmpegLog, read_log
from vmafx.scoring.media.access import OpenedMedia
from vmafx.scoring.models import VmafModel
from vmafx.scoring.plan import Plan
from vmafx.scoring.request import ClipLimits, ScoreOptions, Source

STALL_TIMEOUT = 600.0  # seconds without a frame
LOG_FLAGS = ("-hide_banner", "-nostdin", "-nostats", "-loglevel", "level+warning")


class ProbedClip(msgspec.Struct, frozen=True):
    """A clip that was opened, probed and hashed."""

    source: Source
    opened: OpenedMedia
    clip: Clip
    digest: str  # SHA-256, in hex


class Comparison(msgspec.Struct, frozen=True):
    """The input of one ffmpeg process."""

    reference: ProbedClip
    distorted: ProbedClip
    plan: Plan
    options: ScoreOptions
    model: VmafModel
    limits: ClipLimits


class FfmpegResult(msgspec.Struct):
    """The outcome of one ffmpeg process."""

    exit_code: int = 0
    reference_frames: int = 0
    distorted_frames: int = 0
    scored_frames: int = 0
    seconds: float = 0.0
    log: FfmpegLog = msgspec.field(default_factory=FfmpegLog)


async def run_ffmpeg(
    engine: Engine, comparison: Comparison, log: BinaryIO, on_scored: Callable[[int], None]
) -> FfmpegResult:
    """Runs ffmpeg until it exits; libvmaf writes `log`. Calls `on_scored` with the number of frames scored so far."""
    outcome = FfmpegResult()
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        clips = (comparison.distorted, comparison.reference)
        files = [stack.enter_context(os.fdopen(clip.opened.reopen(), "rb")) for clip in clips]
        reader, counters = await stack.enter_async_context(_counter_pipe())
        with ExitStack() as parent_ends:
            for counter in counters:
                parent_ends.callback(os.close, counter)
            fds = [*(file.fileno() for file in files), log.fileno(), *counters]
            command = _command(engine, comparison, *fds)
            if comparison.model.fd is not None:
                fds.append(comparison.model.fd)
            with spawn_errors_as_node_fault():
                process = await stack.enter_async_context(child(command, fds))
        log_reader = asyncio.create_task(read_log(process.stderr, outcome.log))
        try:
            await _count_frames(reader, outcome, comparison.limits, on_scored)
            outcome.exit_code = await process.wait()
            await log_reader
        finally:
            log_reader.cancel()
    outcome.seconds = time.monotonic() - started
    return outcome


def _command(engine: Engine, comparison: Comparison, *descriptors: int) -> list[str]:
    distorted, reference, log, *counters = descriptors
    options, limits = comparison.options, comparison.limits
    threads = options.thread_count()
    clips = comparison.reference.clip, comparison.distorted.clip
    graph = comparison.plan.graph(*clips, options, comparison.model.argument, f"/dev/fd/{log}")
    return [
        engine.path,
        *LOG_FLAGS,
        *input_arguments(distorted, comparison.distorted.source, threads, limits),
        *input_arguments(reference, comparison.reference.source, threads, limits),
        *("-filter_complex_threads", str(threads), "-filter_complex", graph),
        *_counting_output("[scored]", "s", counters[0]),
        *_counting_output("[d]", "d", counters[1]),
        *_counting_output("[r]", "r", counters[2]),
    ]


def input_arguments(fd: int, source: Source, threads: int, limits: ClipLimits) -> list[str]:
    """An input that can read only this file descriptor, with a demuxer that opens no other files."""
    arguments = ["-protocol_whitelist", "fd", "-format_whitelist", ",".join(CONTAINER_DEMUXERS)]
    arguments += ["-max_pixels", str(limits.pixels), "-threads", str(threads), "-reinit_filter", "0"]
    if raw := source.format:
        arguments += ["-f", "rawvideo"]
        for name, value in raw_options(raw).items():
            arguments += [f"-{name}", value]
    return [*arguments, "-fd", str(fd), "-i", "fd:"]


def _counting_output(stream: str, tag: str, counter: int) -> list[str]:
    """A null output that writes a line with `tag` to the counter for each frame."""
    stats = ("-stats_enc_post", f"/dev/fd/{counter}", "-stats_enc_post_fmt", tag)
    return ["-map", stream, "-fps_mode", "passthrough", *stats, "-f", "null", "-"]


@asynccontextmanager
async def _counter_pipe() -> AsyncIterator[tuple[asyncio.StreamReader, tuple[int, int, int]]]:
    """A pipe with a reader and three descriptors for writing, which the caller closes once ffmpeg has them.

    Each output needs its own descriptor: with a shared one, ffmpeg shares a buffer and loses lines.
    """
    reading, writing = os.pipe()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", 0)
    )
    try:
        yield reader, (writing, os.dup(writing), os.dup(writing))
    finally:
        transport.close()


async def _count_frames(
    reader: asyncio.StreamReader, outcome: FfmpegResult, limits: ClipLimits, on_scored: Callable[[int], None]
) -> None:
    """Counts the frames that ffmpeg reports until it closes the pipe."""
    while True:
        try:
            async with asyncio.timeout(STALL_TIMEOUT):
                chunk = await reader.read(1 << 16)
        except TimeoutError as error:
            raise EngineFailure(
                f"ffmpeg stalled after {outcome.scored_frames} frames: no frame within {STALL_TIMEOUT:.0f} s"
            ) from error
        if not chunk:
            return
        outcome.distorted_frames += chunk.count(b"d")
        outcome.reference_frames += chunk.count(b"r")
        if max(outcome.distorted_frames, outcome.reference_frames) > limits.frames:
            part: InputPart = "distorted" if outcome.distorted_frames > limits.frames else "reference"
            raise BadInput(part, f"it has more than {limits.frames:,} frames, which is the limit")
        if new := chunk.count(b"s"):
            outcome.scored_frames += new
            on_scored(outcome.scored_frames)


async def decode_alone(engine: Engine, probed: ProbedClip, chain: str, limits: ClipLimits) -> FfmpegLog:
    """Decodes one clip and returns ffmpeg's log. With two inputs, the log does not reliably say which one failed."""
    log = FfmpegLog()
    with os.fdopen(probed.opened.reopen(), "rb") as clip:
        command = [engine.path, *LOG_FLAGS, *input_arguments(clip.fileno(), probed.source, 0, limits)]
        command += ["-filter_complex", f"[0:{probed.clip.stream}]{chain}[all]", "-map", "[all]"]
        command += ["-fps_mode", "passthrough", "-f", "null", "-"]
        with spawn_errors_as_node_fault():
            async with child(command, [clip.fileno()]) as process:
                await read_log(process.stderr, log)
                await process.wait()
    return log
