"""What libvmaf wrote of its work, read with care: it leaves out what it could not compute, and says nothing of it."""

import math
from collections.abc import Sequence

import msgspec

from vmafx.scoring.errors import EngineFailure
from vmafx.scoring.pooling import mean

FEATURES = {  # by our names: libvmaf's, and the column in which the values are found
    "psnr": ("psnr", "psnr_y"),
    "ssim": ("float_ssim", "ssim"),
    "ms_ssim": ("float_ms_ssim", "ms_ssim"),
    "psnr_hvs": ("psnr_hvs", "psnr_hvs"),
    "ciede": ("ciede", "ciede"),
    "cambi": ("cambi", "cambi"),
}
# Of two planes without any difference these have no number, and libvmaf writes null; we say 100 (decibels).
PLANES = ("psnr_y", "psnr_cb", "psnr_cr")
ENDLESS_IF_EQUAL = {
    "psnr_hvs": PLANES,
    "psnr_hvs_y": PLANES[:1],
    "psnr_hvs_cb": PLANES[1:2],
    "psnr_hvs_cr": PLANES[2:],
    "ciede2000": PLANES,
}
PERFECT = 100.0
CAPS = {6.0 * depth + 12 for depth in (8, 10, 12, 16)}


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
    log: LibvmafLog, given: int, subsample: int, features: Sequence[str]
) -> tuple[list[int], dict[str, list[float]]]:
    """The frames' numbers and their values by measure; `given` is how many frames went into libvmaf."""
    numbers = [frame.frameNum for frame in log.frames]
    if not numbers or numbers != list(range(0, given, subsample)):
        raise EngineFailure(f"libvmaf's log has {len(numbers)} frames, and {given} were given to it")
    table = {_plain(name): _column(log, name) for name in log.frames[0].metrics}
    for wanted in ("vmaf", *(FEATURES[feature][1] for feature in features)):
        if wanted not in table:
            raise EngineFailure(f"libvmaf gave no {wanted}")
    if subsample == 1:  # else libvmaf's mean leaves frames out; ours does not
        _check_mean(table["vmaf"], log)
    return numbers, table


def _check_mean(values: Sequence[float], log: LibvmafLog) -> None:
    pooled = log.pooled_metrics.get("vmaf", _Pooled()).mean
    if pooled is None or not math.isclose(mean(values), pooled, abs_tol=1e-3):
        raise EngineFailure(f"libvmaf's own mean ({pooled}) is not that of the frames it lists")


def _column(log: LibvmafLog, name: str) -> list[float]:
    column = []
    for frame in log.frames:
        value = frame.metrics.get(name)
        if value is None and _equal(frame, ENDLESS_IF_EQUAL.get(name, ())):
            value = PERFECT
        if value is None:
            raise EngineFailure(f"libvmaf gives no number for {name} of frame {frame.frameNum}")
        column.append(value)
    return column


def _equal(frame: _Frame, planes: Sequence[str]) -> bool:
    """Whether these planes do not differ: libvmaf's psnr then stands at its cap, of 60 at 8 bit and more beyond."""
    values = [frame.metrics.get(plane) for plane in planes]
    return bool(values) and all(value in CAPS for value in values)


def asked_for(features: Sequence[str]) -> list[str]:
    """What libvmaf is told to measure: with some also psnr, which tells whether planes are equal."""
    wanted = [FEATURES[feature][0] for feature in features]
    return [*wanted, "psnr"] if {"psnr_hvs", "ciede"} & set(features) and "psnr" not in features else wanted


def _plain(name: str) -> str:
    """integer_adm2 is adm2 to us, with the gain limit of the neg models or without."""
    plain = name.removeprefix("integer_").removeprefix("float_").replace("_egl_1", "")
    return "ciede" if plain == "ciede2000" else plain
