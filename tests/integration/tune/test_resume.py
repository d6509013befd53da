"""Comparisons that are interrupted: what was finished is kept, what was not leaves nothing."""

import signal
from pathlib import Path

import pytest

from tests.support.leftovers import end_processes_in
from tests.support.tune import HALF_THEN_HANG, FaultyFfmpeg, Tune, encodes
from tests.support.waiting import PATIENCE, eventually

ENCODERS = ("--encoders", "libx264:ultrafast,libx265:ultrafast", "--quality", "30")


async def half_way(tune: Tune) -> None:
    """The first encode has its record, the second has written something."""
    await eventually(lambda: any(name.endswith(".json") for name in tune.kept()), "the first encode is finished")
    await eventually(lambda: any(tune.kept()[name][1] for name in tune.partial()), "the second encode has begun")


async def test_a_comparison_that_was_killed_continues(tune: Tune, faulty: FaultyFfmpeg, source: Path) -> None:
    faulty.fault(HALF_THEN_HANG)
    async with tune.comparing(source, *ENCODERS, environment=faulty.environment) as process:
        await half_way(tune)
        process.kill()
        await process.wait()
    await eventually(lambda: not end_processes_in(tune.folder, within=0.0), "its children have ended with it")
    assert len(tune.partial()) == 1
    finished = {name: file for name, file in tune.kept().items() if name not in tune.partial()}
    assert {Path(name).suffix for name in finished} == {".mp4", ".json"}

    faulty.fault("")
    result = tune.json(source, *ENCODERS, environment=faulty.environment)
    found = encodes(result)
    assert {name: encode.get("resumed", False) for name, encode in found.items()} == {
        "libx264:ultrafast 30": True, "libx265:ultrafast 30": False,
    }  # fmt: skip
    assert found["libx264:ultrafast 30"]["seconds"] > 0
    assert tune.partial() == []
    assert {name: tune.kept()[name] for name in finished} == finished, "the first encode was not made again"
    assert len(tune.kept()) == 4

    kept = tune.kept()
    again = encodes(tune.json(source, *ENCODERS, environment=faulty.environment))
    assert [encode["resumed"] for encode in again.values()] == [True, True]
    assert [encode["score"] for encode in again.values()] == [encode["score"] for encode in found.values()]
    assert tune.kept() == kept


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupted_comparison_leaves_no_processes_and_no_partial_file(
    number: signal.Signals, tune: Tune, faulty: FaultyFfmpeg, source: Path
) -> None:
    faulty.fault(HALF_THEN_HANG)
    async with tune.comparing(source, *ENCODERS, environment=faulty.environment) as process:
        await half_way(tune)
        process.send_signal(number)
        out, err = await process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    assert end_processes_in(tune.folder, within=PATIENCE) == []
    assert {Path(name).suffix for name in tune.kept()} == {".mp4", ".json"}


def test_a_copy_under_another_name_is_the_same_source(tune: Tune, source: Path) -> None:
    first = encodes(tune.json(source, *ENCODERS))
    (tune.folder / "copy.mkv").write_bytes(source.read_bytes())
    again = encodes(tune.json("copy.mkv", *ENCODERS))
    assert [encode["resumed"] for encode in again.values()] == [True, True]
    assert [encode["file"] for encode in again.values()] == [encode["file"] for encode in first.values()]


def test_a_damaged_work_folder_is_repaired(tune: Tune, source: Path) -> None:
    one = ("--encoders", "libx264:ultrafast", "--quality", "30")
    (first,) = encodes(tune.json(source, *one)).values()
    path = Path(first["file"])
    path.write_bytes(path.read_bytes()[:-1])
    (again,) = encodes(tune.json(source, *one)).values()
    assert not again.get("resumed")
    assert again["score"] == first["score"]
    path.with_suffix(".json").write_bytes(b"\0" * 100)
    assert not next(iter(encodes(tune.json(source, *one)).values())).get("resumed")
