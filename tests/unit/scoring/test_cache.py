"""Cached reports: what is written is read back, and a damaged file is no result."""

import os
from array import array
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.reports import make_report
from vmafx.scoring.cache import ResultCache
from vmafx.scoring.result import FramePair, Report

REPORT = make_report(notes=("a\nnote",), numbers=[0, 3, 6, 9, 12], extras={"ssim": [0.1, 1e-9, 1.0, -0.0, 0.3]})


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> ResultCache:
    return ResultCache(tmp_path_factory.mktemp("cache"))


def entry(folder: Path) -> Path:
    ResultCache(folder).put(REPORT)
    return folder / "key.json"


def test_a_report_is_read_back_as_it_was(tmp_path: Path) -> None:
    entry(tmp_path)
    found = ResultCache(tmp_path).get("key")
    assert found == REPORT
    assert found is not None
    assert [found.numbers.typecode, *(column.typecode for column in found.values.values())] == ["q", "d", "d"]
    assert ResultCache(tmp_path).get("other") is None


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_values_are_exact(cache: ResultCache, values: list[float]) -> None:
    report = Report(make_report(values).result, array("q", range(len(values))), {"vmaf": array("d", values)})
    cache.put(report)
    assert cache.get("key") == report


def test_a_damaged_file_is_no_result(tmp_path: Path) -> None:
    path = entry(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 4
    whole_object = {"result": REPORT.result, "numbers": [0], "values": {"vmaf": [1.0]}}
    for content in (
        b"",
        *(b"".join(lines)[:size] for size in range(0, len(b"".join(lines)) - 2, 50)),
        b"".join(lines[:-1]),
        b"".join([lines[0], lines[2], lines[1], lines[3]]),
        b"".join([*lines[:3], b"[1.0]\n"]),
        b"".join([lines[0], b"[99999999999999999999]\n", *lines[2:]]),
        b"".join([*lines[:3], b"[null,null,null,null,null]\n"]),
        msgspec.json.encode(whole_object),
        os.urandom(1000),
    ):
        path.write_bytes(content)
        assert ResultCache(tmp_path).get("key") is None, content
    path.write_bytes(b"".join(lines))
    assert ResultCache(tmp_path).get("key") == REPORT


def test_a_result_without_sizes_is_read(tmp_path: Path) -> None:
    """Versions that did not record them wrote such results."""
    path = entry(tmp_path)
    first, *rest = path.read_bytes().splitlines(keepends=True)
    header = msgspec.json.decode(first)
    for part in ("reference", "distorted"):
        del header["result"][part]["bytes"], header["result"][part]["bitrate"]
    path.write_bytes(b"".join([msgspec.json.encode(header), b"\n", *rest]))
    found = ResultCache(tmp_path).get("key")
    assert found is not None
    clip = found.result.distorted
    assert (clip.bytes, clip.bitrate, clip.file_size, clip.kbits) == (0, None, "", "")


def test_pictures_are_read_back_and_damaged_ones_are_none(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path)
    pictures = (FramePair(3, 41.5, b"one", b"other"), FramePair(0, 50.0, b"\x00", b""))
    assert cache.get_pictures("key") == ()
    cache.put_pictures("key", pictures)
    assert cache.get_pictures("key") == pictures
    (tmp_path / "key.pictures").write_bytes(b"\xff")
    assert cache.get_pictures("key") == ()


def test_the_least_recently_used_files_are_deleted_above_the_limit(tmp_path: Path) -> None:
    size = entry(tmp_path).stat().st_size
    cache = ResultCache(tmp_path, max_bytes=3 * size)
    for number, name in enumerate(("old", "older", "key")):
        (tmp_path / "key.json").rename(tmp_path / f"{name}.json")
        os.utime(tmp_path / f"{name}.json", (number, number))
        if name != "key":
            ResultCache(tmp_path).put(REPORT)
    assert cache.touch("old")
    assert not cache.touch("none")
    cache.put_pictures("new", [FramePair(0, 1.0, bytes(size // 2), b"")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key.json", "new.pictures", "old.json"]
