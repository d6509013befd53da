"""Features and scores of a clip by the engine itself."""

import json
import subprocess
from pathlib import Path

from tests.oracle.clips import Clip
from tests.oracle.score import FIELDS, FrameScore


def score_clips(
    ffmpeg: Path, reference: Clip, distorted: Clip, folder: Path, *, model: str = "version=vmaf_v0.6.1"
) -> list[FrameScore]:
    """The values of ffmpeg's libvmaf filter for each frame; `folder` is for the clips and the log."""
    log = folder / "vmaf.json"
    inputs = []
    for name, clip in (("distorted", distorted), ("reference", reference)):
        size = "{}x{}".format(*clip.size)
        path = clip.write(folder / f"{name}.yuv")
        inputs += ["-f", "rawvideo", "-pix_fmt", clip.pixel_format, "-s", size, "-i", str(path)]
    vmaf = f"libvmaf=log_fmt=json:log_path={log}:model={model}"
    command = [str(ffmpeg), "-v", "error", "-nostdin", *inputs, "-lavfi", vmaf, "-f", "null", "-"]
    subprocess.run(command, check=True)
    frames = json.loads(log.read_text())["frames"]
    return [_read(frame["metrics"]) for frame in frames]


def _read(metrics: dict[str, float]) -> FrameScore:
    """By our names; a limit that is not the default is part of libvmaf's, as in integer_adm2_egl_1."""
    short = {name.removeprefix("integer_").partition("_egl_")[0]: value for name, value in metrics.items()}
    return FrameScore(**{field: short["vmaf" if field == "score" else field] for field in FIELDS})
