"""Looks at one clip, in a process of its own: `python prober.py TASK`, the answer as JSON on standard output.

A clip is hostile until it has been read: what crashes, hangs or eats memory here takes only this process with it.
Packets are counted, one frame is decoded.
"""

import math
import os
import resource
import sys
from array import array
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import av
import msgspec
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vmafx.api.scoring import RawFormat
from vmafx.scoring.clip import CONTAINER_DEMUXERS, WITHOUT_TIMES, Clip, ProbeRefusal, ProbeTask, raw_options

MAX_PACKETS_TO_FIRST_FRAME = 500  # packets
RATE_NEEDS = 4  # packets
USUAL_RATES = (*map(Fraction, (12, 15, 24, 25, 30, 48, 50, 60, 90, 100, 120)),
               *(Fraction(rate * 1000, 1001) for rate in (24, 30, 48, 60, 120)))  # fmt: skip
NEARLY = 3e-4  # less than between 24 and 23.976
JUMP, JUMPS_KEPT = 0.5, 200
PROTOCOLS = "fd"  # whatever a clip refers to stays closed


class _Refused(Exception):
    pass


def main() -> None:
    task = msgspec.json.decode(sys.argv[1], type=ProbeTask)
    resource.setrlimit(resource.RLIMIT_AS, (task.memory, task.memory))
    answer: Clip | ProbeRefusal
    try:
        answer = probe(task)
    except _Refused as refused:
        answer = ProbeRefusal(str(refused))
    except MemoryError:
        answer = ProbeRefusal(f"it cannot be read within {task.memory >> 20} MiB of memory")
    except (av.FFmpegError, ValueError) as error:
        answer = ProbeRefusal(_why(error, raw=task.raw is not None))
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def _why(error: Exception, *, raw: bool) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    hint = "" if raw else ": it is no video, or it is cut off; for raw video, give its size and pixel format"
    return f"ffmpeg's libraries cannot read it ({reason}){hint}"


def probe(task: ProbeTask) -> Clip:
    options = {"format_whitelist": ",".join(CONTAINER_DEMUXERS), "protocol_whitelist": PROTOCOLS}
    with (
        os.fdopen(task.fd, "rb") as file,
        av.open(
            file,
            format="rawvideo" if task.raw else None,
            container_options=options | (raw_options(task.raw) if task.raw else {}),
            metadata_errors="replace",
        ) as container,
    ):
        moving = _moving(container.streams.video)
        stream = moving[0]
        context = stream.codec_context
        if context is None:
            raise _Refused("its codec is not known to ffmpeg's libraries")
        _check_size(context.width, context.height, task.pixels)
        context.options = {"max_pixels": str(task.pixels)}
        seen = _walk(container, stream, task.frames)
        frame = seen.frame
        if frame is None:
            raise _Refused("no frame of it can be decoded")
        tick = float(stream.time_base or 0)
        _check_size(frame.width, frame.height, task.pixels)
        turned = frame.rotation % 180 == 90
        chroma = _chroma(frame)
        aspect = float(stream.sample_aspect_ratio or 1)
        return Clip(
            container=container.format.name,
            codec=context.name,
            stream=stream.index,
            width=frame.height if turned else frame.width,
            height=frame.width if turned else frame.height,
            pixel_format=frame.format.name,
            depth=max(component.bits for component in frame.format.components),
            chroma=chroma,
            full_range=_full_range(frame),
            matrix=int(frame.colorspace),
            transfer=int(frame.color_trc),
            pixel_aspect=1 / aspect if turned else aspect,
            rotation=frame.rotation,
            interlaced=bool(frame.interlaced_frame),
            packets=seen.packets,
            broken=seen.broken,
            rate=_rate(stream, container.format.name, task.raw, seen.packets),
            even=_even(seen.steps()),
            seconds=seen.ticks() * tick,
            longest=seen.longest * tick,
            jumps=_jumps(seen.steps()),
            streams=len(moving),
        )


def _moving(streams: Any) -> list[VideoStream]:
    """Those that are no cover pictures, the one to be shown by default first."""
    kinds = av.stream.Disposition
    moving = [one for one in streams if not one.disposition & kinds.attached_pic]
    if not moving:
        raise _Refused("it has no video stream")
    return sorted(moving, key=lambda one: not one.disposition & kinds.default)


