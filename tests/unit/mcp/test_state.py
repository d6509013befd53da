"""The state of servers: one folder each, and jobs that are taken over."""

from pathlib import Path

import msgspec
import pytest

from vmafx.clock import utc_now
from vmafx.folder_lock import FolderInUse
from vmafx.mcp import state as module
from vmafx.mcp.job import McpJobRecord, Phase, WorkOutcome
from vmafx.mcp.state import StateFolder, default_state


def record(number: int, phase: Phase = "Succeeded") -> McpJobRecord:
    return McpJobRecord(
        id=f"score-{number}", kind="score", owner="", share="", arguments=msgspec.Raw(b'{"reference": "a"}'),
        created=utc_now(), phase=phase, outcome=WorkOutcome(),
    )  # fmt: skip


async def test_a_second_server_has_its_own_jobs_and_the_next_one_takes_them_over(tmp_path: Path) -> None:
    first = StateFolder(tmp_path, exclusive=False)
    second = StateFolder(tmp_path, exclusive=False)
    assert (first.number, second.number) == (1, 2)
    await first.write(record(1))
    await second.write(record(2, "Running"))
    with pytest.raises(FolderInUse, match="--state"):
        StateFolder(tmp_path, exclusive=True)
    assert [one.id for one in first.load()] == ["score-1"]
    first.close()
    third = StateFolder(tmp_path, exclusive=True)
    assert [one.id for one in third.load()] == ["score-1"], "the second server still runs"
    third.close()
    second.close()
    last = StateFolder(tmp_path, exclusive=True)
    assert [(one.id, one.phase) for one in last.load()] == [("score-1", "Succeeded"), ("score-2", "Running")]
    last.close()
    assert StateFolder(tmp_path, exclusive=False).load() == last.load()


async def test_records_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    state = StateFolder(tmp_path, exclusive=True)
    await state.write(record(1))
    jobs = tmp_path / "servers/1/jobs"
    for name, content in (("bad.json", b"{"), ("old.json", b'{"id": "x"}'), ("utf.json", b"\xff")):
        (jobs / name).write_bytes(content)
    (jobs / ".x.json.part").write_bytes(b"")
    assert [one.id for one in state.load()] == ["score-1"]
    assert not (jobs / ".x.json.part").exists()
    state.close()


async def test_the_oldest_finished_jobs_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FINISHED", 2)
    state = StateFolder(tmp_path, exclusive=True)
    finished = [record(number) for number in range(4)]
    for one in finished:
        await state.write(one)
    assert await state.prune(finished) == ["score-0", "score-1"]
    assert [one.id for one in state.load()] == ["score-2", "score-3"]
    monkeypatch.setattr(module, "MAX_RECORD_BYTES", 1)
    assert await state.prune(finished[2:]) == ["score-2", "score-3"]
    state.close()


def test_the_default_folder_is_that_of_the_system_only_where_it_can_be_written(tmp_path: Path) -> None:
    assert default_state({}, tmp_path) == tmp_path / "mcp"
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    assert default_state(environ, tmp_path / "missing") == tmp_path / "state/vmafx/mcp"
    assert default_state({}, tmp_path / "missing") == Path.home() / ".local/state/vmafx/mcp"
