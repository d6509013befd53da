"""Reading of libvmaf's log: column names, values, and errors for what is missing."""

import math
from collections.abc import Mapping, Sequence
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.scoring.engines.libvmaf_log import BLOCK, LibvmafLog, libvmaf_features, read_log
from vmafx.scoring.errors import EngineFailure

Frame = Mapping[str, float]
NO_FRAME = b'<VMAF version="2.3.0">\n  <frames>\n  </frames>\n  <pooled_metrics>\n  </pooled_metrics>\n</VMAF>\n'


def log(frames: Sequence[Frame], mean: float | None = None, numbers: Sequence[int] | None = None) -> bytes:
    """A log as libvmaf 2.3 writes it."""
    lines = ['<VMAF version="2.3.0">', '  <params qualityWidth="64" qualityHeight="64" />', "  <frames>"]
    for number, frame in zip(numbers or range(len(frames)), frames, strict=True):
        values = " ".join(f'{name}="{value:.6f}"' for name, value in frame.items())
        lines.append(f'    <frame frameNum="{number}" {values} />')
    average = math.fsum(frame["vmaf"] for frame in frames) / len(frames) if mean is None else mean
    lines += ["  </frames>", "  <pooled_metrics>", '    <metric name="adm2" min="1.0" max="1.0" mean="1.0" />']
    lines.append(f'    <metric name="vmaf" min="0.0" max="99.0" mean="{average:.6f}" harmonic_mean="{average:.6f}" />')
    return "\n".join([*lines, "  </pooled_metrics>", "  <aggregate_metrics />", "</VMAF>", ""]).encode()


def read(content: bytes, sent: int, features: Sequence[str] = (), subsample: int = 1) -> LibvmafLog:
    return read_log(BytesIO(content), sent, subsample, features)


def test_columns_have_short_names() -> None:
    frame = {"integer_adm2_egl_1": 0.9, "float_ssim": 0.8, "ciede2000": 30.0, "psnr_y": 40.0, "vmaf": 90.0}
    found = read(log([frame, frame]), 2, ("ssim", "ciede", "psnr"))
    assert found.version == "2.3.0"
    assert found.numbers.tolist() == [0, 1]
    assert {name: column.tolist() for name, column in found.values.items()} == {
        "adm2": [0.9, 0.9], "ssim": [0.8, 0.8], "ciede": [30.0, 30.0], "psnr_y": [40.0, 40.0], "vmaf": [90.0, 90.0],
    }  # fmt: skip


@given(st.permutations(["integer_motion2", "vmaf", "psnr_cb", "integer_vif_scale0", "new", "psnr_y", "integer_adm2"]))
def test_columns_have_one_order_whatever_that_of_libvmaf_is(names: list[str]) -> None:
    found = read(log([dict.fromkeys(names, 50.0)]), 1)
    assert list(found.values) == ["adm2", "motion2", "vif_scale0", "psnr_y", "psnr_cb", "vmaf", "new"]


def test_a_log_of_several_blocks_keeps_the_order_of_its_frames() -> None:
    frames = [{"adm2": number / 4, "vmaf": 99 - number / 128} for number in range(2 * BLOCK + 7)]
    found = read(log(frames, numbers=range(0, 3 * len(frames), 3)), 3 * len(frames) - 2, subsample=3)
    assert found.numbers.tolist() == list(range(0, 3 * len(frames), 3))
    for name in ("adm2", "vmaf"):
        assert found.values[name].tolist() == [round(frame[name], 6) for frame in frames]


