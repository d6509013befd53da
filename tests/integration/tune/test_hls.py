"""What a master playlist says about the rungs of a ladder, computed from files with known packets."""

from pathlib import Path

import av
import pytest

from tests.support.video import ffmpeg
from vmafx.tune.hls import codec_and_range, peak_rate, playlist
from vmafx.tune.results import EncodeResult, LadderPoint, LadderResult, SourceFacts

NOISE = "nullsrc=s=64x64:r={rate},geq=lum='random(1)*255*gte(T,{hard})':cb=128:cr=128"


def ladder_of(path: Path, frame_rate: float) -> LadderResult:
    encode = EncodeResult(quality=30, bytes=1000, bitrate=1000.0, frames=1, score=90.0, lowest=80.0, file=str(path))
    return LadderResult(
        source=SourceFacts("a.mkv", "sha256:ab", 64, 64, 1, frame_rate), model="m", pooling="mean", encoder="libx264",
        preset="medium", codec="H.264", keyFrames=60, rungs=(LadderPoint(64, 64, encode),), encodes=(),
    )  # fmt: skip


@pytest.mark.parametrize(("rate", "gop"), [("30000/1001", 60), ("24000/1001", 48), ("25", 50), ("60000/1001", 120)])
def test_the_bandwidth_is_the_rate_of_the_largest_segment_of_six_seconds(rate: str, gop: int, tmp_path: Path) -> None:
    """At 29.97 fps, three groups of pictures of two seconds last 6.006 s, which packagers take as one segment."""
    path = tmp_path / "a.mp4"
    ffmpeg(
        "-f", "lavfi", "-i", NOISE.format(rate=rate, hard=10), "-frames:v", str(gop * 7), "-c:v", "libx264",
        "-preset", "ultrafast", "-g", str(gop), "-sc_threshold", "0", "-crf", "40", path,
    )  # fmt: skip
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        fps = float(container.streams.video[0].average_rate or 0)
    segments = [packets[start : start + 3 * gop] for start in (0, 3 * gop)]  # the last one is shorter
    expected = max(sum(packet.size for packet in one) * 8 * fps / (3 * gop) for one in segments)
    assert peak_rate(path, ladder_of(path, round(fps, 3))) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("encoder", ["libx264", "libx265", "libaom-av1"])
@pytest.mark.parametrize(("transfer", "expected"), [("bt709", "SDR"), ("smpte2084", "PQ"), ("arib-std-b67", "HLG")])
def test_players_are_told_of_hdr(encoder: str, transfer: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    ffmpeg(
        "-f", "lavfi", "-i", f"color=s=64x64,format=yuv420p10,setparams=color_trc={transfer}", "-frames:v", "2",
        "-c:v", encoder, "-color_trc", transfer, path,
    )  # fmt: skip
    assert codec_and_range(path)[1] == expected
    assert f",VIDEO-RANGE={expected}\n".encode() in playlist(ladder_of(path, 25))
