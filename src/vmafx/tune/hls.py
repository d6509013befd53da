"""An HLS master playlist for a ladder (RFC 8216): a variant stream for each rung, with its rates and codec."""

from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from vmafx.tune.results import LadderPoint, LadderResult
from vmafx.tune.shots import packets_of

SEGMENT_SECONDS = 6
HEVC_COMPATIBILITY_BITS = 32
VIDEO_RANGES = {16: "PQ", 18: "HLG"}  # by the transfer function of ITU-T H.273


def playlist(ladder: LadderResult) -> bytes:
    """The names of the media playlists are those that a packager would be told: 720p_1200k.m3u8."""
    lines = ["#EXTM3U", "#EXT-X-VERSION:7", "#EXT-X-INDEPENDENT-SEGMENTS"]
    for rung in ladder.rungs:
        lines.append(f"#EXT-X-STREAM-INF:{','.join(_attributes(rung, ladder))}")
        lines.append(f"{rung.height}p_{round(rung.encode.bitrate / 1000)}k.m3u8")
    return "\n".join(lines).encode() + b"\n"


def _attributes(rung: LadderPoint, ladder: LadderResult) -> Iterable[str]:
    """BANDWIDTH is the highest rate of a segment; without audio, which the packager adds."""
    path, average = Path(rung.encode.file), round(rung.encode.bitrate)
    yield f"BANDWIDTH={max(peak_rate(path, ladder), average)}"  # the average includes the container
    yield f"AVERAGE-BANDWIDTH={average}"
    codec, video_range = codec_and_range(path)
    if codec:
        yield f'CODECS="{codec}"'
    yield f"RESOLUTION={rung.width}x{rung.height}"
    yield f"FRAME-RATE={ladder.source.frameRate:.3f}"
    yield f"VIDEO-RANGE={video_range}"


def peak_rate(path: Path, ladder: LadderResult) -> int:
    """Bits per second of the largest segment. Each has as many groups of pictures as fit, but one at least."""
    rate = Fraction(ladder.source.frameRate).limit_denominator(1001)
    packets = packets_of(path)
    most, starts = round(SEGMENT_SECONDS * rate), [0]  # at 29.97 fps, 180 frames, which a packager takes as 6 s
    keys = [index for index, packet in enumerate(packets) if packet.is_key and index]
    for key, following in pairwise([*keys, len(packets)]):
        if following - starts[-1] > most:
            starts.append(key)
    segments = [packets[start:end] for start, end in pairwise([*starts, len(packets)])]
    whole = segments[:-1] if len(segments) > 1 and len(segments[-1]) < len(segments[0]) else segments
    return max(round(sum(one.size for one in segment) * 8 * float(rate) / len(segment)) for segment in whole)


def codec_and_range(path: Path) -> tuple[str, str]:
    """The codec as RFC 6381 writes it, empty if it is none that HLS knows; and SDR, PQ or HLG."""
    import av  # noqa: PLC0415

    with av.open(str(path)) as container:
        context = container.streams.video[0].codec_context
        name, extradata = context.name, bytes(context.extradata or b"")
        video_range = VIDEO_RANGES.get(context.color_trc, "SDR")
    return _codec(name, extradata), video_range


def _codec(name: str, extradata: bytes) -> str:
    match name:
        case "h264" if len(extradata) >= 4 and extradata[0] == 1:
            return f"avc1.{extradata[1:4].hex().upper()}"
        case "hevc" if len(extradata) >= 13 and extradata[0] == 1:
            return _hevc(extradata)
        case "libdav1d" | "av1" if len(extradata) >= 4 and extradata[0] == 0x81:
            return _av1(extradata)
    return ""


def _hevc(record: bytes) -> str:
    """From an HEVCDecoderConfigurationRecord (ISO/IEC 14496-15, annex E)."""
    space = ("", "A", "B", "C")[record[1] >> 6]
    tier = "H" if record[1] & 0x20 else "L"
    profile = record[1] & 0x1F
    compatibility = int(f"{int.from_bytes(record[2:6], 'big'):0{HEVC_COMPATIBILITY_BITS}b}"[::-1], 2)
    constraints = record[6:12].rstrip(b"\0")
    parts = [f"hvc1.{space}{profile}", f"{compatibility:X}", f"{tier}{record[12]}"]
    return ".".join([*parts, *(f"{byte:X}" for byte in constraints)])


def _av1(record: bytes) -> str:
    """From an AV1CodecConfigurationRecord."""
    profile, level = record[1] >> 5, record[1] & 0x1F
    tier = "H" if record[2] & 0x80 else "M"
    depth = (12 if record[2] & 0x20 else 10) if record[2] & 0x40 else 8
    return f"av01.{profile}.{level:02d}{tier}.{depth:02d}"
