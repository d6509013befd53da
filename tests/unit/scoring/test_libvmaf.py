"""What libvmaf's log may leave out, and must not."""

from typing import Any

import msgspec
import pytest

from vmafx.scoring.errors import EngineFailure
from vmafx.scoring.libvmaf import asked_for, columns, decode_log


def log(frames: list[dict[str, Any]], mean: float | None = None, numbers: list[int] | None = None) -> bytes:
    listed = [
        {"frameNum": number, "metrics": metrics}
        for number, metrics in zip(numbers or range(len(frames)), frames, strict=True)
    ]
    average = sum(frame["vmaf"] for frame in frames) / len(frames) if mean is None else mean
    return msgspec.json.encode({"version": "2.3.0", "frames": listed, "pooled_metrics": {"vmaf": {"mean": average}}})


def test_columns_have_plain_names() -> None:
    frame = {"integer_adm2_egl_1": 0.9, "float_ssim": 0.8, "ciede2000": 30.0, "psnr_y": 40.0, "vmaf": 90.0}
    numbers, table = columns(decode_log(log([frame, frame])), 2, 1, ("ssim", "ciede", "psnr"))
    assert numbers == [0, 1]
    assert set(table) == {"adm2", "ssim", "ciede", "psnr_y", "vmaf"}


@pytest.mark.parametrize(
    ("content", "given", "features", "told"),
    [
        (log([{"vmaf": 90.0}]), 2, (), "has 1 frames, and 2 were given"),
        (log([{"vmaf": 90.0}], numbers=[1]), 1, (), "has 1 frames, and 1 were given"),
        (log([{"vmaf": 90.0}]), 1, ("cambi",), "libvmaf gave no cambi"),
        (log([{"vmaf": 90.0, "float_ssim": None}]), 1, (), "gives no number for float_ssim of frame 0"),
        (log([{"vmaf": 90.0, "cambi": 1.0}, {"vmaf": 90.0}]), 2, (), "gives no number for cambi of frame 1"),
        (log([{"vmaf": 90.0}], mean=91.0), 1, (), "is not that of the frames"),
        (b'{"version": "2.3.0", "frames": [', 1, (), "cannot be read"),
        (b"", 1, (), "cannot be read"),
    ],
)
def test_what_is_missing_is_told(content: bytes, given: int, features: tuple[str, ...], told: str) -> None:
    with pytest.raises(EngineFailure, match=told):
        columns(decode_log(content), given, 1, features)


def test_no_difference_is_a_hundred_where_it_would_be_endless() -> None:
    frame = {"vmaf": 90.0, "psnr_y": 41.0, "psnr_cb": 60.0, "psnr_cr": 60.0, "psnr_hvs_cb": None}
    _, table = columns(decode_log(log([frame])), 1, 1, ())
    assert table["psnr_hvs_cb"] == [100.0]
    for name in ("psnr_hvs_y", "psnr_hvs", "ciede2000"):  # luma does differ
        with pytest.raises(EngineFailure, match=f"gives no number for {name}"):
            columns(decode_log(log([frame | {name: None}])), 1, 1, ())


def test_what_may_be_endless_is_measured_with_psnr() -> None:
    assert asked_for(("ssim",)) == ["float_ssim"]
    assert asked_for(("ciede",)) == ["ciede", "psnr"]
    assert asked_for(("psnr", "psnr_hvs")) == ["psnr", "psnr_hvs"]
