"""Samples are packed, and hostile ones are refused."""

from array import array
from contextlib import suppress
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.scoring.result import MODEL_FEATURES
from vmafx.training.samples import (
    MAX_BATCH_BYTES,
    MAX_SAMPLES,
    HumanScore,
    InvalidSamples,
    SampleBatch,
    decode_batch,
    encode_batch,
    make_batch,
)


def columns(count: int) -> dict[str, list[float]]:
    features = {name: [0.1 * (position + 1)] * count for position, name in enumerate(MODEL_FEATURES)}
    return {**features, "vmaf": [float(number % 100) for number in range(count)], "psnr_y": [40.0] * count}


def batch(count: int = 3) -> SampleBatch:
    made = make_batch("vmaf_v0.6.1", range(count), columns(count))
    assert made is not None
    return made


def floats(*values: float) -> bytes:
    return array("f", values).tobytes()


def test_a_batch_has_the_features_and_the_score_of_each_frame() -> None:
    made = batch(2)
    assert list(made.frame_numbers()) == [0, 1]
    assert list(made.rows()) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 1.0])
    assert decode_batch(encode_batch(made)) == made


@given(st.integers(1, 5000))
def test_long_clips_are_subsampled_at_equal_distances(count: int) -> None:
    frames = batch(count).frame_numbers()
    assert 0 < len(frames) <= MAX_SAMPLES
    assert len({later - earlier for earlier, later in pairwise(frames)}) <= 1
    assert len(frames) == count or len(frames) > MAX_SAMPLES // 2
    assert len(encode_batch(batch(count))) < MAX_BATCH_BYTES


def test_frames_keep_their_numbers() -> None:
    made = make_batch("m", [0, 5, 10], columns(3))
    assert made is not None
    assert list(made.frame_numbers()) == [0, 5, 10]


@pytest.mark.parametrize("missing", [*MODEL_FEATURES, "vmaf"])
def test_a_model_with_other_features_has_no_samples(missing: str) -> None:
    values = columns(3)
    del values[missing]
    assert make_batch("m", range(3), values) is None


def test_no_frames_are_no_samples() -> None:
    assert make_batch("m", [], columns(0)) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frames": b"", "values": b""}, "1 to 300 samples"),
        ({"frames": b"\0\0\0\0\0"}, "1 to 300 samples"),
        ({"frames": b"\0" * 4 * (MAX_SAMPLES + 1)}, "1 to 300 samples"),
        ({"values": b"\0" * 8}, "84 bytes"),
        ({"frames": array("I", [0, 2, 2]).tobytes()}, "do not increase"),
        ({"values": floats(*[0.5] * 20, float("nan"))}, "score"),
        ({"values": floats(*[0.5] * 20, 101)}, "score"),
        ({"values": floats(float("inf"), *[0.5] * 20)}, "adm2"),
        ({"values": floats(*[0.5] * 5, -7, *[0.5] * 15)}, "vif_scale3"),
        ({"values": floats(0.5, 300, *[0.5] * 19)}, "motion2"),
        ({"values": floats(2.5, *[0.5] * 20)}, "adm2"),
    ],
)
def test_implausible_numbers_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSamples, match=message):
        decode_batch(encode_batch(msgspec.structs.replace(batch(), **changes)))


def test_an_unknown_version_is_refused() -> None:
    fields = {**msgspec.structs.asdict(batch()), "version": 2}
    with pytest.raises(InvalidSamples, match="version"):
        decode_batch(msgspec.msgpack.encode(fields))


def test_nested_input_is_refused() -> None:
    with pytest.raises(InvalidSamples, match="not a batch"):
        decode_batch(b"\x81\xa1x" + b"\x91" * 5000 + b"\xc0")


def test_the_teacher_of_a_learned_model_is_its_base() -> None:
    values = {**columns(2), "vmaf_base": [7.0, 8.0]}
    made = make_batch("vmaf_v0.6.1", range(2), values, teacher="vmaf_base")
    assert made is not None
    assert list(made.rows())[6::7] == [7.0, 8.0]


@pytest.mark.parametrize("score", [-0.1, 100.1, float("nan"), float("inf")])
def test_a_human_score_out_of_range_is_refused(score: float) -> None:
    with pytest.raises(InvalidSamples, match="not 0 to 100"):
        HumanScore("job", score).check()


def test_a_large_batch_is_refused() -> None:
    with pytest.raises(InvalidSamples, match="at most"):
        decode_batch(b"\0" * (MAX_BATCH_BYTES + 1))


@given(st.binary(max_size=500))
def test_any_bytes_are_a_batch_or_refused(content: bytes) -> None:
    with pytest.raises(InvalidSamples):
        decode_batch(content)


@given(st.integers(0), st.integers(0, 255))
def test_a_changed_byte_is_plausible_or_refused(position: int, value: int) -> None:
    content = bytearray(encode_batch(batch()))
    content[position % len(content)] = value
    with suppress(InvalidSamples):
        decode_batch(bytes(content)).check()
