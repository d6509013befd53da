"""Inspects a clip: demuxes all of it, decodes one frame, and derives its properties."""

import math
from array import array
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import msgspec
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vmafx.api.scoring import RawFormat
from vmafx.scoring.clip import MAX_GAPS, Chroma, Clip
from vmafx.scoring.decoder.container import OpenedVideo, Refused, check_frame_size, open_video
from vmafx.scoring.decoder.convert import display_matrix
from vmafx.scoring.decoder.formats import WITHOUT_TIMESTAMPS
from vmafx.scoring.decoder.hdr_metadata import hdr_metadata
from vmafx.scoring.decoder.messages import InspectTask

MAX_PACKETS_TO_FIRST_FRAME = 500
MIN_PACKETS_FOR_RATE = 4
STANDARD_RATES = (*map(Fraction, (12, 15, 24, 25, 30, 48, 50, 60, 90, 100, 120)),
                  *(Fraction(rate * 1000, 1001) for rate in (24, 30, 48, 60, 120)))  # fmt: skip
RATE_TOLERANCE = 3e-4  # smaller than the difference between 24 and 23.976
MIN_GAP = 0.5  # frames


def inspect_clip(fd: int, task: InspectTask) -> Clip:
    """Counts all packets and decodes one frame. Raises Refused."""
    with open_video(fd, task) as video:
        stream, container = video.stream, video.container
        demuxed = _demux(video, task.frames)
        frame = demuxed.first_frame
        if frame is None:
            raise Refused("none of its frames can be decoded")
        check_frame_size(frame.width, frame.height, task.pixels)
        time_base = float(stream.time_base or 0)
        durations = demuxed.frame_durations()
        matrix = display_matrix(frame)
        turned = bool(matrix) and abs(matrix[1]) > abs(matrix[0])
        pixel_aspect = float(stream.sample_aspect_ratio or 1)
        clip = Clip(
            container=container.format.name,
            codec=stream.codec_context.name,
            width=frame.height if turned else frame.width,
            height=frame.width if turned else frame.height,
            pixel_format=frame.format.name,
            bit_depth=max(component.bits for component in frame.format.components),
            chroma=_chroma(frame),
            full_range=_full_range(frame),
            matrix=int(frame.colorspace),
            transfer=int(frame.color_trc),
            primaries=int(frame.color_primaries),
            hdr=hdr_metadata(frame),
            pixel_aspect=1 / pixel_aspect if turned else pixel_aspect,
            interlaced=bool(frame.interlaced_frame),
            packets=demuxed.packets,
            corrupt_packets=demuxed.corrupt,
            frame_rate=_frame_rate(stream, container.format.name, task.raw, demuxed.packets),
            constant_rate=_is_constant(durations),
            duration=demuxed.ticks() * time_base,
            longest_frame=demuxed.longest * time_base,
            gaps=_gaps(durations),
            video_streams=video.streams,
        )
    try:
        return msgspec.convert(msgspec.to_builtins(clip), Clip)  # its limits are checked only in a conversion
    except msgspec.ValidationError as error:
        raise Refused(f"its properties are out of range: {error}") from error


class _Demuxed:
    """The first frame of a stream, and statistics of its packets. Times are in ticks of the stream's time base."""

    def __init__(self) -> None:
        self.packets = self.corrupt = self.longest = 0
        self.first_frame: VideoFrame | None = None
        self._pts = array("q")  # in decoding order
        self._last_duration = 0
        self._last_dts: int | None = None

    def add(self, packet: Any) -> None:
        self.packets += 1
        if packet.pts is not None:
            self._pts.append(packet.pts)
            self._last_duration = packet.duration or self._last_duration
        if packet.dts is not None:  # unlike pts, dts are in order
            if self._last_dts is not None:
                self.longest = max(self.longest, packet.dts - self._last_dts)
            self._last_dts = packet.dts

    def ticks(self) -> int:
        """From the first frame to the end of the last, which lasts as long as the one before if that is not stated."""
        if not self._pts:
            return 0
        *_, before, last = [self._pts[0], *sorted(self._pts)]
        return last - min(self._pts) + (self._last_duration or last - before)

    def frame_durations(self) -> "array[float]":
        """Differences of successive timestamps, in display order; those of a hostile clip can exceed 64 bits."""
        return array("d", (later - earlier for earlier, later in pairwise(sorted(self._pts))))


def _demux(video: OpenedVideo, max_frames: int) -> _Demuxed:
    """Reads all packets of the stream and decodes the first frame."""
    demuxed = _Demuxed()
    for packet in video.packets():
        if demuxed.first_frame is None and demuxed.packets < MAX_PACKETS_TO_FIRST_FRAME:
            demuxed.first_frame = next(iter(video.decode(packet)), None)
        if packet is None or packet.size == 0:  # the flush packet at the end
            continue
        demuxed.corrupt += packet.is_corrupt
        if not packet.is_discard:
            demuxed.add(packet)
        if demuxed.packets > max_frames:
            raise Refused(f"it has more than {max_frames:,} frames, which is the limit")
    return demuxed


def _chroma(frame: VideoFrame) -> Chroma:
    layout = frame.format
    if layout.is_rgb or layout.name == "pal8" or layout.name.startswith("xyz"):
        return "rgb"
    if len(layout.components) < 3:
        return "gray"
    across, down = 64 // layout.chroma_width(64), 64 // layout.chroma_height(64)
    if (across, down) == (2, 1):
        return "422"
    return "444" if across * down < 4 else "420"


def _full_range(frame: VideoFrame) -> bool | None:
    if frame.format.name.startswith("yuvj"):
        return True
    return {1: False, 2: True}.get(int(frame.color_range))


def _frame_rate(stream: VideoStream, container: str, raw: RawFormat | None, packets: int) -> str | None:
    if container in WITHOUT_TIMESTAMPS and not (raw and raw.frameRate):
        return None
    if raw is None and packets < MIN_PACKETS_FOR_RATE:  # some containers then report the field rate
        return None
    # The demuxer of DV reports its time base as the average.
    rate = stream.base_rate if container == "dv" else stream.average_rate or stream.base_rate
    return str(_snap_rate(rate)) if rate else None


def _snap_rate(rate: Fraction) -> Fraction:
    """The standard frame rate next to `rate`, if there is one: containers round timestamps, and the rate with them."""
    return next((standard for standard in STANDARD_RATES if abs(rate / standard - 1) < RATE_TOLERANCE), rate)


def _is_constant(durations: Sequence[float]) -> bool:
    """Whether all frame durations equal the median, apart from rounding."""
    if not durations:
        return True
    ranked = sorted(durations)
    median = ranked[len(ranked) // 2]
    return all(math.isclose(duration, median, rel_tol=0.1, abs_tol=1.5) for duration in (ranked[0], ranked[-1]))


def _gaps(durations: Sequence[float]) -> tuple[tuple[int, float], ...] | None:
    """The frames that are late, or early, and by how many frames; None if there are too many."""
    if not durations:
        return ()
    median = sorted(durations)[len(durations) // 2]
    if median <= 0:
        return None
    late_by = ((number, duration / median - 1) for number, duration in enumerate(durations, start=1))
    gaps = tuple((number, frames) for number, frames in late_by if abs(frames) > MIN_GAP)
    return gaps if len(gaps) <= MAX_GAPS else None
