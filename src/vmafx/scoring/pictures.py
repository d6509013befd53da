"""Single frames of both clips as JPEG pictures, as they were compared."""

import os
import tempfile

import msgspec

from vmafx.process.child import exit_description, run_command
from vmafx.scoring.engine import Engine
from vmafx.scoring.errors import EngineFailure, spawn_errors_as_node_fault
from vmafx.scoring.ffmpeg import ProbedClip, input_arguments
from vmafx.scoring.request import ClipLimits

WIDTH = 640
JPEG_END = b"\xff\xd9"  # nowhere else in a JPEG: within its data, 0xff is followed by 0
PICTURE_TIMEOUT = 3600.0


class FramePair(msgspec.Struct, frozen=True):
    """One frame as it was and as it became, both as JPEG."""

    frame: int
    score: float
    reference: bytes
    distorted: bytes


async def take_pictures(
    engine: Engine, ready: ProbedClip, chain: str, numbers: list[int], limits: ClipLimits
) -> list[bytes]:
    """JPEGs of the frames with these numbers, which rise, in one pass that ends with the last of them."""
    chosen = "+".join(f"eq(n\\,{number})" for number in numbers)
    small = f"scale=w='min({WIDTH},iw)':h=-2:flags=bicubic,format=yuvj420p"
    graph = f"[0:{ready.clip.stream}]{chain},select={chosen},{small}[chosen]"
    with tempfile.TemporaryFile() as file, os.fdopen(ready.opened.again(), "rb") as clip:
        command = [engine.path, "-hide_banner", "-nostdin", "-loglevel", "error"]
        command += input_arguments(clip.fileno(), ready.source, 0, limits)
        command += ["-filter_complex", graph, "-map", "[chosen]", "-fps_mode", "passthrough"]
        command += ["-frames:v", str(len(numbers)), "-c:v", "mjpeg", "-q:v", "3", "-f", "mjpeg"]
        command += ["-fd", str(file.fileno()), "fd:"]
        try:
            with spawn_errors_as_node_fault():
                code, _, said = await run_command(command, [clip.fileno(), file.fileno()], within=PICTURE_TIMEOUT)
        except TimeoutError:
            raise EngineFailure(f"no pictures of {ready.opened.shown}: it takes too long") from None
        file.seek(0)
        content = file.read()
    found = [picture + JPEG_END for picture in content.split(JPEG_END) if picture]
    if code or len(found) != len(numbers):
        reason = said.strip().splitlines()[-1] if said.strip() else exit_description(code)
        raise EngineFailure(f"no pictures of {ready.opened.shown}: {reason}")
    return found
