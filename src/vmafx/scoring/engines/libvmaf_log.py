"""Reads libvmaf's XML log and checks that it is complete: libvmaf silently omits values that it cannot compute.

The log is XML because that has one line per frame: it is read line by line into one array per feature, so that a clip
of two million frames takes 8 bytes per value. JSON would have to be decoded as a whole.
"""

import math
import os
from array import array
from collections.abc import Sequence
from typing import BinaryIO

import msgspec

from vmafx.scoring.errors import EngineFailure
from vmafx.scoring.pooling import mean
from vmafx.scoring.result import Column, FrameNumbers

FEATURES = {  # vmafx's name: libvmaf's name, and the column that must be in the result
    "psnr": ("psnr", "psnr_y"),
    "ssim": ("float_ssim", "ssim"),
    "ms_ssim": ("float_ms_ssim", "ms_ssim"),
    "psnr_hvs": ("psnr_hvs", "psnr_hvs"),
    "ciede": ("ciede", "ciede"),
    "cambi": ("cambi", "cambi"),
}
# For identical planes these are infinite; vmafx reports 100 (dB).
PLANES = ("psnr_y", "psnr_cb", "psnr_cr")
INFINITE_IF_EQUAL = {
    "psnr_hvs": PLANES,
    "psnr_hvs_y": PLANES[:1],
    "psnr_hvs_cb": PLANES[1:2],
    "psnr_hvs_cr": PLANES[2:],
    "ciede2000": PLANES,
}
# The order of columns in results; libvmaf's own depends on which of its threads ends first.
COLUMNS = (
    "adm2", "adm_scale0", "adm_scale1", "adm_scale2", "adm_scale3", "motion2", "motion", "motion3",
    "vif_scale0", "vif_scale1", "vif_scale2", "vif_scale3",
    *PLANES, "ssim", "ms_ssim", "psnr_hvs", "psnr_hvs_y", "psnr_hvs_cb", "psnr_hvs_cr", "ciede", "cambi", "vmaf",
)  # fmt: skip
PERFECT = 100.0
PSNR_CAPS = {6.0 * depth + 12 for depth in (8, 10, 12, 16)}  # libvmaf's psnr of identical planes, by bit depth
BLOCK = 4096  # frames that are parsed before their values are moved to the columns


class LibvmafLog(msgspec.Struct, frozen=True):
    """The frame numbers, and a column of values per feature."""

    version: str
    numbers: FrameNumbers
    values: dict[str, Column]


def read_log(file: BinaryIO, sent: int, subsample: int, features: Sequence[str]) -> LibvmafLog:
    """Raises EngineFailure if the log is incomplete; `sent` is the number of frames that libvmaf received."""
    if not is_complete(file):
        raise EngineFailure("libvmaf's log cannot be read: it has no end")
    try:
        log = _parse(file)
    except (ValueError, IndexError, OverflowError) as error:
        raise EngineFailure(f"libvmaf's log cannot be read: {error}") from error
    numbers, columns = log.frames.numbers, log.frames.columns()
    if not numbers or numbers != array("q", range(0, sent, subsample)):
        raise EngineFailure(f"libvmaf's log has {len(numbers)} frames, but {sent} were sent to it")
    for name in columns:
        _check_column(name, columns, numbers)
    values = dict(sorted(((_short_name(name), column) for name, column in columns.items()), key=_place))
    for required in ("vmaf", *(FEATURES[feature][1] for feature in features)):
        if required not in values:
            raise EngineFailure(f"libvmaf's log has no {required}")
    # With subsampling, libvmaf's mean is over other frames.
    if subsample == 1 and not math.isclose(mean(values["vmaf"]), log.mean, abs_tol=1e-3):
        raise EngineFailure(f"libvmaf's mean ({log.mean}) differs from the mean of the frames in its log")
    return LibvmafLog(log.version, numbers, values)


