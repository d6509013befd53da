"""Small intact clips in every container and codec that the decoder accepts and some encoder here writes.

All show the same scene, so that each can be scored against REFERENCE.
The same encoders always write the same bytes.
"""

from pathlib import Path

from tests.support.video import ffmpeg, lossless, scene
from vmafx.api.scoring import RawFormat
from vmafx.scoring.decoder.formats import CONTAINERS, DECODERS, STREAMS
from vmafx.scoring.request import Source
from vmafx.scoring.result import Report

SIZE = (128, 96)
FRAMES = 6
REFERENCE = "ffv1.mkv"
RAW_FORMAT = RawFormat(width=SIZE[0], height=SIZE[1], pixelFormat="yuv420p", frameRate=25.0)

X264 = "-c:v libx264 -g 3 -bf 1"
X265 = "-c:v libx265 -x265-params log-level=none"
AOM = "-c:v libaom-av1 -cpu-used 8"
VP8 = "-c:v libvpx -deadline realtime"
VP9 = "-c:v libvpx-vp9 -deadline realtime"
DNXHR = "-s 256x192 -c:v dnxhd -profile:v dnxhr_lb -pix_fmt yuv422p"
DV = "-vf scale=720:576,setsar=16/15 -c:v dvvideo -pix_fmt yuv420p"
# File names, and the options of ffmpeg that write them.
CLIPS = {
    REFERENCE: "-c:v ffv1",
    "h264.mp4": f"{X264} -movflags +faststart",
    "fragmented.mp4": f"{X264} -movflags frag_keyframe+empty_moov",
    "h264-10bit.mov": f"{X264} -pix_fmt yuv422p10le",
    "h264.mkv": X264,
    "h264.ts": X264,
    "h264.flv": X264,
    "h264.264": X264,
    "hevc.mp4": X265,
    "hevc.265": X265,
    "av1.webm": AOM,
    "av1.ivf": AOM,
    "av1.obu": AOM,
    "vp9.webm": VP9,
    "vp9.ivf": VP9,
    "vp8.webm": VP8,
    "vp8.ivf": VP8,
    "mpeg2.ts": "-c:v mpeg2video -bf 1",
    "mpeg2.vob": "-c:v mpeg2video -f vob",
    "mpeg2.mxf": "-c:v mpeg2video",
    "mpeg2.m2v": "-c:v mpeg2video",
    "mpeg1.mpg": "-c:v mpeg1video",
    "mpeg1.m1v": "-c:v mpeg1video",
    "mpeg4.avi": "-c:v mpeg4",
    "mpeg4.asf": "-c:v mpeg4",
    "mpeg4.m4v": "-c:v mpeg4 -f m4v",
    "h263.3gp": "-c:v h263",
    "sorenson.flv": "-c:v flv",
    "theora.ogv": "-c:v libtheora",
    "prores.mov": "-c:v prores_ks",
    "prores-alpha.mov": "-c:v prores_ks -profile:v 4444 -pix_fmt yuva444p10le",
    "dnxhr.mov": DNXHR,
    "dnxhr.mxf": DNXHR,
    "dnxhr.dnxhd": DNXHR,
    "jpeg2000.mxf": "-c:v jpeg2000",
    "cineform.mov": "-c:v cfhd",
    "ffv1.nut": "-c:v ffv1 -level 3 -slicecrc 1",
    "huffyuv.avi": "-c:v huffyuv -pix_fmt yuv422p",
    "ffvhuff.nut": "-c:v ffvhuff",
    "utvideo.avi": "-c:v utvideo",
    "magicyuv.avi": "-c:v magicyuv",
    "mjpeg.avi": "-c:v mjpeg -pix_fmt yuvj420p",
    "mjpeg.mjpeg": "-c:v mjpeg -pix_fmt yuvj420p",
    "dv.dv": DV,
    "dv.avi": DV,
    "v210.mov": "-c:v v210 -pix_fmt yuv422p10le",
    "v410.mov": "-c:v v410 -pix_fmt yuv444p10le",
    "raw.avi": "-c:v rawvideo",
    "raw.nut": "-c:v rawvideo",
    "raw.y4m": "",
    "raw.yuv": "",
    "animation.gif": "",
    "png.mov": "-c:v png",
    "animation.mov": "-c:v qtrle -pix_fmt rgb24",
    "still.png": "-frames:v 1 -update 1",
    "still.jpg": "-frames:v 1 -update 1 -pix_fmt yuvj420p",
}
WITH_SOUND = {
    "sound.mp4": f"{X264} -c:a aac",
    "sound.mkv": f"{X264} -c:a flac",
    "sound.ts": "-c:v mpeg2video -c:a mp2",
}


def make_intact_clips(folder: Path) -> dict[str, Path]:
    """Writes the clips to the folder; all paths by name."""
    master = lossless(scene(FRAMES, SIZE), folder / "master.mkv")
    sound = ("-f", "lavfi", "-i", f"sine=duration={FRAMES / 25}")
    exact = ("-threads", "1", "-fflags", "+bitexact", "-flags:v", "+bitexact", "-flags:a", "+bitexact")
    for name, options in CLIPS.items():
        ffmpeg("-i", master, *options.split(), *exact, folder / name)
    for name, options in WITH_SOUND.items():
        ffmpeg("-i", master, *sound, *options.split(), *exact, folder / name)
    return {name: folder / name for name in (*CLIPS, *WITH_SOUND)}


def source(path: Path) -> Source:
    return Source(str(path), RAW_FORMAT if path.suffix == ".yuv" else None)


def not_covered(reports: list[Report]) -> list[str]:
    """The accepted formats that none of the scored clips has."""
    containers = {name for report in reports for name in report.result.distorted.container.split(",")}
    codecs = {report.result.distorted.codec for report in reports}
    return [
        *(f"container {name}" for name in (*CONTAINERS, *STREAMS) if name not in containers),
        *(f"decoder {name}" for name in DECODERS if name not in codecs),
    ]
