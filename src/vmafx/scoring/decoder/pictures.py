"""Single frames of a clip as JPEG pictures, after the conversions made for the comparison."""

from collections.abc import Iterator
from fractions import Fraction

import av
from av.video.frame import VideoFrame

from vmafx.scoring.decoder.container import Refused, open_video
from vmafx.scoring.decoder.convert import Converter
from vmafx.scoring.decoder.messages import Conversion, Pictures, PicturesTask

MAX_WIDTH = 640
QUALITY = 3  # of FFmpeg's scale from 1 (best) to 31
TIME_BASE = Fraction(1, 25)


def take_pictures(clip: int, task: PicturesTask) -> Pictures:
    """Decodes the clip up to the last of the frames."""
    wanted, jpegs = set(task.numbers), []
    for number, frame in enumerate(_converted(clip, task)):
        if number in wanted:
            jpegs.append(_jpeg(frame, task.conversion))
        if len(jpegs) == len(wanted):
            return Pictures(tuple(jpegs))
    raise Refused(f"it has no frame {task.numbers[len(jpegs)]}")


def _converted(clip: int, task: PicturesTask) -> Iterator[VideoFrame]:
    with open_video(clip, task, task.threads) as video:
        converter = Converter(task.conversion, video.stream.time_base)
        for frame in video.frames():
            yield from converter.convert(frame)
        yield from converter.flush()


def _jpeg(frame: VideoFrame, compared: Conversion) -> bytes:
    width = min(MAX_WIDTH, frame.width)
    height = max(2, round(frame.height * width / frame.width / 2) * 2)
    small = Conversion(
        width=width, height=height, pixel_format="yuvj420p", full_range=True, from_full_range=compared.full_range
    )
    (picture,) = Converter(small, TIME_BASE, matrix=()).convert(frame)  # it is rotated already
    context = av.CodecContext.create("mjpeg", "w")
    context.width, context.height, context.pix_fmt, context.time_base = width, height, "yuvj420p", TIME_BASE
    context.options = {"qmin": str(QUALITY), "qmax": str(QUALITY)}
    picture.pts = 0
    return b"".join(bytes(packet) for packet in (*context.encode(picture), *context.encode(None)))
