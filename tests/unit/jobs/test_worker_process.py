"""What an agent reads from the files of a worker, which may be hostile."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.agent.controller_link import progress_message, result_message
from vmafx.agent.spool import SpooledResult
from vmafx.jobs.attempt import MAX_RESULT_BYTES, AttemptResult, encode_result
from vmafx.jobs.worker_process import WorkerProcess, WorkerTask
from vmafx.scoring.result import Progress

NUMBERS = [-1, 2**53, 2**63, 2**64, 10**30, "1e308", "1e400", "-1e-400", 10**400, "NaN", "null", '"1"']
ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
    max_leaves=5,
)


def worker(folder: Path) -> WorkerProcess:
    return WorkerProcess(WorkerTask("u1-0", "{}", "auto"), folder, None, "")


def report_all(folder: Path) -> None:
    """Everything that the agent does with what a worker wrote, until it is sent."""
    process = worker(folder)
    progress_message("u1-0", "clip", process.progress()).SerializeToString()
    if (result := process._result()) is not None:
        done = SpooledResult("u1-0", "clip", result)
        assert msgspec.json.decode(msgspec.json.encode(done), type=SpooledResult) == done
        result_message(done).SerializeToString()


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: str(number)[:20])
@pytest.mark.parametrize("field", ["done", "total", "fps", "eta"])
def test_progress_with_any_number_can_be_reported(tmp_path: Path, field: str, number: object) -> None:
    (tmp_path / "progress").write_text(f'{{"stage": "scoring", "{field}": {number}}}\n')
    report_all(tmp_path)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: str(number)[:20])
@pytest.mark.parametrize("field", ['"score"', '"score": 50, "frames"', '"score": 50, "metrics": {"psnr": {"mean"'])
def test_a_result_with_any_number_can_be_stored_and_reported(tmp_path: Path, field: str, number: object) -> None:
    brackets = "}" * (1 + field.count("{"))
    (tmp_path / "result").write_text(f'{{"id": "u1-0", {field}: {number}{brackets}')
    report_all(tmp_path)


@given(st.dictionaries(st.sampled_from(Progress.__struct_fields__), ANY_JSON, min_size=1))
def test_any_progress_can_be_reported(tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("worker")
    (folder / "progress").write_text(json.dumps({"stage": "scoring"} | fields) + "\n")
    report_all(folder)


@given(st.dictionaries(st.sampled_from(AttemptResult.__struct_fields__), ANY_JSON))
def test_any_result_can_be_stored_and_reported(
    tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("worker")
    (folder / "result").write_text(json.dumps({"id": "u1-0", "score": 50} | fields))
    report_all(folder)


def test_a_result_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    valid = encode_result(AttemptResult("u1-0", 50.0, 6))
    (tmp_path / "result").write_bytes(valid)
    assert worker(tmp_path)._result() == AttemptResult("u1-0", 50.0, 6)
    (tmp_path / "result").write_bytes(valid + b" " * MAX_RESULT_BYTES)
    assert worker(tmp_path)._result() is None
