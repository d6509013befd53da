"""Encodes the shots of a source one by one, and joins them to one file."""

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from importlib.metadata import version
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vmafx.scoring.errors import EngineFailure, ScoringError
from vmafx.scoring.stall import STALL_TIMEOUT
from vmafx.tasks import in_thread
from vmafx.tune.compare import Workshop, is_about_source
from vmafx.tune.encoders import Variant
from vmafx.tune.encoding import (
    BLOCK_SIZE,
    MUXERS,
    EncodeFacts,
    EncodeOptions,
    copy_bytes,
    disk_error,
    feed_encoder,
    run_encoder,
    written_bytes,
)
from vmafx.tune.frames import SourceFrames, source_frames
from vmafx.tune.scenes import Shot
from vmafx.tune.work_folder import KeptEncode, encode_key

OnFrames = Callable[[int], None]


class ShotPlan(NamedTuple):
    """A shot to encode. `number` counts from 1, for people."""

    number: int
    shot: Shot
    quality: float


class ShotEncoder:
    """Encodes shots in one size. The source is decoded once for all of a round that are not in the work folder."""

    def __init__(self, workshop: Workshop, variant: Variant, size: tuple[int, int], gop: int) -> None:
        self._workshop, self.variant, self._gop = workshop, variant, gop
        self._frames = source_frames(workshop.source, variant.encoder.bit_depths, size)
        self._tool = workshop.tools.identity(variant.encoder)
        self._made = dict[str, KeptEncode]()  # by this process, or found by it

    @property
    def rate(self) -> float:
        """Frames per second."""
        return float(self._frames.rate)

    async def encode(self, plans: Sequence[ShotPlan], on_frames: OnFrames) -> list[KeptEncode]:
        """The encodes of shots in the order of the source; `on_frames` gets the number of frames that are encoded.

        Raises ScoringError, which names the shot unless the source is bad. What was encoded is kept.
        """
        keys = [self._key(plan) for plan in plans]
        async with self._workshop.slots:
            for key in keys:
                if (
                    key not in self._made
                    and (kept := await self._workshop.folder.get(key, self._container)) is not None
                ):
                    self._made[key] = kept
            if missing := [(key, plan) for key, plan in zip(keys, plans, strict=True) if key not in self._made]:
                await self._encode_missing(missing, on_frames)
        return [self._made[key] for key in keys]

    async def join(self, parts: Sequence[KeptEncode]) -> KeptEncode:
        """One file with the packets of all parts. Raises ScoringError."""
        names = [part.path.stem for part in parts]  # their keys
        made_by = f"join 1, PyAV {version('av')}"
        key = hashlib.sha256(msgspec.json.encode([made_by, *names])).hexdigest()
        try:
            kept = await self._workshop.folder.get_or_make(key, self._container, lambda path: self._join(parts, path))
        except ScoringError as error:
            raise EngineFailure(f"the shots cannot be joined: {error}") from error
        return msgspec.structs.replace(kept, resumed=all(part.resumed for part in parts))

    @property
    def _container(self) -> str:
        return self.variant.encoder.container

    def _options(self, quality: float) -> EncodeOptions:
        return EncodeOptions.of(self.variant, quality, self._gop, self._workshop.settings.threads, self._frames.hdr)

    def _key(self, plan: ShotPlan) -> str:
        part = f"{plan.shot.first}-{plan.shot.end}"
        digest = self._workshop.source.digest
        return encode_key(digest, self._frames, self._options(plan.quality), self._tool, part)

    async def _encode_missing(self, missing: Sequence[tuple[str, ShotPlan]], on_frames: OnFrames) -> None:
        first, end = missing[0][1].shot.first, missing[-1][1].shot.end
        conversion, threads = self._frames.conversion, self._workshop.settings.threads
        source, done = self._workshop.source, 0
        async with source.decoder.decode(conversion, threads=threads, first=first, end=end) as decoding:
            (output,) = decoding.outputs
            stream, position = _Frames(output, self._frames), first
            try:
                for key, plan in missing:
                    await stream.skip(plan.shot.first - position)
                    position = plan.shot.end
                    self._made[key] = await self._encode_one(key, plan, stream, partial(_report_after, done, on_frames))
                    done += plan.shot.frames
            except ScoringError as error:
                await decoding.check()  # a decoder that fails makes the encoder fail
                if is_about_source(error):
                    raise
                frames = f"frames {plan.shot.first} to {plan.shot.end - 1}"
                raise EngineFailure(f"shot {plan.number}, {frames}: {error}") from error
            finally:
                decoding.stop_reading(output)

    async def _encode_one(self, key: str, plan: ShotPlan, stream: "_Frames", on_frames: OnFrames) -> KeptEncode:
        async def make(path: Path) -> EncodeFacts:
            started, options = time.monotonic(), self._options(plan.quality)
            encoded = await feed_encoder(
                lambda pipe: run_encoder(self._frames, self._workshop.tools, options, pipe, path, on_frames),
                lambda pipe, stop_encoder: stream.copy(plan.shot.frames, pipe, stop_encoder),
            )
            if encoded != plan.shot.frames:
                raise EngineFailure(f"{options.encoder.name} encoded {encoded} of {plan.shot.frames} frames")
            seconds = time.monotonic() - started
            return EncodeFacts(encoded, await written_bytes(path), seconds, self.rate)

        return await self._workshop.folder.get_or_make(key, self._container, make)

    async def _join(self, parts: Sequence[KeptEncode], path: Path) -> EncodeFacts:
        paths = [part.path for part in parts]
        await in_thread(join_files, paths, path, MUXERS[self._container], self._frames.rate)
        frames, seconds = (sum(getattr(part.facts, name) for part in parts) for name in ("frames", "seconds"))
        return EncodeFacts(frames, await written_bytes(path), seconds, self.rate)


