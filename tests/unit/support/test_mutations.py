"""Mutations of clips, of any size: the same generator makes the same ones."""

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.support.mutations import EDITS, mutate


@given(st.binary(max_size=3000), st.binary(max_size=3000), st.integers(0, 1000))
def test_a_seed_repeats_a_mutation(content: bytes, other: bytes, seed: int) -> None:
    assert mutate(content, other, random.Random(seed)) == mutate(content, other, random.Random(seed))


def test_every_edit_changes_a_clip() -> None:
    content, other = random.Random(1).randbytes(5000) + b"avc1", random.Random(2).randbytes(5000)
    for edit in EDITS:
        changed = bytearray(content)
        for seed in range(5):
            edit(changed, other, random.Random(seed))
        assert changed != content, edit
