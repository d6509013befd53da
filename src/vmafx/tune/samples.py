"""Which parts of a long source stand for the whole, and the clip that is made of them."""

import asyncio
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import msgspec

from vmafx.scoring.probed import ProbedClip
from vmafx.tasks import in_thread
from vmafx.tune.encoders import Encoder
from vmafx.tune.encoding import (
    EncodeFacts,
    EncodeOptions,
    EncoderTools,
    copy_bytes,
    feed_encoder,
    run_encoder,
    written_bytes,
)
from vmafx.tune.frames import SourceFrames

SAMPLE_SECONDS = 2.0  # of one part: encoders decide on seconds, not on frames
SHARE = 0.15  # of the source
MIN_SAMPLES, MAX_SAMPLES = 3, 30
# Without loss, and decoded in a moment: each frame stands alone.
LOSSLESS = Encoder(
    name="ffv1", codec="FFV1", container="mkv", best=0, worst=0, step=1, qualities=(0,), presets=("",), preset="",
    options=lambda _preset, _quality: {"slices": "4"},
)  # fmt: skip

Range = tuple[int, int]


def sample_ranges(frames: int, rate: Fraction) -> tuple[Range, ...]:
    """The frames [first, end) of each part, evenly spread; none if the whole source should be used."""
    length = max(1, round(SAMPLE_SECONDS * rate))
    count = min(max(round(frames * SHARE / length), MIN_SAMPLES), MAX_SAMPLES)
    if count * length * 2 > frames:  # the source is short
        return ()
    gap = (frames - count * length) / count
    starts = [int(gap / 2 + index * (length + gap)) for index in range(count)]
    return tuple((start, start + length) for start in starts)


class SampleOptions(msgspec.Struct, frozen=True):
    """What a clip of samples is made of."""

    ranges: tuple[Range, ...]
    threads: int

    @property
    def part(self) -> str:
        """For the key of the clip."""
        return ",".join(f"{first}-{end}" for first, end in self.ranges)

    @property
    def frames(self) -> int:
        return sum(end - first for first, end in self.ranges)

    @property
    def encode(self) -> EncodeOptions:
        return EncodeOptions(LOSSLESS, dict(LOSSLESS.options("", "")), self.threads)


async def write_samples(
    source: ProbedClip, frames: SourceFrames, tools: EncoderTools, options: SampleOptions, path: Path,
    on_frames: Callable[[int], None],
) -> EncodeFacts:  # fmt: skip
    """Write the samples to a clip without loss, one after the other."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    encoded = await feed_encoder(
        lambda pipe: run_encoder(frames, tools, options.encode, pipe, path, on_frames),
        lambda pipe, stop_encoder: _feed(source, frames, options, pipe, stop_encoder),
    )
    return EncodeFacts(encoded, await written_bytes(path), loop.time() - started, float(frames.rate))


async def _feed(
    source: ProbedClip, frames: SourceFrames, options: SampleOptions, writing: int, on_cancel: Callable[[], None]
) -> None:
    for first, end in options.ranges:
        async with source.decoder.decode(frames.conversion, threads=options.threads, first=first, end=end) as decoding:
            (output,) = decoding.outputs
            try:
                await in_thread(copy_bytes, output.fileno(), writing, on_cancel=on_cancel)
            finally:
                decoding.stop_reading(output)
            await decoding.finished()
