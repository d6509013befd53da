"""Frames in, features and scores out."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

from tests.oracle.adm import adm2
from tests.oracle.model import Model
from tests.oracle.motion import motion2
from tests.oracle.planes import Luma, in_8_bit_range
from tests.oracle.vif import vif


@dataclass(frozen=True)
class FrameScore:
    vif_scale0: float
    vif_scale1: float
    vif_scale2: float
    vif_scale3: float
    adm2: float
    motion2: float
    score: float


FIELDS = tuple(field.name for field in fields(FrameScore))


def score_frames(
    reference: Iterable[Luma], distorted: Iterable[Luma], bit_depth: int, model: Model
) -> list[FrameScore]:
    """The scores of a clip, frame by frame. Only luma counts in VMAF."""
    pairs = [
        (in_8_bit_range(r, bit_depth), in_8_bit_range(d, bit_depth)) for r, d in zip(reference, distorted, strict=True)
    ]
    moved = motion2(r for r, _ in pairs)
    scores = []
    for (r, d), motion in zip(pairs, moved, strict=True):
        features = {f"vif_scale{scale}": value for scale, value in enumerate(vif(r, d, model.vif_gain_limit))}
        features |= {"adm2": adm2(r, d, model.adm_gain_limit), "motion2": motion}
        scores.append(FrameScore(**features, score=model.score(features)))
    return scores
