"""Encodes one clip with one setting: the confined decoder emits frames, an encoder process reads and encodes them."""

import asyncio
import errno
import os
import select
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version
from io import FileIO
from pathlib import Path

import msgspec

from vmafx.process.child import child, exit_description, python_command
from vmafx.scoring.clip import HdrMetadata
from vmafx.scoring.engines.ffmpeg import Ffmpeg, find_ffmpeg, inspect_build
from vmafx.scoring.engines.raw_frames import (
    LOG_FLAGS,
    MAX_LINES,
    count_frames,
    counter_pipe,
    frame_counter,
    raw_input,
    read_lines,
)
from vmafx.scoring.errors import BadInput, EngineFailure, NodeFault, ScoringError, spawn_errors_as_node_fault
from vmafx.scoring.plan import counted, damage_error
from vmafx.scoring.probed import ProbedClip
from vmafx.tasks import in_thread
from vmafx.tune.encoders import ENCODERS, Encoder, Library, Variant, library_of
from vmafx.tune.frames import SourceFrames

PYAV_PROGRAM = str(Path(__file__).with_name("pyav_encode.py"))
STALL_SECONDS = 600.0  # without an encoded frame: slow presets look hundreds of frames ahead
PROBED_SPACE = 1 << 20  # bytes; without room for these, the disk counts as full
BLOCK_SIZE = 1 << 20  # bytes that are moved at once
MUXERS = {"mp4": "mp4", "webm": "webm", "mkv": "matroska"}
OnFrames = Callable[[int], None]


class EncoderTools(msgspec.Struct, frozen=True):
    """What encodes on this machine."""

    ffmpeg: Ffmpeg
    in_ffmpeg: frozenset[str]
    in_pyav: frozenset[str]

    @classmethod
    async def find(cls, environ: Mapping[str, str] = os.environ) -> "EncoderTools":
        ffmpeg = await find_ffmpeg(environ)
        build, pyav = await asyncio.gather(inspect_build(ffmpeg), asyncio.to_thread(_pyav_encoders))
        return cls(ffmpeg, build.encoders, pyav)

    def library(self, encoder: Encoder) -> Library:
        """Raises BadInput if this machine does not have the encoder."""
        return library_of(encoder, self.in_ffmpeg, self.in_pyav)

    def identity(self, encoder: Encoder) -> str:
        """The program that encodes, with its version: another one makes another file."""
        if self.library(encoder) == "pyav":
            return f"PyAV {version('av')}"
        return " ".join(map(str, ("ffmpeg", self.ffmpeg.version, *self.ffmpeg.identity())))


def _pyav_encoders() -> frozenset[str]:
    from av import Codec  # noqa: PLC0415
    from av.codec.codec import UnknownCodecError  # noqa: PLC0415 - the libraries take time to load

    found = set()
    for name in ENCODERS:
        try:
            Codec(name, "w")
        except UnknownCodecError:
            continue
        found.add(name)
    return frozenset(found)


class EncodeFacts(msgspec.Struct, frozen=True):
    """A finished encode."""

    frames: int
    bytes: int
    seconds: float  # from the first frame to the end of the process
    rate: float  # frames per second, of the video

    @property
    def bitrate(self) -> float:
        """Bits per second."""
        return self.bytes * 8 * self.rate / self.frames

    @property
    def speed(self) -> float:
        """Encoded frames per second."""
        return self.frames / self.seconds


class EncodeOptions(msgspec.Struct, frozen=True):
    """An encoder with its options."""

    encoder: Encoder
    options: dict[str, str]
    threads: int

    @classmethod
    def of(
        cls, variant: Variant, quality: float, gop: int, threads: int, hdr: HdrMetadata | None = None
    ) -> "EncodeOptions":
        return cls(variant.encoder, variant.options(quality, gop, hdr), threads)


async def encode(
    source: ProbedClip, frames: SourceFrames, tools: EncoderTools, options: EncodeOptions, path: Path,
    on_frames: OnFrames,
) -> EncodeFacts:  # fmt: skip
    """Write the encode to `path`. Raises ScoringError; what was written then is of no use."""
    started = time.monotonic()
    async with source.decoder.decode(frames.conversion, threads=options.threads) as decoding:
        (output,) = decoding.outputs
        try:
            encoded = await run_encoder(frames, tools, options, output, path, on_frames)
        except ScoringError:
            await decoding.check()  # a decoder that fails makes the encoder fail
            raise
        finally:
            decoding.stop_reading(output)
        decoded = await decoding.finished()
    if decoded.errors:
        raise damage_error("reference", counted(decoded.errors, "decoding error"))
    if decoded.changes:
        why = f"its pixel format, colour range or size changes within the clip, {decoded.changes[0].description}"
        raise BadInput("reference", f"{why}; re-encode it to one format")
    if encoded != decoded.frames:
        raise EngineFailure(f"{options.encoder.name} encoded {encoded} of {decoded.frames} frames")
    return EncodeFacts(encoded, await written_bytes(path), time.monotonic() - started, float(frames.rate))


async def written_bytes(path: Path) -> int:
    """The size of an encode that was just written."""
    try:
        return (await in_thread(path.stat)).st_size
    except OSError as error:
        raise NodeFault(f"an encode in {path.parent} has vanished: {error.strerror}") from error


