"""Results of workers: how they are encoded, and which are accepted."""

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
def test_an_encoded_result_fits_and_keeps_the_score_the_frames_and_the_fault(result: AttemptResult) -> None:
    content = encode_result(result)
    assert len(content) <= MAX_RESULT_BYTES
    decoded = decode_result(content.decode(), "uid-0")
    assert decoded is not None
    assert (decoded.score, decoded.frames, decoded.fault) == (result.score, result.frames, result.fault)
    assert decoded.metrics.items() <= result.metrics.items()


def test_a_short_result_is_encoded_completely() -> None:
    result = AttemptResult("uid-0", 93.2, 300, {"vmaf": FeatureSummary(93.2, 93.1, 80.0, 99.0)}, "s3://b/r.json")
    assert decode_result(encode_result(result).decode(), "uid-0") == result


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
        '{"id": "uid-0", "more": ' + "[" * 100_000,
    ],
)
def test_an_invalid_result_is_rejected(content: str) -> None:
    assert decode_result(content, "uid-0") is None


@given(st.text() | st.binary().map(lambda content: content.decode("utf-8", "surrogateescape")))
def test_arbitrary_content_never_raises(content: str) -> None:
    result = decode_result(content, "uid-0")
    assert result is None or msgspec.json.encode(result)
