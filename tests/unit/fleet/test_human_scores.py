"""Scores from a CSV file: every error names its line."""

import pytest

from vmafx.fleet.errors import BadScore
from vmafx.fleet.human_scores import JobScore, parse_score, read_scores


def test_columns_have_any_order_and_others_are_ignored() -> None:
    lines = ["score, comment, job\n", '50.5, "good, really", a\n', "100,,b\n"]
    found = read_scores(lines, "f.csv")
    assert [(one.job, one.score) for one in found] == [("a", 50.5), ("b", 100.0)]
    assert str(found[1].error("it is gone")) == "f.csv, line 3: it is gone"
    assert str(JobScore("a", 1.0).error("it is gone")) == "it is gone"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "f.csv, line 1: there is no column 'job'"),
        ("job\na\n", "f.csv, line 1: there is no column 'score'"),
        ("job,score\n", "f.csv has no scores"),
        ("job,score\n,1\n", "f.csv, line 2: there is no job"),
        ("job,score\na\n", "f.csv, line 2: '' is not a score"),
        ("job,score\na,1\n\nb,x\n", "f.csv, line 4: 'x' is not a score from 0 to 100"),
        ("job,score\na,1\nb,2\na,3\n", "f.csv, line 4: job a has a score already, in line 2"),
        ('job,score\n"a"b,1\n', "f.csv, line 2: not CSV"),
    ],
)
def test_an_invalid_file_is_rejected_with_its_line(text: str, error: str) -> None:
    with pytest.raises(BadScore, match=error.replace(".", r"\.")):
        read_scores(text.splitlines(keepends=True), "f.csv")


@pytest.mark.parametrize("text", ["-0.1", "100.1", "nan", "inf", "", "1,5", "good"])
def test_a_score_is_a_number_from_0_to_100(text: str) -> None:
    with pytest.raises(BadScore, match="is not a score from 0 to 100"):
        parse_score(text)
    assert parse_score(" 99.5 ") == 99.5
