"""Has the prober look at a clip, and waits no longer than a limit."""

import os
from pathlib import Path

import msgspec

from vmafx.api.scoring import RawFormat
from vmafx.process.child import exit_description, python_command, run_command
from vmafx.scoring.clip import Clip, ProbeRefusal, ProbeTask, raw_frame_bytes
from vmafx.scoring.errors import BadInput, InputPart, NodeFault, spawn_errors_as_node_fault
from vmafx.scoring.media.access import OpenedMedia
from vmafx.scoring.request import ClipLimits, Source

MIN_PROBE_RATE = 20e6  # bytes a second, of a disk that is waited for
PROBER = str(Path(__file__).with_name("prober.py"))


async def probe_clip(opened: OpenedMedia, source: Source, part: InputPart, limits: ClipLimits) -> Clip:
    if source.format is not None:
        _check_raw(opened, source.format, part)
    with os.fdopen(opened.again(), "rb") as file:
        task = ProbeTask(file.fileno(), source.format, limits.pixels, limits.frames, limits.memory)
        command = python_command(PROBER, msgspec.json.encode(task).decode())
        patience = limits.probe_seconds + opened.size / MIN_PROBE_RATE
        try:
            with spawn_errors_as_node_fault():
                code, out, err = await run_command(command, [file.fileno()], within=patience)
        except TimeoutError as error:
            raise NodeFault(f"{opened.shown} could not be read through in {patience:.0f} s") from error
    if code < 0:
        raise BadInput(
            part, f"reading it ended the reader with {exit_description(code)}: it is damaged, or made to do that"
        )
    if code or not out:
        raise NodeFault(f"the reader of clips failed: {(err.strip() or exit_description(code)).splitlines()[-1]}")
    answer = _answer(out)
    if isinstance(answer, ProbeRefusal):
        raise BadInput(part, f"{opened.shown}: {answer.why}")
    return answer


def _answer(out: str) -> Clip | ProbeRefusal:
    fields = msgspec.json.decode(out)
    return msgspec.convert(fields, ProbeRefusal) if "why" in fields else msgspec.convert(fields, Clip)


def _check_raw(opened: OpenedMedia, raw: RawFormat, part: InputPart) -> None:
    """A size or pixel format that is wrong mostly shows: the file is then no whole number of frames."""
    frame = raw_frame_bytes(raw)
    whole, rest = divmod(opened.size, frame)
    if rest or not whole:
        said = f"{raw.width}x{raw.height} {raw.pixelFormat}"
        raise BadInput(
            part,
            f"{opened.size:,} bytes are {opened.size / frame:.2f} frames of {said}; check size and pixel format",
            "see --size and --pix-fmt",
        )
