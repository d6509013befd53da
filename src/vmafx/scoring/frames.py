"""Single frames as pictures, for people to look at: as they were compared."""

import os
import tempfile

import msgspec

from vmafx.process.child import ended_by, output
from vmafx.scoring.engine import Engine
from vmafx.scoring.errors import EngineFailure, started_here
from vmafx.scoring.request import Limits
from vmafx.scoring.run import Ready, input_arguments

WIDTH = 640
JPEG_END = b"\xff\xd9"  # nowhere else in a JPEG: within its data, 0xff is followed by 0
PATIENCE = 3600.0


class Picture(msgspec.Struct, frozen=True):
    """One frame as it was and as it became, both as JPEG."""

    frame: int
    score: float
    reference: bytes
    distorted: bytes


async def pictures(engine: Engine, ready: Ready, chain: str, numbers: list[int], limits: Limits) -> list[bytes]:
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
            with started_here():
                code, _, said = await output(command, [clip.fileno(), file.fileno()], within=PATIENCE)
        except TimeoutError:
            raise EngineFailure(f"no pictures of {ready.opened.shown}: it takes too long") from None
        file.seek(0)
        content = file.read()
    found = [picture + JPEG_END for picture in content.split(JPEG_END) if picture]
    if code or len(found) != len(numbers):
        reason = said.strip().splitlines()[-1] if said.strip() else ended_by(code)
        raise EngineFailure(f"no pictures of {ready.opened.shown}: {reason}")
    return found
