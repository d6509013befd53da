"""Runs one ffmpeg that decodes both clips, scores them and counts their frames, within limits."""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

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
SILENT_TIMEOUT = ("-hide_banner", "-nostdin", "-nostats", "-loglevel", "level+warning")


class ProbedClip(msgspec.Struct, frozen=True):
    """A clip that was opened and looked at."""

    source: Source
    opened: OpenedMedia
    clip: Clip
    digest: str


class Comparison(msgspec.Struct, frozen=True):
    """All that ffmpeg has to be told."""

    reference: ProbedClip
    distorted: ProbedClip
    plan: Plan
    options: ScoreOptions
    model: VmafModel
    limits: ClipLimits


class FfmpegResult(msgspec.Struct):
    """How the process ended, and what it left."""

    code: int = 0
    reference: int = 0  # frames
    distorted: int = 0
    scored: int = 0
    seconds: float = 0.0
    heard: FfmpegLog = msgspec.field(default_factory=FfmpegLog)
    log: bytes = b""


async def run_ffmpeg(engine: Engine, comparison: Comparison, scored: Callable[[int], None]) -> FfmpegResult:
    """Run it to its end; `scored` is called with the number of frames done so far."""
    outcome = FfmpegResult()
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        log = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it; it has no name
        clips = (comparison.distorted, comparison.reference)
        files = [stack.enter_context(os.fdopen(clip.opened.again(), "rb")) for clip in clips]
        lines, counters = await stack.enter_async_context(_line_pipe())
        with ExitStack() as ours:
            for counter in counters:
                ours.callback(os.close, counter)
            fds = [*(file.fileno() for file in files), log.fileno(), *counters]
            command = _command(engine, comparison, *fds)
            if comparison.model.fd is not None:
                fds.append(comparison.model.fd)
            with spawn_errors_as_node_fault():
                process = await stack.enter_async_context(child(command, fds))
        listening = asyncio.create_task(read_log(process.stderr, outcome.heard))
        try:
            await _count(lines, outcome, comparison.limits, scored)
            outcome.code = await process.wait()
            await listening
        finally:
            listening.cancel()
        log.seek(0)
        outcome.log = log.read()
    outcome.seconds = time.monotonic() - started
    return outcome


def _command(engine: Engine, comparison: Comparison, *descriptors: int) -> list[str]:
    distorted, reference, log, *counters = descriptors
    options, limits = comparison.options, comparison.limits
    clips = comparison.reference.clip, comparison.distorted.clip
    graph = comparison.plan.graph(*clips, options, comparison.model.argument, f"/dev/fd/{log}")
    return [
        engine.path,
        *SILENT_TIMEOUT,
        *input_arguments(distorted, comparison.distorted.source, options.cores(), limits),
        *input_arguments(reference, comparison.reference.source, options.cores(), limits),
        *("-filter_complex_threads", str(options.cores()), "-filter_complex", graph),
        *_counted("[scored]", "s", counters[0]),
        *_counted("[d]", "d", counters[1]),
        *_counted("[r]", "r", counters[2]),
    ]


def input_arguments(fd: int, source: Source, threads: int, limits: ClipLimits) -> list[str]:
    """An input that can read the descriptor and nothing else, of a kind that needs nothing else."""
    arguments = ["-protocol_whitelist", "fd", "-format_whitelist", ",".join(CONTAINER_DEMUXERS)]
    arguments += ["-max_pixels", str(limits.pixels), "-threads", str(threads), "-reinit_filter", "0"]
    if raw := source.format:
        arguments += ["-f", "rawvideo"]
        for name, value in raw_options(raw).items():
            arguments += [f"-{name}", value]
    return [*arguments, "-fd", str(fd), "-i", "fd:"]


def _counted(stream: str, tag: str, counter: int) -> list[str]:
    """An output that goes nowhere, but says a line for each of its frames."""
    says = ("-stats_enc_post", f"/dev/fd/{counter}", "-stats_enc_post_fmt", tag)
    return ["-map", stream, "-fps_mode", "passthrough", *says, "-f", "null", "-"]


@asynccontextmanager
async def _line_pipe() -> AsyncIterator[tuple[asyncio.StreamReader, tuple[int, int, int]]]:
    """A reader, and three descriptors to write to, which the caller closes once they were passed on.

    Three for one pipe: outputs that were given the same one would share a buffer, and count wrongly.
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


async def _count(
    lines: asyncio.StreamReader, outcome: FfmpegResult, limits: ClipLimits, scored: Callable[[int], None]
) -> None:
    while True:
        try:
            async with asyncio.timeout(STALL_TIMEOUT):
                chunk = await lines.read(1 << 16)
        except TimeoutError as error:
            raise EngineFailure(f"ffmpeg came to a halt after {outcome.scored} frames") from error
        if not chunk:
            return
        outcome.distorted += chunk.count(b"d")
        outcome.reference += chunk.count(b"r")
        if max(outcome.distorted, outcome.reference) > limits.frames:
            part: InputPart = "distorted" if outcome.distorted > limits.frames else "reference"
            raise BadInput(part, f"it has more than {limits.frames:,} frames, which is the limit")
        if new := chunk.count(b"s"):
            outcome.scored += new
            scored(outcome.scored)


async def look_through(engine: Engine, ready: ProbedClip, chain: str, limits: ClipLimits) -> FfmpegLog:
    """What ffmpeg has to say of one clip alone: of two, its words do not tell for sure which of them it means."""
    heard = FfmpegLog()
    with os.fdopen(ready.opened.again(), "rb") as clip:
        command = [engine.path, *SILENT_TIMEOUT, *input_arguments(clip.fileno(), ready.source, 0, limits)]
        command += ["-filter_complex", f"[0:{ready.clip.stream}]{chain}[all]", "-map", "[all]"]
        command += ["-fps_mode", "passthrough", "-f", "null", "-"]
        with spawn_errors_as_node_fault():
            async with child(command, [clip.fileno()]) as process:
                await read_log(process.stderr, heard)
                await process.wait()
    return heard
