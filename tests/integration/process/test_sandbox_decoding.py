"""PyAV in a confined process: it decodes, filters and encodes as it does outside."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.video import ffmpeg

FRAMES = 10
# Which decoder reads the file, and how the file is made.
CLIPS = {
    "h264.mp4": ("h264", ["-c:v", "libx264", "-f", "mp4"]),
    "hevc.mp4": ("hevc", ["-c:v", "libx265", "-x265-params", "log-level=none"]),
    "vp8.webm": ("vp8", ["-c:v", "libvpx"]),
    "vp9.webm": ("vp9", ["-c:v", "libvpx-vp9"]),
    "av1.mkv": ("libdav1d", ["-c:v", "libaom-av1", "-cpu-used", "8"]),
    "mpeg1.mpg": ("mpeg1video", ["-c:v", "mpeg1video"]),
    "mpeg2.ts": ("mpeg2video", ["-c:v", "mpeg2video", "-metadata", "service_name=h\u00e9"]),  # asks iconv for modules
    "mpeg4.avi": ("mpeg4", ["-c:v", "mpeg4"]),
    "wmv2.asf": ("wmv2", ["-c:v", "wmv2"]),
    "theora.ogv": ("theora", ["-c:v", "libtheora"]),
    "ffv1.mkv": ("ffv1", ["-c:v", "ffv1"]),
    "utvideo.avi": ("utvideo", ["-c:v", "utvideo"]),
    "prores.mov": ("prores", ["-c:v", "prores_ks"]),
    "dnxhr.mov": ("dnxhd", ["-c:v", "dnxhd", "-profile:v", "dnxhr_hq", "-pix_fmt", "yuv422p"]),
    "cineform.mov": ("cfhd", ["-c:v", "cfhd"]),
    "jpeg2000.mkv": ("jpeg2000", ["-c:v", "jpeg2000"]),
    "mjpeg.avi": ("mjpeg", ["-c:v", "mjpeg"]),
    "png.mkv": ("png", ["-c:v", "png"]),
    "gif.gif": ("gif", ["-c:v", "gif"]),
    "raw.y4m": ("rawvideo", ["-pix_fmt", "yuv420p"]),
}
SUBTITLE = "1\n00:00:00,000 --> 00:00:01,000\nhello\n"

DECODE = """
import json, os, sys, zlib
from fractions import Fraction
import av, av.filter, av.subtitles.codeccontext, av.subtitles.stream
from vmafx.process.sandbox import confine, limit_resources

def decode(threads):
    clip.seek(0)
    checksums = []
    with av.open(clip) as container:
        stream = container.streams.video[0]
        stream.thread_type, stream.codec_context.thread_count = "AUTO", threads
        for frame in container.decode(stream):
            checksums.append([zlib.crc32(plane) for plane in frame.planes])
            frames.append(frame)
        return stream.codec_context.codec.name, checksums

def filtered(frames):
    frame = frames[0]
    graph = av.filter.Graph()
    buffer = graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=Fraction(1, 25))
    graph.link_nodes(
        buffer, graph.add("scale", "96:64"), graph.add("format", "yuv420p"), graph.add("transpose", "1"),
        graph.add("fps", "25"), graph.add("buffersink"),
    ).configure()
    for number, frame in enumerate(frames):
        frame.pts, frame.time_base = number, Fraction(1, 25)
        graph.push(frame)
    graph.push(None)
    return graph.pull()

def jpeg(frame):
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt = frame.width, frame.height, "yuvj420p"
    encoder.time_base = Fraction(1, 25)
    packets = encoder.encode(frame.reformat(format="yuvj420p")) + encoder.encode(None)
    return b"".join(map(bytes, packets))

clip, frames = os.fdopen(0, "rb"), []
limit_resources(6 << 30)
if sys.argv[1] == "confined":
    parts = confine()
    assert parts.seccomp and parts.landlock and parts.limits
decoded = [decode(1), decode(4)]
small = filtered(frames[:3])
result = decoded, [small.width, small.height], zlib.crc32(small.planes[0]), zlib.crc32(jpeg(small))
sys.stdout.write(json.dumps(result))
"""


def run(code: str, path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    with path.open("rb") as clip:
        return subprocess.run(
            [sys.executable, "-I", "-c", code, *arguments],
            stdin=clip, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip


def make(path: Path, options: list[str]) -> Path:
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=256x128:r=25", "-frames:v", str(FRAMES), *options, path)
    return path


@pytest.mark.parametrize("name", CLIPS)
def test_a_clip_decodes_in_a_confined_process_as_outside(name: str, tmp_path: Path) -> None:
    decoder, options = CLIPS[name]
    clip = make(tmp_path / name, options)
    confined, free = run(DECODE, clip, "confined"), run(DECODE, clip, "free")
    assert (confined.returncode, confined.stderr) == (0, "")
    assert confined.stdout == free.stdout
    (alone, in_threads), size, _, _ = json.loads(confined.stdout)
    assert alone == in_threads
    assert (alone[0], len(alone[1]), size) == (decoder, FRAMES, [64, 96])


def test_streams_beside_the_video_need_nothing_more(tmp_path: Path) -> None:
    """PyAV imports a module for each kind of stream when it meets the first one."""
    video, subtitle, clip = make(tmp_path / "a.mp4", ["-c:v", "libx264"]), tmp_path / "a.srt", tmp_path / "a.mkv"
    subtitle.write_text(SUBTITLE)
    tone = ["-f", "lavfi", "-i", "sine=duration=0.4"]
    ffmpeg(
        "-i", video, "-i", subtitle, *tone, "-map", "0", "-map", "1", "-map", "2", "-c:v", "copy", "-c:a", "aac", clip
    )
    done = run(DECODE, clip, "confined")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads(done.stdout)[0][0][1]) == FRAMES


def test_a_damaged_clip_is_an_error_of_pyav(tmp_path: Path) -> None:
    clip = tmp_path / "damaged.mkv"
    clip.write_bytes(bytes(4096))
    done = run(DECODE, clip, "confined")
    assert done.returncode == 1
    assert "InvalidDataError" in done.stderr
