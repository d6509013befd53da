"""Motion of the reference: the mean absolute difference of consecutive blurred frames."""

from collections.abc import Iterable, Sequence

import numpy as np

from tests.oracle.planes import Plane, filtered
from tests.oracle.vif import WINDOWS

BLUR = WINDOWS[2]


def motion2(reference: Iterable[Plane]) -> list[float]:
    """For each frame, the minimum of the motion to the previous and to the next frame, so that a cut between two still
    scenes is no motion. The first frame has none; the last has only that to its previous frame.
    """
    motion = _from_the_frame_before(reference)
    return [min(pair) for pair in zip(motion, [*motion[1:], *motion[-1:]], strict=True)]


def _from_the_frame_before(reference: Iterable[Plane]) -> Sequence[float]:
    motion, before = [], None
    for plane in reference:
        blurred = _blurred(plane)
        motion.append(0.0 if before is None else float(np.abs(blurred - before).mean()))
        before = blurred
    return motion


def _blurred(plane: Plane) -> Plane:
    return filtered(filtered(plane, BLUR, 0, repeat_last=True), BLUR, 1, repeat_last=True)
