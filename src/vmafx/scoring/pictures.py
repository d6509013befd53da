"""Single frames of a clip as JPEG pictures, after the conversions made for the comparison."""

import os
import tempfile

import msgspec

from vmafx.process.child import exit_description, run_command
from vmafx.scoring.engine import Engine
from vmafx.scoring.errors import EngineFailure, spawn_errors_as_node_fault
from vmafx.scoring.ffmpeg import ProbedClip, input_arguments
from vmafx.scoring.request import ClipLimits

MAX_WIDTH = 640
JPEG_END = b"\xff\xd9"  # only at the end: in entropy-coded data, 0xff is followed by 0x00 or a restart marker
PICTURE_TIMEOUT = 3600.0  # seconds


class FramePair(msgspec.Struct, frozen=True):
    """The same frame of both clips, as JPEG."""

    frame: int
    score: float
    reference: bytes
    distorted: bytes


async def take_pictures(
    engine: Engine, probed: ProbedClip, chain: str, numbers: list[int], limits: ClipLimits
) -> list[bytes]:
    """JPEGs of the frames with these numbers, in ascending order. Decodes the clip up to the last of them."""
    selected = "+".join(f"eq(n\\,{number})" for number in numbers)
    scale = f"scale=w='min({MAX_WIDTH},iw)':h=-2:flags=bicubic,format=yuvj420p"
    graph = f"[0:{probed.clip.stream}]{chain},select={selected},{scale}[selected]"
    with tempfile.TemporaryFile() as file, os.fdopen(probed.opened.reopen(), "rb") as clip:
        command = [engine.path, "-hide_banner", "-nostdin", "-loglevel", "error"]
        command += input_arguments(clip.fileno(), probed.source, 0, limits)
        command += ["-filter_complex", graph, "-map", "[selected]", "-fps_mode", "passthrough"]
        command += ["-frames:v", str(len(numbers)), "-c:v", "mjpeg", "-q:v", "3", "-f", "mjpeg"]
        command += ["-fd", str(file.fileno()), "fd:"]
        try:
            with spawn_errors_as_node_fault():
                code, _, err = await run_command(command, [clip.fileno(), file.fileno()], within=PICTURE_TIMEOUT)
        except TimeoutError:
            raise EngineFailure(
                f"no pictures of {probed.opened.display_name}: ffmpeg took more than {PICTURE_TIMEOUT:.0f} s"
            ) from None
        file.seek(0)
        content = file.read()
    pictures = [picture + JPEG_END for picture in content.split(JPEG_END) if picture]
    if code or len(pictures) != len(numbers):
        reason = err.strip().splitlines()[-1] if err.strip() else exit_description(code)
        raise EngineFailure(f"no pictures of {probed.opened.display_name}: {reason}")
    return pictures