def _check_size(width: int, height: int, pixels: int) -> None:
    if width * height > pixels:
        raise _Refused(f"its frames of {width}x{height} are larger than the limit of {pixels:,} pixels")


class _Seen:
    """What came by on the way through a clip."""

    def __init__(self) -> None:
        self.packets = self.broken = self.longest = 0
        self.frame: VideoFrame | None = None
        self._times = array("q")  # of showing; not in order
        self._duration = 0
        self._before: int | None = None

    def note(self, packet: Any) -> None:
        self.packets += 1
        if packet.pts is not None:
            self._times.append(packet.pts)
            self._duration = packet.duration or self._duration
        if packet.dts is not None:  # these come in order, which times of showing do not
            if self._before is not None:
                self.longest = max(self.longest, packet.dts - self._before)
            self._before = packet.dts

    def ticks(self) -> int:
        return max(self._times) - min(self._times) + self._duration if self._times else 0

    def steps(self) -> list[int]:
        """From frame to frame, as they are shown."""
        return [later - earlier for earlier, later in pairwise(sorted(self._times))]


def _walk(container: Any, stream: VideoStream, limit: int) -> _Seen:
    """Count what will be shown, note the times, and decode the first frame."""
    for other in container.streams:
        if other.index != stream.index:
            other.discard = av.stream.Discard.all
    seen = _Seen()
    for packet in container.demux(stream):
        if seen.frame is None and seen.packets < MAX_PACKETS_TO_FIRST_FRAME:
            seen.frame = next(_decoded(packet), None)
        if packet.size == 0:  # the end
            continue
        seen.broken += packet.is_corrupt
        if not packet.is_discard:
            seen.note(packet)
        if seen.packets > limit:
            raise _Refused(f"it has more than {limit:,} frames, which is the limit")
    return seen


def _decoded(packet: Any) -> Iterator[VideoFrame]:
    try:
        yield from packet.decode()
    except av.error.InvalidDataError:  # a clip may begin in the middle of something
        return


def _chroma(frame: VideoFrame) -> str:
    layout = frame.format
    if layout.is_rgb or layout.name == "pal8" or layout.name.startswith("xyz"):
        return "rgb"  # or a palette of it
    if len(layout.components) < 3:
        return "gray"
    across, down = 64 // layout.chroma_width(64), 64 // layout.chroma_height(64)
    return {(2, 2): "420", (2, 1): "422", (1, 1): "444"}.get((across, down), "444" if across * down < 4 else "420")


def _full_range(frame: VideoFrame) -> bool | None:
    if frame.format.name.startswith("yuvj"):
        return True
    return {1: False, 2: True}.get(int(frame.color_range))


def _rate(stream: VideoStream, container: str, raw: RawFormat | None, packets: int) -> str | None:
    if container in WITHOUT_TIMES and not (raw and raw.frameRate):
        return None
    if raw is None and packets < RATE_NEEDS:  # some containers then tell fields for frames
        return None
    rate = stream.average_rate or stream.base_rate
    return str(_usual(rate)) if rate else None


def _usual(rate: Fraction) -> Fraction:
    """A rate that is nearly one of the usual ones is that one: containers tell it by times that they have rounded."""
    return next((usual for usual in USUAL_RATES if abs(rate / usual - 1) < NEARLY), rate)


def _even(steps: list[int]) -> bool:
    """Whether no distance between two frames is off the middle one by more than rounding explains."""
    if not steps:
        return True
    ranked = sorted(steps)
    middle = ranked[len(ranked) // 2]
    return all(math.isclose(step, middle, rel_tol=0.1, abs_tol=1.5) for step in (ranked[0], ranked[-1]))


def _jumps(steps: list[int]) -> tuple[tuple[int, float], ...] | None:
    """The frames that come later than they should, or sooner, and by how many frames."""
    if not steps:
        return ()
    middle = sorted(steps)[len(steps) // 2]
    if middle <= 0:
        return None
    late = [(number + 1, step / middle - 1) for number, step in enumerate(steps) if abs(step / middle - 1) > JUMP]
    return tuple(late) if len(late) <= JUMPS_KEPT else None


if __name__ == "__main__":
    main()
