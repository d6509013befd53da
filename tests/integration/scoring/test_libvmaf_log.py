"""libvmaf's XML log, as the real engine writes it, beside its JSON log of the same clips."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from tests.support.video import ffmpeg
from vmafx.api.scoring import Feature
from vmafx.scoring.engines.libvmaf_log import libvmaf_features, read_log

FRAMES, EQUAL = 7, 3  # the first three frames of both clips are identical
FEATURES = get_args(Feature)


def write_log(path: Path, subsample: int) -> Path:
    clip = f"testsrc2=size=320x240:rate=25,trim=end_frame={FRAMES},format=yuv420p"
    features = "|".join(f"name={name}" for name in libvmaf_features(FEATURES))
    settings = f"log_fmt={path.suffix[1:]}:log_path={path}:n_subsample={subsample}:feature='{features}'"
    noise = f"noise=alls=20:allf=t:enable='gte(n,{EQUAL})'"
    graph = f"{clip},{noise}[distorted];{clip}[reference];[distorted][reference]libvmaf={settings}"
    ffmpeg("-filter_complex", graph, "-f", "null", "-")
    return path


@pytest.mark.parametrize("subsample", [1, 2])
def test_the_values_are_those_of_the_json_log(tmp_path: Path, subsample: int) -> None:
    expected = json.loads(write_log(tmp_path / "log.json", subsample).read_text())
    with write_log(tmp_path / "log.xml", subsample).open("rb") as file:
        log = read_log(file, FRAMES, subsample, FEATURES)
    frames = expected["frames"]
    assert log.version == expected["version"]
    assert log.numbers.tolist() == [frame["frameNum"] for frame in frames] == list(range(0, FRAMES, subsample))
    assert len(log.values) == len(frames[0]["metrics"])
    infinite = 0
    for name in frames[0]["metrics"]:
        values = [frame["metrics"][name] for frame in frames]
        infinite += values.count(None)
        column = log.values[re.sub("^(integer|float)_|2000$", "", name)]
        assert column.tolist() == [100.0 if value is None else value for value in values], name
    assert infinite == 5 * len(range(0, EQUAL, subsample))  # psnr_hvs of the frame and of its planes, and ciede
