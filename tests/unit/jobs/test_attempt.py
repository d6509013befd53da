"""What a worker says, and what of it is believed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.api.job import FeatureSummary
from vmafx.jobs.attempt import MAX_RESULT_BYTES, AttemptResult, decode_result, encode_result

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SUMMARIES = st.builds(FeatureSummary, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
SCORED = st.builds(
    AttemptResult,
    id=st.just("uid-0"),
    score=st.floats(0, 100),
    frames=st.integers(1, 1 << 40),
    metrics=st.dictionaries(st.text(max_size=64), SUMMARIES, max_size=64),
    reportURI=st.none() | st.text(max_size=2000),
)
FAILED = st.builds(
    AttemptResult,
    id=st.just("uid-0"),
    fault=st.sampled_from(["BadInput", "EngineFailure", "NodeFault"]),
    message=st.text(max_size=5000),
)


@given(SCORED | FAILED)
def test_an_answer_always_fits_and_keeps_what_matters(answer: AttemptResult) -> None:
    content = encode_result(answer)
    assert len(content) <= MAX_RESULT_BYTES
    read = decode_result(content.decode(), "uid-0")
    assert read is not None
    assert (read.score, read.frames, read.fault) == (answer.score, answer.frames, answer.fault)
    assert read.metrics.items() <= answer.metrics.items()


def test_a_short_answer_is_whole() -> None:
    answer = AttemptResult("uid-0", 93.2, 300, {"vmaf": FeatureSummary(93.2, 93.1, 80.0, 99.0)}, "s3://b/r.json")
    assert decode_result(encode_result(answer).decode(), "uid-0") == answer


@pytest.mark.parametrize(
    "content",
    [
        "",
        "garbage",
        "{}",
        "[]",
        '{"id": "uid-0"}',
        '{"id": "uid-1", "score": 93}',
        '{"id": "uid-0", "score": 93, "fault": "BadInput"}',
        '{"id": "uid-0", "score": "93"}',
        '{"id": "uid-0", "score": 101}',
        '{"id": "uid-0", "score": -1}',
        '{"id": "uid-0", "score": NaN}',
        '{"id": "uid-0", "fault": "Other"}',
        '{"id": "uid-0", "score": 93',
        '{"id": "uid-0", "score": 93, "frames": -1}',
        '{"id": "uid-0", "score": 93, "frames": 1e30}',
        '{"id": "uid-0", "score": 93, "frames": 99999999999999999999}',
        f'{{"id": "uid-0", "score": 93, "metrics": {{"{"m" * 65}": {{}}}}}}',
        f'{{"id": "uid-0", "score": 93, "reportURI": "s3://b/{"r" * 5000}"}}',
        "\udcff",
    ],
)
def test_what_is_not_believed(content: str) -> None:
    assert decode_result(content, "uid-0") is None


@given(st.text() | st.binary().map(lambda content: content.decode("utf-8", "surrogateescape")))
def test_anything_else_is_nothing(content: str) -> None:
    answer = decode_result(content, "uid-0")
    assert answer is None or msgspec.json.encode(answer)
