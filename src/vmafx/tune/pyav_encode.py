"""Encodes raw frames with PyAV, for encoders that ffmpeg lacks. Run as a script; imports nothing of vmafx.

Its argument is a JSON object: the descriptor of the raw frames and their format, the encoder with its options, the path
to write, and a descriptor that gets a line for each encoded frame.
"""

import ctypes
import json
import os
import signal
import sys
from fractions import Fraction
from typing import Any, BinaryIO, cast

import av
import av.logging
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

PR_SET_PDEATHSIG = 1
INTERLEAVED = {"yuv420p": "nv12", "yuv420p10le": "p010le"}


def main(task: dict[str, Any]) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    av.logging.restore_default_callback()  # to standard error: why an encoder cannot be opened
    av.logging.set_libav_level(av.logging.ERROR)
    with (
        os.fdopen(task["input"], "rb", 1 << 20) as source,
        os.fdopen(task["counter"], "wb", 0) as counter,
        av.open(task["path"], "w", format=task["muxer"]) as container,
    ):
        rate = Fraction(task["rate"])
        stream = cast("VideoStream", container.add_stream(task["encoder"], rate, options=task["options"]))
        pixel_format = format_for(stream, task["pixel_format"])
        stream.width, stream.height, stream.pix_fmt = task["width"], task["height"], pixel_format
        stream.sample_aspect_ratio = Fraction(task["pixel_aspect"])
        stream.codec_context.thread_count = task["threads"]
        colours = {name: int(value) for name, value in task["colours"].items()}
        for name, value in colours.items():
            setattr(stream.codec_context, name, value)
        number = 0
        while (frame := read_frame(source, task)) is not None:
            frame.pts, frame.time_base = number, 1 / rate
            frame.color_range = colours.get("color_range", 0)
            number += 1
            converted = frame if frame.format.name == pixel_format else frame.reformat(format=pixel_format)
            write(container, stream, converted, counter)
        write(container, stream, None, counter)


def format_for(stream: VideoStream, pixel_format: str) -> str:
    """The format of the frames as the encoder takes them: those of GPUs want the same samples in another order."""
    taken = {one.name for one in stream.codec_context.codec.video_formats or ()}
    return INTERLEAVED[pixel_format] if taken and pixel_format not in taken else pixel_format


def write(container: Any, stream: VideoStream, frame: VideoFrame | None, counter: BinaryIO) -> None:
    for packet in stream.encode(frame):
        container.mux(packet)
        counter.write(b"s\n")


def read_frame(source: BinaryIO, task: dict[str, Any]) -> VideoFrame | None:
    """The next frame; None at the end."""
    frame = VideoFrame(task["width"], task["height"], task["pixel_format"])
    sample = 2 if task["pixel_format"].endswith("le") else 1
    for index, plane in enumerate(frame.planes):
        size = plane.width * sample
        content = source.read(size * plane.height)
        if not content and index == 0:
            return None
        if len(content) < size * plane.height:
            sys.exit("the last frame is incomplete")
        if plane.line_size == size:
            plane.update(content)
        else:
            padding = bytes(plane.line_size - size)
            rows = (content[start : start + size] for start in range(0, len(content), size))
            plane.update(b"".join(row + padding for row in rows))
    return frame


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except (av.error.FFmpegError, OSError, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
