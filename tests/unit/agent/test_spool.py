"""The spool of finished results."""

import json
import os
from pathlib import Path

import pytest

from vmafx.agent import spool as spools
from vmafx.agent.spool import ResultSpool, SpooledResult
from vmafx.api.job import FeatureSummary
from vmafx.jobs.attempt import AttemptResult


def finished(attempt: str, score: float = 90.0) -> SpooledResult:
    return SpooledResult(
        attempt, "job", AttemptResult(attempt, score, 6, {"vmaf": FeatureSummary(90.0, 89.0, 80.0, 99.0)})
    )


def test_results_are_read_back_by_the_next_agent_until_they_are_dropped(tmp_path: Path) -> None:
    spool = ResultSpool(tmp_path / "spool")
    spool.put(finished("uid-1"))
    for path in (tmp_path / "spool").iterdir():
        os.utime(path, (1, 1))  # older: files made within a few milliseconds may have the same time
    spool.put(finished("uid-0", 1.0))
    spool.put(finished("uid-0", 2.0))
    assert ResultSpool(tmp_path / "spool").read() == [finished("uid-1"), finished("uid-0", 2.0)]
    spool.drop("uid-1")
    spool.drop("uid-1")
    assert spool.read() == [finished("uid-0", 2.0)]
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("attempt", ["../../etc/passwd", "a/b", "x" * 5000, "", ".", "\n\x00ü"])
def test_no_attempt_id_leads_out_of_the_folder(tmp_path: Path, attempt: str) -> None:
    spool = ResultSpool(tmp_path / "spool")
    spool.put(finished(attempt))
    assert spool.read() == [finished(attempt)]
    assert [path.name for path in tmp_path.iterdir()] == ["spool"]
    spool.drop(attempt)
    assert spool.read() == []


NESTED = pytest.param(b'{"x":' + b"[" * 5000, id="nested")


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"id":"x"}', b"\xff\xfe", b'{"id":"x","name":"y","answer":{"id":1}}', NESTED]
)
def test_a_damaged_file_is_renamed_with_a_warning(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = ResultSpool(tmp_path)
    (tmp_path / "one.json").write_bytes(content)
    spool.put(finished("uid-0"))
    assert spool.read() == [finished("uid-0")]
    assert "damaged" in capsys.readouterr().err
    assert (tmp_path / "one.damaged").read_bytes() == content
    assert spool.read() == [finished("uid-0")]
    assert capsys.readouterr().err == ""


def test_a_failed_write_leaves_the_file_that_existed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = ResultSpool(tmp_path)
    spool.put(finished("uid-0", 1.0))

    def disk_full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="No space left"):
        spool.put(finished("uid-0", 2.0))
    assert spool.read() == [finished("uid-0", 1.0)]
    assert len(list(tmp_path.iterdir())) == 1


def test_the_oldest_results_beyond_the_limit_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "MAX_SPOOLED", 3)
    spool = ResultSpool(tmp_path)
    for number in range(5):
        spool.put(finished(f"uid-{number}"))
    for path in tmp_path.iterdir():
        number = int(json.loads(path.read_bytes())["id"][-1])
        os.utime(path, (number, number))
    assert [done.id for done in spool.read()] == ["uid-2", "uid-3", "uid-4"]
    assert len(list(tmp_path.iterdir())) == 3
