"""The reference clip and its encodes. One ffmpeg makes all of them, so each frame is generated once.

The clip pans across a landscape: sky, far and near hills, textured with noise, move at three speeds, with some grain.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vmafx.demo.progress import DemoError
from vmafx.process.tether import tethered
from vmafx.scoring.engines.ffmpeg import ffmpeg_path

SIZE, RATE, SECONDS = "640x360", 24, 2
REFERENCE = "reference.mkv"
_STILL = "trim=end_frame=1,loop=-1:1"  # generate one frame and repeat it
_LAYER_SIZE = "960x360"  # wider than the frame: layers pan


class Encode(msgspec.Struct, frozen=True):
    """One encode of the reference; its job has the same name."""

    name: str
    codec: str
    file: str
    options: str

    def kbits(self, folder: Path) -> float:
        """Bitrate in kbit/s, including the container."""
        return (folder / self.file).stat().st_size * 8 / 1000 / SECONDS


ENCODES = (
    Encode("h264-low", "H.264", "h264-low.mp4", "-c:v libx264 -preset veryfast -crf 34"),
    Encode("h264-mid", "H.264", "h264-mid.mp4", "-c:v libx264 -preset veryfast -crf 27"),
    Encode("h264-high", "H.264", "h264-high.mp4", "-c:v libx264 -preset veryfast -crf 21"),
    Encode("hevc", "HEVC", "hevc.mp4", "-c:v libx265 -preset superfast -crf 28 -x265-params log-level=none"),
    Encode("vp9", "VP9", "vp9.webm", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -crf 38 -b:v 0"),
    Encode("av1", "AV1", "av1.mp4", "-c:v libaom-av1 -usage realtime -cpu-used 8 -crf 40 -b:v 0"),
)


class EncodeProcess:
    """The ffmpeg that makes the reference and its encodes, in the background."""

    def __init__(self, folder: Path, encodes: Sequence[Encode] = ENCODES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            tethered([ffmpeg_path(), *_arguments(folder, encodes)]),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def wait(self) -> None:
        """Return when all clips are written; raise DemoError if ffmpeg fails."""
        _, log = self._process.communicate()
        if self._process.returncode:
            reason = (log.strip().splitlines() or ["no error message"])[0]
            raise DemoError(f"ffmpeg failed to encode the clips: {reason}; `vmafx doctor` shows which ffmpeg is used")

    def stop(self) -> None:
        """Kill ffmpeg if it is still running."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()


def _arguments(folder: Path, encodes: Sequence[Encode]) -> list[str]:
    outputs = ["-map", "[reference]", "-c:v", "libx264", "-preset", "ultrafast", "-qp", "0", str(folder / REFERENCE)]
    for number, encode in enumerate(encodes):
        outputs += ["-map", f"[encode{number}]", *encode.options.split(), str(folder / encode.file)]
    graph = _landscape(len(encodes))
    return ["-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-filter_complex", graph, *outputs]


def _landscape(count: int) -> str:
    """A filter graph with the outputs `reference` and `encode0`, `encode1` and so on."""
    far = "150+26*sin(X/95)+12*sin(X/41+2)+4*sin(X/11)"
    near = "215+22*sin(X/70+1)+9*sin(X/23)+3*sin(X/5)"
    encodes = "".join(f"[encode{number}]" for number in range(count))
    finish = f"noise=alls=3:allf=t,format=yuv420p,split={count + 1}[reference]{encodes}"
    return ";".join((
        f"{_noise('0x8fb4d8', 10, 18)},{_STILL},format=rgba[sky]",
        f"{_noise('0x56708f', 20, 70)},{_cut_above(far)},{_STILL}[far]",
        f"{_noise('0x4c6b3c', 30, 95)},{_cut_above(near)},{_STILL}[near]",
        f"color=s={SIZE}:r={RATE}:d={SECONDS}[canvas]",
        "[canvas][sky]overlay=x='-40-12*t':shortest=1[with_sky]",
        "[with_sky][far]overlay=x='-60-36*t':shortest=1[with_far]",
        f"[with_far][near]overlay=x='-20-95*t':y='6*sin(5*t)':shortest=1,{finish}",
    ))  # fmt: skip


def _noise(tint: str, seed: int, fine: int) -> str:
    """A tinted texture of coarse, medium and fine noise; `fine` is the strength of the fine noise."""
    sizes = ((tint, "30x12", 60), ("gray", "120x45", 55), ("gray", "480x180", fine))
    layers = [
        f"color=c={colour}:s={size},format=yuv444p,noise=c0s={strength}:c0f=u:c0_seed={seed + number},"
        f"scale={_LAYER_SIZE}:flags=bicubic,format=gbrp[n{seed}{number}]"
        for number, (colour, size, strength) in enumerate(sizes)
    ]
    mixed = f"[n{seed}0][n{seed}1]blend=all_mode=softlight[m{seed}];[m{seed}][n{seed}2]blend=all_mode=softlight"
    return ";".join((*layers, mixed))


def _cut_above(ridge: str) -> str:
    """Make the layer transparent above the ridge line."""
    return f"format=rgba,geq=r='r(X,Y)':g='g(X,Y)':b='b(X,Y)':a='255*gt(Y,{ridge})'"
