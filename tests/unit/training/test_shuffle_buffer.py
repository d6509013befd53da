"""The shuffle buffer: nothing is lost or repeated, whatever the calls are."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vmafx.training.network import Array
from vmafx.training.shuffle_buffer import COLUMNS, SIZE, ShuffleBuffer


def feed(buffer: ShuffleBuffer, numbers: Array, trained: int) -> list[Array]:
    """Add samples that carry these numbers, and return the blocks to train on."""
    blocks, begin = [], 0
    while begin < len(numbers):
        rest = numbers[begin:]
        begin += buffer.add(np.repeat(rest[:, None], 6, axis=1), rest, rest, trained)
        if (rows := buffer.take(trained)) is not None:
            blocks.append(rows)
            trained += len(rows)
    return blocks


@given(st.integers(1, 700), st.integers(0, 9000), st.randoms(use_true_random=False))
def test_every_sample_comes_once_and_calls_do_not_matter(batch_size: int, total: int, random: Random) -> None:
    numbers = np.arange(total, dtype=np.float64)
    whole, divided = (ShuffleBuffer(np.empty((0, COLUMNS)), batch_size) for _ in range(2))
    expected = feed(whole, numbers, 0)
    found: list[Array] = []
    begin = 0
    while begin < total:
        end = begin + random.randint(1, 2000)
        found += feed(divided, numbers[begin:end], sum(map(len, found)))
        divided = ShuffleBuffer(divided.rows, batch_size)
        begin = end
    assert len(found) == len(expected)
    assert all(map(np.array_equal, found, expected))
    assert all(len(rows) % batch_size == 0 for rows in found)
    seen = np.concatenate([*(rows[:, 0] for rows in found), divided.rows[:, 0]])
    assert np.array_equal(np.sort(seen), numbers)


def test_batches_mix_clips_and_no_sample_waits_for_the_whole_buffer_at_the_start() -> None:
    blocks = feed(ShuffleBuffer(np.empty((0, COLUMNS)), 32), np.repeat(np.arange(40.0), 300), 0)
    assert [len(rows) for rows in blocks[:4]] == [32, 32, 64, 128]
    late = blocks[-1]
    assert len(late) == SIZE // 2
    assert min(len(set(late[begin : begin + 32, 0])) for begin in range(0, len(late), 32)) >= 4


def test_a_smaller_batch_size_empties_a_buffer_that_is_too_full() -> None:
    rows = np.ones((5000, COLUMNS))
    buffer = ShuffleBuffer(rows, 32)
    assert buffer.add(rows[:9, :-2], rows[:9, -2], rows[:9, -1], 10_000) == 0
    taken = buffer.take(10_000)
    assert taken is not None
    assert len(taken) + len(buffer.rows) == 5000
    assert len(buffer.rows) <= SIZE