def _report_after(before: int, on_frames: OnFrames, frames: int) -> None:
    on_frames(before + frames)


class _Frames:
    """Raw frames that arrive at a pipe."""

    def __init__(self, pipe: FileIO, frames: SourceFrames) -> None:
        self._pipe, self._frame_bytes = pipe, frames.frame_bytes

    async def copy(self, frames: int, target: int, on_cancel: Callable[[], None]) -> None:
        await in_thread(copy_bytes, self._pipe.fileno(), target, frames * self._frame_bytes, on_cancel=on_cancel)

    async def skip(self, frames: int) -> None:
        """Read frames that nobody needs; fewer if there are no more. Raises EngineFailure if none arrive."""
        left = frames * self._frame_bytes
        while left:
            try:
                async with asyncio.timeout(STALL_TIMEOUT):
                    await _readable(self._pipe)
            except TimeoutError:
                raise EngineFailure(f"the decoder stalled: no frame within {STALL_TIMEOUT:.0f} s") from None
            if not (content := os.read(self._pipe.fileno(), min(left, BLOCK_SIZE))):
                return
            left -= len(content)


async def _readable(pipe: FileIO) -> None:
    """Return when the pipe has content, or has ended."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pipe, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(pipe)


class Packet(NamedTuple):
    """A packet of a file that was written here, in the order of the file, which is that of decoding."""

    size: int
    is_key: bool


def packets_of(path: Path) -> list[Packet]:
    import av  # noqa: PLC0415 - the libraries take time to load

    with av.open(str(path)) as container:
        return [Packet(packet.size, packet.is_keyframe) for packet in container.demux(video=0) if packet.size]


def join_files(parts: Sequence[Path], path: Path, muxer: str, rate: Fraction) -> None:
    """Copy the packets of encodes to one file, in which the frames of each follow those of the one before.

    Raises EngineFailure if the headers of the encodes differ, so that a file could not have all of them.
    """
    import av  # noqa: PLC0415

    orders = [_display_order(part) for part in parts]
    delay = max(index - place for order in orders for index, place in enumerate(order))
    try:
        with av.open(str(path), "w", format=muxer) as joined:
            stream: Any = None
            first, headers = 0, b""
            for number, (part, order) in enumerate(zip(parts, orders, strict=True), 1):
                with av.open(str(part)) as container:
                    source = container.streams.video[0]
                    if stream is None:
                        stream, headers = joined.add_stream_from_template(source, opaque=True), _headers(source)
                        stream.codec_context.codec_tag = source.codec_context.codec_tag  # hvc1, for Apple's players
                    if _headers(source) != headers:
                        raise EngineFailure(f"the headers of part {number} are not those of part 1")
                    for index, packet in enumerate(one for one in container.demux(source) if one.size):
                        packet.stream, packet.time_base = stream, 1 / rate
                        packet.pts, packet.dts = first + order[index], first + index - delay
                        packet.duration = 1
                        joined.mux(packet)
                first += len(order)
    except av.error.FFmpegError as error:
        raise disk_error(path) or EngineFailure(f"PyAV cannot write the file: {error}") from error


def _headers(stream: Any) -> bytes:
    return bytes(stream.codec_context.extradata or b"")


def _display_order(path: Path) -> list[int]:
    """The number of the frame that each packet has. Some containers round their timestamps, so they only order."""
    import av  # noqa: PLC0415

    with av.open(str(path)) as container:
        times = [packet.pts or 0 for packet in container.demux(video=0) if packet.size]
    ranks = {time: number for number, time in enumerate(sorted(times))}
    return [ranks[time] for time in times]
