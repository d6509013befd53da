"""Frames of a clip as raw planes: from a decoder process, and from the ffmpeg program to compare with."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from io import FileIO
from pathlib import Path

from tests.support.video import FFMPEG
from vmafx.process.child import ENVIRONMENT
from vmafx.scoring.decoder.clip_decoder import ClipDecoder, Decoding
from vmafx.scoring.decoder.messages import Conversion, DecodedClip
from vmafx.scoring.request import ClipLimits, Source
from vmafx.scoring.score import Scorer


@asynccontextmanager
async def decoder_of(clip: Path | Source, limits: ClipLimits | None = None) -> AsyncIterator[ClipDecoder]:
    source = clip if isinstance(clip, Source) else Source(str(clip))
    async with Scorer(limits=limits).open(source, "distorted") as opened:
        yield opened.decoder


async def read_all(pipe: FileIO) -> bytes:
    return await asyncio.to_thread(pipe.readall)


async def decoded(
    clip: Path | Source, conversion: Conversion, *, threads: int = 1, first: int = 0, end: int | None = None
) -> tuple[bytes, DecodedClip]:
    """The frames [first, end) that a decoder emits, and its answer."""
    async with (
        decoder_of(clip) as decoder,
        decoder.decode(conversion, threads=threads, first=first, end=end) as decoding,
    ):
        return await emitted(decoding), await decoding.finished()


async def emitted(decoding: Decoding) -> bytes:
    return await read_all(decoding.outputs[0])


def converted(clip: Path, conversion: Conversion, inputs: Sequence[str] = ()) -> bytes:
    """The frames that the ffmpeg program makes of a clip; it also rotates them by itself."""
    command = [str(FFMPEG), "-hide_banner", "-loglevel", "error", "-nostdin", *inputs, "-i", str(clip)]
    command += [
        "-map",
        "0:V:0",
        "-filter_threads",
        "1",
        "-vf",
        ",".join(filters_of(conversion)),
        "-fps_mode",
        "passthrough",
    ]
    command += ["-f", "rawvideo", "-pix_fmt", conversion.pixel_format, "-"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60, env=ENVIRONMENT).stdout


def filters_of(conversion: Conversion) -> list[str]:
    """Written down again, so that a mistake in the product's filters shows."""
    scale = f"scale=w={conversion.width}:h={conversion.height}:flags=bicubic"
    scale += f":in_range={'full' if conversion.from_full_range else 'limited'}"
    scale += f":out_range={'full' if conversion.full_range else 'limited'}"
    scale += f":out_color_matrix={conversion.matrix}" if conversion.matrix else ""
    rate: list[str] = []
    if conversion.rate is not None:
        rate = ["setpts=PTS-STARTPTS", f"fps=fps={conversion.rate}:round=near"]
    if conversion.own_rate is not None:
        rate[:1] = [f"settb=1/({conversion.own_rate})", "setpts=N"]
    return [*rate, scale, f"format={conversion.pixel_format}"]
