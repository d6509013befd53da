"""What a component's log says of its end."""

from pathlib import Path

import pytest

from vmafx.devcluster.process import last_error


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", "it said nothing"),
        ("I1115 all is well\n", "I1115 all is well"),
        (
            'I1115 start\nE1115 04:56:57.4 21 run.go:72] "command failed" err="listen: \\"x\\" in use"\nI1115 bye\n',
            'listen: "x" in use',
        ),
        ('{"level":"warn","msg":"x"}\n{"level":"fatal","msg":"failed","error":"no space left on device"}\n',
         "no space left on device"),
        ("Error: unknown flag: --nope\n", "Error: unknown flag: --nope"),
    ],
)  # fmt: skip
def test_the_last_words_are_the_reason(tmp_path: Path, log: str, words: str) -> None:
    (tmp_path / "x.log").write_text(log)
    assert last_error(tmp_path / "x.log") == words


def test_no_log_at_all(tmp_path: Path) -> None:
    assert last_error(tmp_path / "none.log") == "it said nothing"