@pytest.mark.parametrize(
    ("content", "sent", "features", "message"),
    [
        (log([{"vmaf": 90.0}]), 2, (), "has 1 frames, but 2 were sent"),
        (log([{"vmaf": 90.0}], numbers=[1]), 1, (), "has 1 frames, but 1 were sent"),
        (NO_FRAME, 1, (), "has 0 frames, but 1 were sent"),
        (NO_FRAME, 0, (), "has 0 frames, but 0 were sent"),
        (log([{"vmaf": 90.0}]), 1, ("cambi",), "libvmaf's log has no cambi"),
        (log([{"vmaf": 90.0, "float_ssim": math.nan}]), 1, (), "has no float_ssim for frame 0"),
        (log([{"vmaf": 90.0, "cambi": 1.0}, {"vmaf": 90.0}]), 2, (), "has no cambi for frame 1"),
        (log([{"vmaf": 90.0}], mean=91.0), 1, (), "differs from the mean of the frames"),
        (log([{"vmaf": 90.0}], mean=math.nan), 1, (), "differs from the mean of the frames"),
        (log([{"vmaf": 90.0}]).replace(b'"vmaf"', b'"other"'), 1, (), "differs from the mean of the frames"),
        (log([{"vmaf": 90.0}]).replace(b" mean=", b" other="), 1, (), "differs from the mean of the frames"),
        (log([{"vmaf": 90.0}]).replace(b"90.000000", b"ninety", 1), 1, (), "cannot be read"),
        (log([{"vmaf": 90.0}])[:-9], 1, (), "cannot be read"),
        (b"", 1, (), "cannot be read"),
    ],
)
def test_an_incomplete_log_is_an_error(content: bytes, sent: int, features: tuple[str, ...], message: str) -> None:
    with pytest.raises(EngineFailure, match=message):
        read(content, sent, features)


def test_with_subsampling_the_mean_is_not_compared() -> None:
    """libvmaf then computes it over other frames, or not at all."""
    frames, numbers = [{"vmaf": 90.0}, {"vmaf": 80.0}], [0, 2]
    for content in (log(frames, mean=90.0, numbers=numbers), log(frames, numbers=numbers).replace(b" mean=", b" x=")):
        assert read(content, 4, subsample=2).values["vmaf"].tolist() == [90.0, 80.0]


VALUES = st.floats(0, 100).map(lambda value: round(value, 6))
FRAMES = st.lists(st.fixed_dictionaries({"adm2": VALUES, "psnr_y": VALUES, "vmaf": VALUES}), min_size=1, max_size=5)


@given(FRAMES)
def test_every_value_is_read(frames: list[dict[str, float]]) -> None:
    found = read(log(frames), len(frames))
    for name, column in found.values.items():
        assert column.tolist() == [frame[name] for frame in frames]


@given(FRAMES, st.data())
def test_a_log_with_a_part_missing_is_an_error(frames: list[dict[str, float]], data: st.DataObject) -> None:
    """A full disk drops the end of the log, or blocks from its middle: no frame may be lost silently."""
    content = log(frames)
    first, last = content.index(b"<frame "), content.index(b" />\n  </frames>")
    start = data.draw(st.integers(0, last))
    end = data.draw(st.integers(max(first, start) + 60, len(content)))
    with pytest.raises(EngineFailure):
        read(content[:start] + content[end:], len(frames))


def test_features_that_are_infinite_for_identical_planes_are_reported_as_100() -> None:
    frame = {"vmaf": 90.0, "psnr_y": 41.0, "psnr_cb": 60.0, "psnr_cr": 60.0, "psnr_hvs_cb": math.inf}
    other = frame | {"psnr_hvs_cb": 55.0}
    assert read(log([other, frame]), 2).values["psnr_hvs_cb"].tolist() == [55.0, 100.0]
    for name in ("psnr_hvs_y", "psnr_hvs", "ciede2000"):  # luma does differ
        with pytest.raises(EngineFailure, match=f"has no {name} for frame 0"):
            read(log([frame | {name: math.inf}]), 1)


def test_features_that_can_be_infinite_are_measured_with_psnr() -> None:
    assert libvmaf_features(("ssim",)) == ["float_ssim"]
    assert libvmaf_features(("ciede",)) == ["ciede", "psnr"]
    assert libvmaf_features(("psnr", "psnr_hvs")) == ["psnr", "psnr_hvs"]