async def run_encoder(
    frames: SourceFrames, tools: EncoderTools, options: EncodeOptions, output: FileIO, path: Path, on_frames: OnFrames
) -> int:
    """Encode the raw frames that can be read from `output`, which is closed; returns their number."""
    name, lines = options.encoder.name, deque[str](maxlen=MAX_LINES)
    async with AsyncExitStack() as stack:
        with spawn_errors_as_node_fault():
            reader, counter = await stack.enter_async_context(counter_pipe())
        try:
            command = _command(frames, tools, options, output.fileno(), counter, path)
            with spawn_errors_as_node_fault():
                process = await stack.enter_async_context(child(command, [output.fileno(), counter]))
        finally:  # so that the decoder notices when the encoder ends, and the other way round
            os.close(counter)
            output.close()
        reading = asyncio.create_task(read_lines(process.stderr, lines))
        stack.callback(reading.cancel)
        async with _stall_limit(name, on_frames) as note:
            encoded = await count_frames(reader, note)
            code = await process.wait()
        await reading
    if code:
        raise _failure(options.encoder, code, lines, path)
    return encoded


async def feed_encoder(
    encode: Callable[[FileIO], Coroutine[None, None, int]],
    feed: Callable[[int, Callable[[], None]], Awaitable[None]],
) -> int:
    """Encode what `feed` writes to a pipe; it gets a function that ends the encoder. Returns the number of frames."""
    reading, writing = os.pipe()
    encoder = asyncio.create_task(encode(FileIO(reading)))

    def stop_encoder() -> None:
        encoder.cancel()

    try:
        try:
            await feed(writing, stop_encoder)
        except BrokenPipeError:
            pass  # the encoder has failed, and says why
        finally:
            os.close(writing)
        await asyncio.wait([encoder])
    except (ScoringError, asyncio.CancelledError):
        encoder.cancel()
        raise
    finally:
        await asyncio.wait([encoder])
    return encoder.result()


def copy_bytes(source: int, target: int, size: int | None = None) -> int:
    """Move bytes from one pipe to another, up to `size` or the end; the kernel need not copy them.

    Returns their number. Raises BrokenPipeError once nothing reads the other pipe any more, even if the first one
    stalls.
    """
    poll = select.poll()
    poll.register(source, select.POLLIN)
    poll.register(target, 0)  # reports its errors
    copied = 0
    while size is None or copied < size:
        if any(fd == target for fd, _ in poll.poll()):
            raise BrokenPipeError
        wanted = BLOCK_SIZE if size is None else min(size - copied, BLOCK_SIZE)
        if not (moved := os.splice(source, target, wanted)):
            break
        copied += moved
    return copied


@asynccontextmanager
async def _stall_limit(name: str, on_frames: OnFrames) -> AsyncIterator[OnFrames]:
    """Ends an encoder that hangs; yields a function for its progress."""
    loop = asyncio.get_running_loop()

    def note(limit: asyncio.Timeout, frames: int) -> None:
        limit.reschedule(loop.time() + STALL_SECONDS)
        on_frames(frames)

    try:
        async with asyncio.timeout(STALL_SECONDS) as limit:
            yield partial(note, limit)
    except TimeoutError:
        if not limit.expired():
            raise
        raise EngineFailure(f"{name} stalled: no frame within {STALL_SECONDS:.0f} s") from None


def _command(
    frames: SourceFrames, tools: EncoderTools, options: EncodeOptions, raw: int, counter: int, path: Path
) -> list[str]:
    encoder = options.encoder
    if tools.library(encoder) == "pyav":
        task = {
            "input": raw, "counter": counter, "path": str(path), "muxer": MUXERS[encoder.container],
            "width": frames.format.width, "height": frames.format.height, "pixel_format": frames.format.pixel_format,
            "rate": frames.rate_text, "pixel_aspect": str(frames.pixel_aspect),
            "encoder": encoder.name, "options": options.options, "colours": frames.colours,
            "threads": options.threads,
        }  # fmt: skip
        return python_command(PYAV_PROGRAM, msgspec.json.encode(task).decode())
    colours = [argument for name, value in frames.colours.items() for argument in (f"-{name}", value)]
    aspect = [] if frames.pixel_aspect == 1 else ["-vf", f"setsar={frames.pixel_aspect}"]
    tag = ["-tag:v", "hvc1"] if encoder.codec == "HEVC" else []  # as Apple's players want it
    settings = [argument for name, value in options.options.items() for argument in (f"-{name}", value)]
    return [
        tools.ffmpeg.path,
        *LOG_FLAGS,
        *colours,  # of the raw frames
        *raw_input(frames.format, raw, frames.rate_text),
        *("-map", "0:v", "-fps_mode", "passthrough", *aspect, "-c:v", encoder.name, *settings, *tag),
        *("-threads", str(options.threads), *frame_counter(counter)),
        *("-f", MUXERS[encoder.container], "-y", f"file:{path}"),
    ]


def disk_error(path: Path) -> NodeFault | None:
    """Why a file cannot grow, if it cannot; what the system says is free may be another's, as with a quota."""
    try:
        with path.open("ab") as file:
            file.write(bytes(PROBED_SPACE))
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return NodeFault(f"the disk of {path.parent} is full; make room, or choose another folder with --work")
        return NodeFault(f"the folder {path.parent} for encodes cannot be used: {error.strerror}")
    return None


def _failure(encoder: Encoder, code: int, lines: deque[str], path: Path) -> ScoringError:
    if (fault := disk_error(path)) is not None:
        return fault
    failed = f"{encoder.name} failed with {exit_description(code)}"
    if code == -signal.SIGKILL:
        return NodeFault(f"{failed}: probably killed because this machine or its cgroup ran out of memory")
    needs = f"; it needs {encoder.hardware} and its driver" if encoder.hardware else ""
    return EngineFailure(f"{failed}: {next((line for line in lines if line), 'no error message')}{needs}")
