"""The reason for a component's end, from its log."""

from pathlib import Path

import pytest

from vmafx.devcluster.process import last_error


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("", "its log is empty"),
        ("I1115 started\n", "I1115 started"),
        (
            'I1115 start\nE1115 04:56:57.4 21 run.go:72] "command failed" err="listen: \\"x\\" in use"\nI1115 bye\n',
            'listen: "x" in use',
        ),
        ('{"level":"warn","msg":"x"}\n{"level":"fatal","msg":"failed","error":"no space left on device"}\n',
         "no space left on device"),
        ("Error: unknown flag: --nope\n", "Error: unknown flag: --nope"),
    ],
)  # fmt: skip
def test_the_last_error_is_the_reason_else_the_last_line(tmp_path: Path, log: str, error: str) -> None:
    (tmp_path / "x.log").write_text(log)
    assert last_error(tmp_path / "x.log") == error


def test_a_missing_log_is_like_an_empty_one(tmp_path: Path) -> None:
    assert last_error(tmp_path / "none.log") == "its log is empty"
