"""The time left that lines of progress say."""

from vmafx.cli.tune_progress import time_left


def test_the_time_left_is_by_the_speed_of_late() -> None:
    assert time_left([(100.0, 0.0), (110.0, 0.25)]) == ", 30 s left"
    assert time_left([(100.0, 0.7), (160.0, 0.71)]) == ", 0:29:00 left"
    assert time_left([(0.0, 0.5), (4000.0, 0.51)]).startswith(", 2 days, ")


def test_there_is_no_time_left_before_anything_has_advanced() -> None:
    assert time_left([(100.0, 0.0)]) == ""
    assert time_left([(100.0, 0.1), (104.0, 0.2)]) == ""
    assert time_left([(100.0, 0.1), (160.0, 0.1)]) == ""
