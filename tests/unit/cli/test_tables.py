"""Tables that fit the terminal; JSON and YAML; nothing that a terminal would interpret."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fleet.objects import HOSTILE, NOW, ago, condition, job
from vmafx.cli.jobs import COLUMNS as JOBS
from vmafx.cli.jobs import listing_row as job_listing_row
from vmafx.cli.nodes import COLUMNS as NODES
from vmafx.cli.queue import COLUMNS as QUEUE
from vmafx.cli.tables import Columns, TableLayout, as_json, as_yaml, cell, duration
from vmafx.fleet.rows import job_row

NAMES = [f"park-joy-1080p-x265-crf{number}" for number in (20, 24, 28)]
LONG_MESSAGE = "distorted: there is no file s3://clips/park-joy/1080p/x265-crf24.mp4"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"), (-3, "0s"), (0.4, "0s"), (59.6, "1m"), (61, "1m1s"), (599, "9m59s"), (659, "10m"), (3599, "59m"),
        (3660, "1h1m"), (36600, "10h"), (90000, "1d1h"), (8_640_000, "100d"),
    ],
)  # fmt: skip
def test_a_duration_has_at_most_two_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_control_characters_are_never_printed() -> None:
    document = {"name": HOSTILE}
    (line,) = TableLayout(Columns(heads=("NAME",))).lines([(HOSTILE,)], head=False)
    for text in (line, cell(HOSTILE), as_json(document), as_json(document, indent=False), as_yaml(document)):
        assert all(character.isprintable() or character == "\n" for character in text), text
    assert json.loads(as_json(document)) == document
    assert yaml.safe_load(as_yaml(document)) == document
    assert "é 日本" in line


@given(st.recursive(st.text() | st.integers(-(2**53), 2**53) | st.none(), lambda inner: st.lists(inner, max_size=3)))
def test_json_and_yaml_round_trip(value: Any) -> None:
    assert json.loads(as_json(value)) == value
    assert yaml.safe_load(as_yaml(value)) == value


def test_columns_are_aligned_and_lines_are_cut_to_the_width() -> None:
    layout = TableLayout(Columns(heads=("NAME", "TEXT"), texts=("TEXT",)))
    assert layout.lines([("日本", "x"), ("abc", None)]) == ["NAME   TEXT", "日本   x", "abc    -"]
    assert layout.lines([("a", "y" * 50)], head=False, width=25) == [f"a      {'y' * 17}…"]
    assert layout.lines([("longer-than-that", "z")], head=False) == ["longer-than-that   z"]


def job_lines(width: int) -> list[str]:
    placed: dict[str, Any] = {"assignedNode": "gpu-berlin-01", "startedAt": ago(20), "finishedAt": ago(5)}
    jobs = [
        job(NAMES[0], phase="Succeeded", score=91.25, **placed),
        job(NAMES[1], phase="Failed", message=LONG_MESSAGE, conditions=(condition("Failed", "BadInput"),), **placed),
    ]
    rows = [job_listing_row(job_row(item), NOW).cells for item in jobs]
    return [" ".join(line.split()) for line in TableLayout(JOBS).lines(rows, width=width)]


def test_a_narrow_terminal_shows_the_most_important_columns_of_jobs() -> None:
    assert job_lines(160)[0] == "NAME PHASE SCORE NODE ATTEMPTS AGE TIME MESSAGE"
    assert job_lines(160)[1] == f"{NAMES[0]} Succeeded 91.250 gpu-berlin-01 0 1m 15s -"
    assert job_lines(80) == [
        "NAME PHASE SCORE AGE TIME MESSAGE",
        f"{NAMES[0]} Succeeded 91.250 1m 15s -",
        f"{NAMES[1]} Failed - 1m 15s BadInput: distort…",
    ]
    assert job_lines(60) == [
        "NAME PHASE SCORE MESSAGE",
        "park-joy-1…265-crf20 Succeeded 91.250 -",
        "park-joy-1…265-crf24 Failed - BadInput: disto…",
    ]
    assert job_lines(40)[:2] == ["NAME PHASE SCORE", "park-joy-…265-crf20 Succeeded 91.250"]


@pytest.mark.parametrize("columns", [JOBS, JOBS.after("NAMESPACE"), NODES, QUEUE])
@given(st.data(), st.integers(1, 250))
def test_columns_fit_any_width_and_only_names_and_texts_are_cut(columns: Columns, data: Any, room: int) -> None:
    widths = [data.draw(st.integers(len(head), 120)) for head in columns.heads]
    fitted = dict(zip(columns.heads, columns.fit(widths, 3, room), strict=True))
    shown = [width for width in fitted.values() if width]
    assert shown
    assert sum(shown) + 3 * (len(shown) - 1) <= room
    cut = {head for head, width in zip(columns.heads, widths, strict=True) if 0 < fitted[head] < width}
    assert cut <= {*columns.names, *columns.texts}
    if sum(widths) + 3 * (len(widths) - 1) <= room:
        assert list(fitted.values()) == widths
