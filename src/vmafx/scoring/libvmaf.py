"""Parses libvmaf's JSON log and checks that it is complete: libvmaf silently omits values that it cannot compute."""

import math
from collections.abc import Sequence

import msgspec

from vmafx.scoring.errors import EngineFailure
from vmafx.scoring.pooling import mean

FEATURES = {  # vmafx's name: libvmaf's name, and the column that must be in the result
    "psnr": ("psnr", "psnr_y"),
    "ssim": ("float_ssim", "ssim"),
    "ms_ssim": ("float_ms_ssim", "ms_ssim"),
    "psnr_hvs": ("psnr_hvs", "psnr_hvs"),
    "ciede": ("ciede", "ciede"),
    "cambi": ("cambi", "cambi"),
}
# For identical planes these are infinite and libvmaf writes null; vmafx reports 100 (dB).
PLANES = ("psnr_y", "psnr_cb", "psnr_cr")
INFINITE_IF_EQUAL = {
    "psnr_hvs": PLANES,
    "psnr_hvs_y": PLANES[:1],
    "psnr_hvs_cb": PLANES[1:2],
    "psnr_hvs_cr": PLANES[2:],
    "ciede2000": PLANES,
}
PERFECT = 100.0
PSNR_CAPS = {6.0 * depth + 12 for depth in (8, 10, 12, 16)}  # libvmaf's psnr of identical planes, by bit depth


class _Frame(msgspec.Struct):
    frameNum: int
    metrics: dict[str, float | None]


class _Pooled(msgspec.Struct):
    mean: float | None = None


class LibvmafLog(msgspec.Struct):
    version: str
    frames: list[_Frame]
    pooled_metrics: dict[str, _Pooled]


def decode_log(content: bytes) -> LibvmafLog:
    try:
        return msgspec.json.decode(content, type=LibvmafLog)
    except msgspec.DecodeError as error:
        raise EngineFailure(f"libvmaf's log cannot be read: {error}") from error


def columns(
    log: LibvmafLog, sent: int, subsample: int, features: Sequence[str]
) -> tuple[list[int], dict[str, list[float]]]:
    """The frame numbers, and a column of values per feature; `sent` is the number of frames that libvmaf received."""
    numbers = [frame.frameNum for frame in log.frames]
    if not numbers or numbers != list(range(0, sent, subsample)):
        raise EngineFailure(f"libvmaf's log has {len(numbers)} frames, but {sent} were sent to it")
    table = {_short_name(name): _column(log, name) for name in log.frames[0].metrics}
    for required in ("vmaf", *(FEATURES[feature][1] for feature in features)):
        if required not in table:
            raise EngineFailure(f"libvmaf's log has no {required}")
    if subsample == 1:  # otherwise libvmaf's mean is over other frames
        _check_mean(table["vmaf"], log)
    return numbers, table


def _check_mean(values: Sequence[float], log: LibvmafLog) -> None:
    pooled = log.pooled_metrics.get("vmaf", _Pooled()).mean
    if pooled is None or not math.isclose(mean(values), pooled, abs_tol=1e-3):
        raise EngineFailure(f"libvmaf's mean ({pooled}) differs from the mean of the frames in its log")


def _column(log: LibvmafLog, name: str) -> list[float]:
    column = []
    for frame in log.frames:
        value = frame.metrics.get(name)
        if value is None and _planes_equal(frame, INFINITE_IF_EQUAL.get(name, ())):
            value = PERFECT
        if value is None:
            raise EngineFailure(f"libvmaf's log has no {name} for frame {frame.frameNum}")
        column.append(value)
    return column


def _planes_equal(frame: _Frame, planes: Sequence[str]) -> bool:
    values = [frame.metrics.get(plane) for plane in planes]
    return bool(values) and all(value in PSNR_CAPS for value in values)


def libvmaf_features(features: Sequence[str]) -> list[str]:
    """libvmaf's names of the features; psnr_hvs and ciede add psnr, which shows whether planes are equal."""
    names = [FEATURES[feature][0] for feature in features]
    return [*names, "psnr"] if {"psnr_hvs", "ciede"} & set(features) and "psnr" not in features else names


def _short_name(name: str) -> str:
    """adm2 for integer_adm2, and for integer_adm2_egl_1 of the neg models."""
    short = name.removeprefix("integer_").removeprefix("float_").replace("_egl_1", "")
    return "ciede" if short == "ciede2000" else short
