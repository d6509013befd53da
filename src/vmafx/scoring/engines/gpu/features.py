"""The features of frames from sums over them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vmafx.scoring.engines.gpu.definitions import (
    BANDS,
    BLURRED_BITS,
    SCALES,
    SUMS,
    WINDOWS,
    LumaFormat,
    inner,
    visibility,
)

Array = NDArray[np.float64]
ADM = tuple(f"adm_scale{scale}" for scale in range(len(SCALES)))
VIF = tuple(f"vif_scale{scale}" for scale in range(len(WINDOWS)))
FRAME_FEATURES = ("adm2", *ADM, *VIF)  # that depend on one frame alone


class FrameSums(NamedTuple):
    """What was summed up on the device, a row per frame."""

    reference: Array  # SUMS columns
    distorted: Array
    differences: Array  # of the blurred reference from the frame before; that of the first frame is ignored


def vif_and_adm(sums: FrameSums, frames: LumaFormat) -> dict[str, Array]:
    """FRAME_FEATURES, by name."""
    count = len(WINDOWS)
    vif = sums.distorted[:, :count] / sums.reference[:, :count]
    weights, constants = np.ones(SUMS - count), np.empty(len(SCALES))
    height, width = frames.height, frames.width
    for scale in range(len(SCALES)):
        height, width = (height + 1) // 2, (width + 1) // 2
        area = (height - 2 * inner(height)) * (width - 2 * inner(width))
        constants[scale] = BANDS * np.cbrt(area / 32)  # keeps pictures without detail near 1
        upright, diagonal = visibility(scale)
        weights[BANDS * scale : BANDS * (scale + 1)] = upright, upright, diagonal
    there = _by_scale(np.cbrt(sums.reference[:, count:]) * weights) + constants
    kept = _by_scale(np.cbrt(sums.distorted[:, count:])) + constants
    adm = zip(ADM, (kept / there).T, strict=True)
    return {"adm2": kept.sum(1) / there.sum(1)} | dict(adm) | dict(zip(VIF, vif.T, strict=True))


def motion_from_differences(differences: Array, frames: LumaFormat) -> Array:
    """The motion from the frame before. A clip's first frame has none."""
    motion: Array = differences / (frames.width * frames.height << BLURRED_BITS)
    motion[:1] = 0
    return motion


def motion2(motion: Array) -> Array:
    """The smaller of the motion from the frame before and to the frame after."""
    return np.minimum(motion, np.append(motion[1:], motion[-1:]))


def _by_scale(bands: Array) -> Array:
    """Sums over the bands of each scale."""
    totals: Array = bands.reshape(len(bands), len(SCALES), BANDS).sum(2)
    return totals
