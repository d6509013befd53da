"""The frames that an engine is fed for a run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.scoring.engines.engine import Run


@pytest.mark.parametrize(
    ("run", "neighbours", "subsample", "fed"),
    [
        (Run(), 1, 1, Run()),
        (Run(0, 5), 1, 1, Run(0, 6)),
        (Run(5, None), 1, 1, Run(4, None)),
        (Run(5, 10), 0, 1, Run(5, 10)),
        (Run(5, 10), 2, 1, Run(3, 12)),
        (Run(5, 10), 1, 5, Run(0, 11)),  # frame 4 is needed, and the engine measures every 5th that it receives
        (Run(6, 10), 1, 5, Run(5, 11)),
        (Run(1, 2), 3, 4, Run(0, 5)),
    ],
)
def test_a_run_is_fed_with_its_neighbours(run: Run, neighbours: int, subsample: int, fed: Run) -> None:
    assert run.fed(neighbours, subsample) == fed


@given(st.integers(0, 10**6), st.integers(0, 20), st.integers(1, 1000))
def test_frames_are_numbered_by_the_same_multiples(first: int, neighbours: int, subsample: int) -> None:
    fed = Run(first, first + 1).fed(neighbours, subsample)
    assert fed.first % subsample == 0
    assert max(0, first - neighbours) - subsample < fed.first <= max(0, first - neighbours)
