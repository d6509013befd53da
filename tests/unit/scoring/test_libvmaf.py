"""Parsing of libvmaf's log: column names, and errors for missing values."""

from typing import Any

import msgspec
import pytest

from vmafx.scoring.errors import EngineFailure
from vmafx.scoring.libvmaf import columns, decode_log, libvmaf_features


def log(frames: list[dict[str, Any]], mean: float | None = None, numbers: list[int] | None = None) -> bytes:
    listed = [
        {"frameNum": number, "metrics": metrics}
        for number, metrics in zip(numbers or range(len(frames)), frames, strict=True)
    ]
    average = sum(frame["vmaf"] for frame in frames) / len(frames) if mean is None else mean
    return msgspec.json.encode({"version": "2.3.0", "frames": listed, "pooled_metrics": {"vmaf": {"mean": average}}})


def test_columns_have_short_names() -> None:
    frame = {"integer_adm2_egl_1": 0.9, "float_ssim": 0.8, "ciede2000": 30.0, "psnr_y": 40.0, "vmaf": 90.0}
    numbers, table = columns(decode_log(log([frame, frame])), 2, 1, ("ssim", "ciede", "psnr"))
    assert numbers == [0, 1]
    assert set(table) == {"adm2", "ssim", "ciede", "psnr_y", "vmaf"}


@pytest.mark.parametrize(
    ("content", "sent", "features", "message"),
    [
        (log([{"vmaf": 90.0}]), 2, (), "has 1 frames, but 2 were sent"),
        (log([{"vmaf": 90.0}], numbers=[1]), 1, (), "has 1 frames, but 1 were sent"),
        (log([{"vmaf": 90.0}]), 1, ("cambi",), "libvmaf's log has no cambi"),
        (log([{"vmaf": 90.0, "float_ssim": None}]), 1, (), "has no float_ssim for frame 0"),
        (log([{"vmaf": 90.0, "cambi": 1.0}, {"vmaf": 90.0}]), 2, (), "has no cambi for frame 1"),
        (log([{"vmaf": 90.0}], mean=91.0), 1, (), "differs from the mean of the frames"),
        (b'{"version": "2.3.0", "frames": [', 1, (), "cannot be read"),
        (b"", 1, (), "cannot be read"),
    ],
)
def test_an_incomplete_log_is_an_error(content: bytes, sent: int, features: tuple[str, ...], message: str) -> None:
    with pytest.raises(EngineFailure, match=message):
        columns(decode_log(content), sent, 1, features)


def test_features_that_are_infinite_for_identical_planes_are_reported_as_100() -> None:
    frame = {"vmaf": 90.0, "psnr_y": 41.0, "psnr_cb": 60.0, "psnr_cr": 60.0, "psnr_hvs_cb": None}
    _, table = columns(decode_log(log([frame])), 1, 1, ())
    assert table["psnr_hvs_cb"] == [100.0]
    for name in ("psnr_hvs_y", "psnr_hvs", "ciede2000"):  # luma does differ
        with pytest.raises(EngineFailure, match=f"has no {name} for frame 0"):
            columns(decode_log(log([frame | {name: None}])), 1, 1, ())


def test_features_that_can_be_infinite_are_measured_with_psnr() -> None:
    assert libvmaf_features(("ssim",)) == ["float_ssim"]
    assert libvmaf_features(("ciede",)) == ["ciede", "psnr"]
    assert libvmaf_features(("psnr", "psnr_hvs")) == ["psnr", "psnr_hvs"]
