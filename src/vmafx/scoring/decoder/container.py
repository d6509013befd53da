"""Opens a clip with the allowed demuxers and decoders, and decodes its video stream."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from typing import Any

import av
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vmafx.api.scoring import RawFormat
from vmafx.scoring.decoder.formats import DECODER_NAMES, DEMUXER_NAMES
from vmafx.scoring.decoder.messages import Task

READ_SIZE = 1 << 18  # bytes
CONVERT = "convert it without loss to another codec, such as FFV1"


class Refused(Exception):
    """The clip cannot be read or exceeds a limit; the message is for the user."""


class ClipFile(FileIO):
    """The file of a clip."""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """A negative error number instead of an exception: damaged clips refer to positions that no file has.

        Like a failed seek of a file that FFmpeg itself has opened, it need not be the end of decoding.
        """
        try:
            return super().seek(offset, whence)
        except OSError as error:
            return -(error.errno or errno.EINVAL)


class OpenedVideo:
    """The video stream of a clip: the default stream, or else the first. Streams of other kinds are discarded."""

    def __init__(self, container: InputContainer, streams: list[VideoStream]) -> None:
        self.container, self.stream, self.streams = container, streams[0], len(streams)
        self.errors = 0  # of the demuxer and the decoder, and frames marked as damaged

    def packets(self) -> Iterator[Any]:
        """All packets, and finally an empty one that flushes the decoder."""
        for other in self.container.streams:
            if other.index != self.stream.index:
                other.discard = av.stream.Discard.all
        try:
            yield from self.container.demux(self.stream)
        except av.FFmpegError as error:
            if isinstance(error, MemoryError):
                raise
            self.errors += 1
            yield None
        except IndexError:
            pass  # PyAV would flush a stream that appeared while it read; it has flushed this one before

    def decode(self, packet: Any) -> list[VideoFrame]:
        """The frames that the decoder yields for a packet. Damaged packets are skipped and counted."""
        try:
            frames: list[VideoFrame] = self.stream.codec_context.decode(packet)
        except av.FFmpegError as error:
            if isinstance(error, MemoryError):
                raise
            self.errors += 1
            return []
        return frames

    def frames(self) -> Iterator[VideoFrame]:
        """All frames that can be decoded."""
        for packet in self.packets():
            self.errors += packet is not None and bool(packet.is_corrupt)
            for frame in self.decode(packet):
                self.errors += bool(frame.is_corrupt)
                yield frame


@contextmanager
def open_video(fd: int, task: Task, threads: int = 1) -> Iterator[OpenedVideo]:
    """Raises Refused if the clip has no video or its frames are too large, and av.FFmpegError if it cannot be read."""
    limits = {"max_pixels": str(task.pixels), "codec_whitelist": DECODER_NAMES}
    options = {
        "protocol_whitelist": "none",
        "format_whitelist": DEMUXER_NAMES,
        "codec_whitelist": DECODER_NAMES,
        **(_raw_options(task.raw) if task.raw else {}),
    }
    kind = "rawvideo" if task.raw else None
    os.lseek(fd, 0, os.SEEK_SET)
    with (
        ClipFile(os.dup(fd)) as file,
        av.open(
            file, "r", format=kind, container_options=options, metadata_errors="replace", buffer_size=READ_SIZE
        ) as container,
    ):
        video = OpenedVideo(container, _video_streams(container.streams.video))
        context = video.stream.codec_context
        if context is None:
            raise Refused(f"its codec is unknown; {CONVERT}")
        if context.codec.name not in DECODER_NAMES.split(","):
            raise Refused(f"its codec {context.codec.name} is not one that vmafx decodes; {CONVERT}")
        check_frame_size(context.width, context.height, task.pixels)
        context.options = limits
        context.thread_type, context.thread_count = "AUTO", threads
        yield video


def _video_streams(streams: Any) -> list[VideoStream]:
    """The video streams without attached pictures (cover art); the default stream first."""
    disposition = av.stream.Disposition
    found = [stream for stream in streams if not stream.disposition & disposition.attached_pic]
    if not found:
        raise Refused("it has no video stream")
    return sorted(found, key=lambda stream: not stream.disposition & disposition.default)


def check_frame_size(width: int, height: int, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise Refused(f"its frames of {width}x{height} are larger than the limit of {max_pixels:,} pixels")


def _raw_options(raw: RawFormat) -> dict[str, str]:
    return {
        "video_size": f"{raw.width}x{raw.height}",
        "pixel_format": raw.pixelFormat,
        "framerate": str(raw.frameRate or 25),
    }
