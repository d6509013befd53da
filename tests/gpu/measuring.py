"""The features of generated clips by the code of the engine, without its process."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from tests.oracle.clips import Clip
from vmafx.scoring.engines.gpu.definitions import LumaFormat
from vmafx.scoring.engines.gpu.features import Array, FrameSums, motion2, motion_from_differences, vif_and_adm
from vmafx.scoring.engines.gpu.fused import FusedSums
from vmafx.scoring.engines.gpu.pipeline import Sums
from vmafx.scoring.engines.gpu.plain import PlainSums

Kind = Literal["kernels", "plain"]
LARGE_TILE = {"tile_y": 16, "tile_x": 128}  # fewer programs for the interpreter


def make_sums(kind: Kind, frames: LumaFormat, gain_limit: float, device: torch.device) -> Sums:
    if kind == "plain":
        return PlainSums(frames, gain_limit, device)
    return FusedSums(frames, gain_limit, device, *(() if device.type != "cpu" else (LARGE_TILE,)))


def upload(planes: Sequence[np.ndarray], device: torch.device) -> torch.Tensor:
    """(frames, rows, columns)."""
    return torch.from_numpy(np.stack(planes)).to(device)


def frame_sums(kind: Kind, pair: tuple[Clip, Clip], gain_limit: float, device: torch.device) -> FrameSums:
    reference, _ = pair
    frames = LumaFormat(*reference.size, reference.bit_depth)
    sums = make_sums(kind, frames, gain_limit, device)
    luma = [upload(clip.planes, device) for clip in pair]
    there = sums.reference(luma[0])
    kept = sums.distorted(there, luma[1])
    blurred = torch.full((len(luma[0]) + 1, frames.height, frames.width), 0xDEAD, dtype=torch.uint16, device=device)
    sums.blurred(luma[0], blurred[1:])
    differences = sums.difference(blurred[:-1], blurred[1:])
    return FrameSums(*(values.cpu().numpy().astype(np.float64) for values in (there.sums, kept, differences)))


def features_of(kind: Kind, pair: tuple[Clip, Clip], gain_limit: float, device: torch.device) -> dict[str, Array]:
    """By name, with a value per frame."""
    sums, (reference, _) = frame_sums(kind, pair, gain_limit, device), pair
    frames = LumaFormat(*reference.size, reference.bit_depth)
    motion = motion2(motion_from_differences(sums.differences, frames))
    return vif_and_adm(sums, frames) | {"motion2": motion}