def is_complete(file: BinaryIO) -> bool:
    """Whether the log has its last line, which is missing if the disk was full."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 64, 0))
    return file.read().rstrip().endswith(b"</VMAF>")


class _Frames:
    """The frames read so far, in columns. A value that a frame lacks is NaN."""

    def __init__(self) -> None:
        self.numbers: FrameNumbers = array("q")
        self._markup: list[bytes] = []  # of the first frame: what stands between the values
        self._columns: list[Column] = []
        self._block: Column = array("d")  # the values of the last frames, frame by frame

    def add(self, parts: list[bytes]) -> None:
        """`parts` is a line split at its quotation marks: markup and values alternate."""
        if parts[-1].strip() != b"/>":
            raise ValueError(f"frame {len(self.numbers)} has no end")
        markup = parts[::2]
        if not self._markup:
            self._markup = markup
            self._columns = [array("d") for _ in markup[1:-1]]
        self.numbers.append(int(parts[1]))
        if markup == self._markup:
            self._block.extend(map(float, parts[3::2]))
        else:
            values = dict(zip(markup[1:-1], parts[3::2], strict=True))
            self._block.extend(float(values.get(name, b"nan")) for name in self._markup[1:-1])
        if len(self._block) >= BLOCK * len(self._columns):
            self._move_block()

    def columns(self) -> dict[str, Column]:
        """By libvmaf's names."""
        self._move_block()
        names = (name.strip().removesuffix(b"=").decode() for name in self._markup[1:-1])
        return dict(zip(names, self._columns, strict=True))

    def _move_block(self) -> None:
        for index, column in enumerate(self._columns):
            column.extend(self._block[index :: len(self._columns)])
        del self._block[:]


class _Parsed(msgspec.Struct):
    version: str
    mean: float  # of the scores, by libvmaf; NaN if it could not compute it
    frames: _Frames


def _parse(file: BinaryIO) -> _Parsed:
    """Raises ValueError, IndexError or OverflowError if the log is damaged."""
    parsed, ended = _Parsed("", math.nan, _Frames()), False
    file.seek(0)
    for line in file:
        parts = line.split(b'"')
        match parts[0].strip():
            case b"<frame frameNum=":
                parsed.frames.add(parts)
            case b"</frames>":
                ended = True
            case b"<VMAF version=":
                parsed.version = parts[1].decode()
            case b"<metric name=" if parts[1] == b"vmaf":
                parsed.mean = float(dict(zip(parts[2::2], parts[3::2], strict=False)).get(b" mean=", b"nan"))
    if not ended:
        raise ValueError(f"the end of its {len(parsed.frames.numbers)} frames is missing")
    return parsed


def _check_column(name: str, columns: dict[str, Column], numbers: FrameNumbers) -> None:
    """Replaces infinite values of identical planes. Raises EngineFailure if another value is missing or infinite."""
    column = columns[name]
    if math.isfinite(sum(column)):
        return
    planes = [columns.get(plane, ()) for plane in INFINITE_IF_EQUAL.get(name, ())]
    for index, value in enumerate(column):
        if not math.isfinite(value):
            if not planes or not all(plane and plane[index] in PSNR_CAPS for plane in planes):
                raise EngineFailure(f"libvmaf's log has no {name} for frame {numbers[index]}")
            column[index] = PERFECT


def libvmaf_features(features: Sequence[str]) -> list[str]:
    """libvmaf's names of the features; psnr_hvs and ciede add psnr, which shows whether planes are equal."""
    names = [FEATURES[feature][0] for feature in features]
    return [*names, "psnr"] if {"psnr_hvs", "ciede"} & set(features) and "psnr" not in features else names


def _place(item: tuple[str, Column]) -> tuple[int, str]:
    """Where a column stands; those that vmafx does not know follow, by name."""
    name, _ = item
    return (COLUMNS.index(name) if name in COLUMNS else len(COLUMNS), name)


def _short_name(name: str) -> str:
    """adm2 for integer_adm2, and for integer_adm2_egl_1 of the neg models."""
    short = name.removeprefix("integer_").removeprefix("float_").replace("_egl_1", "")
    return "ciede" if short == "ciede2000" else short
