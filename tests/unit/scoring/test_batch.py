"""How a batch divides the cores between its clips."""

import pytest

from vmafx.scoring.batch import divide_cores


@pytest.mark.parametrize(
    ("cores", "clips", "parallel", "threads", "divided"),
    [
        (8, 1, 0, None, (1, 8)),
        (8, 3, 0, None, (3, 2)),
        (8, 20, 0, None, (8, 1)),
        (8, 20, 0, 2, (4, 2)),
        (8, 20, 0, 16, (1, 16)),
        (8, 20, 0, 3, (2, 3)),
        (8, 20, 2, None, (2, 4)),
        (8, 20, 5, 8, (5, 8)),
        (2, 20, 0, None, (4, 1)),  # they share the decoding of the reference
        (2, 20, 0, 1, (2, 1)),
        (256, 1, 0, None, (1, 128)),
    ],
)
def test_cores_are_divided_between_clips(
    cores: int, clips: int, parallel: int, threads: int | None, divided: tuple[int, int]
) -> None:
    assert divide_cores(cores, clips, parallel, threads) == divided
