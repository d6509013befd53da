"""Starts the prober for a clip, with a time limit, and reads its answer."""

import os
from pathlib import Path

import msgspec

from vmafx.api.scoring import RawFormat
from vmafx.process.child import exit_description, python_command, run_command
from vmafx.scoring.clip import Clip, ProbeRefusal, ProbeTask, raw_frame_bytes
from vmafx.scoring.errors import BadInput, InputPart, NodeFault, spawn_errors_as_node_fault
from vmafx.scoring.media.access import OpenedMedia
from vmafx.scoring.request import ClipLimits, Source

MIN_READ_RATE = 20e6  # bytes per second; the time limit allows for a disk this slow
PROBER = str(Path(__file__).with_name("prober.py"))


async def probe_clip(opened: OpenedMedia, source: Source, part: InputPart, limits: ClipLimits) -> Clip:
    """Raises BadInput for a clip that cannot be read or exceeds a limit."""
    if source.format is not None:
        _check_raw_size(opened, source.format, part)
    with os.fdopen(opened.reopen(), "rb") as file:
        task = ProbeTask(file.fileno(), source.format, limits.pixels, limits.frames, limits.memory)
        command = python_command(PROBER, msgspec.json.encode(task).decode())
        timeout = limits.probe_seconds + opened.size / MIN_READ_RATE
        try:
            with spawn_errors_as_node_fault():
                code, out, err = await run_command(command, [file.fileno()], within=timeout)
        except TimeoutError as error:
            raise NodeFault(
                f"probing {opened.display_name} took more than {timeout:.0f} s; the disk may be too slow, or the clip"
                " is damaged"
            ) from error
    if code < 0:
        why = f"reading it crashed ffmpeg's libraries ({exit_description(code)}): the clip is damaged or malicious"
        raise BadInput(part, why)
    if code or not out:
        raise NodeFault(f"the prober failed: {(err.strip() or exit_description(code)).splitlines()[-1]}")
    fields = msgspec.json.decode(out)
    if "why" in fields:
        refusal = msgspec.convert(fields, ProbeRefusal)
        raise BadInput(part, f"{opened.display_name}: {refusal.why}", refusal.remedy)
    return msgspec.convert(fields, Clip)


def _check_raw_size(opened: OpenedMedia, raw: RawFormat, part: InputPart) -> None:
    """Raises BadInput if the file is not a whole number of frames, as with a wrong frame size or pixel format."""
    frame_bytes = raw_frame_bytes(raw)
    frames, remainder = divmod(opened.size, frame_bytes)
    if remainder or not frames:
        raise BadInput(
            part,
            f"its {opened.size:,} bytes are not a whole number of {raw.width}x{raw.height} {raw.pixelFormat} frames"
            f" ({opened.size / frame_bytes:.2f})",
            "check --size and --pix-fmt",
        )
