"""What people see of the fleet, without a cluster: rows, the queue, tables, and what they may write."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.objects import pattern_of
from vmafx.api.fields import ObjectName
from vmafx.api.job import JobProgress, JobSpecView
from vmafx.api.meta import Condition, MetaView
from vmafx.api.node import VmafxNodeSpec
from vmafx.cli.jobs import COLUMNS as JOBS
from vmafx.cli.jobs import row_of as jobs_row
from vmafx.cli.listing import Listing, ListingDiff, ListingRow
from vmafx.cli.nodes import COLUMNS as NODES
from vmafx.cli.options import parse_pairs, parse_seconds
from vmafx.cli.queue import COLUMNS as QUEUE
from vmafx.cli.tables import Columns, TableLayout, as_json, as_yaml, cell, duration
from vmafx.fleet.errors import JobRejected
from vmafx.fleet.queue import JobQueue, make_queue
from vmafx.fleet.reader import (
    ALL_PHASES,
    UNFINISHED_PHASES,
    FleetJob,
    FleetJobStatus,
    FleetNode,
    FleetNodeStatus,
    phase_selector,
)
from vmafx.fleet.rows import job_row, node_row
from vmafx.fleet.submit import clip_uri, job_name_for, model_uri
from vmafx.kube import ObjectKey
from vmafx.scheduling.durations import JobClass, JobDuration
from vmafx.scoring.errors import BadInput

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def ago(seconds_: float) -> datetime:
    return NOW - timedelta(seconds=seconds_)


def job(name: str, spec: dict[str, Any] | None = None, age: float = 60, **status: Any) -> FleetJob:
    meta = MetaView(name, "x", f"uid-{name}", creationTimestamp=ago(age))
    return FleetJob(meta, JobSpecView("s3://b/r", "s3://b/d", **(spec or {})), FleetJobStatus(**status))


def node(name: str, spec: dict[str, Any] | None = None, **status: Any) -> FleetNode:
    return FleetNode(
        MetaView(name, "x"), VmafxNodeSpec(**({"gpuVendor": "cpu"} | (spec or {}))),
        FleetNodeStatus(**({"healthy": True} | status)),
    )  # fmt: skip


def said(kind: str, reason: str, message: str = "so it is", status: Any = "False", at: datetime = NOW) -> Condition:
    return Condition(kind, status, at, reason, message)


def running(name: str, on: str, since: float) -> FleetJob:
    placed = said("Scheduled", "Placed", status="True", at=ago(since))
    return job(name, phase="Running", assignedNode=on, startedAt=ago(since), conditions=(placed,))


@pytest.mark.parametrize(
    ("one", "reason", "message"),
    [
        (job("a"), None, None),
        (job("a", conditions=(said("Scheduled", "NoNodes"),), message="old"), "NoNodes", "so it is"),
        (running("a", "n", 1), None, None),
        (job("a", phase="Running", progress=JobProgress(3, 9, 1.0)), None, "3 of 9 frames"),
        (job("a", phase="Running", message="hm", progress=JobProgress(3, 0, 1.0)), None, "hm"),
        (job("a", phase="Succeeded", conditions=(said("Complete", "Scored"),)), "Scored", None),
        (job("a", phase="Failed", message="no", conditions=(said("Failed", "BadInput"),)), "BadInput", "no"),
    ],
)
def test_what_a_job_has_to_say(one: FleetJob, reason: str | None, message: str | None) -> None:
    row = job_row(one)
    assert (row.reason, row.message) == (reason, message)


@pytest.mark.parametrize(
    ("one", "used", "free", "reason"),
    [
        (node("n", {"capacity": 4}), 1, 3, None),
        (node("n", {"capacity": 1}), 3, 0, None),
        (node("n", {"unschedulable": True, "capacity": 2}), 0, 0, "Cordoned"),
        (node("n", healthy=None), 0, 0, "Unjudged"),
        (node("n", healthy=False), 0, 0, "Unhealthy"),
        (node("n", healthy=False, conditions=(said("Ready", "HeartbeatStale"),)), 0, 0, "HeartbeatStale"),
        (node("n", {"runtime": "Agent"}), 0, 0, "NoAgent"),
        (node("n", {"runtime": "Agent"}, agentSession="s"), 0, 1, None),
        (node("n", {"runtime": "Agent"}, agentSession="s", draining=True), 0, 0, "Draining"),
        (node("n", {"unschedulable": True, "runtime": "Agent"}, agentSession="s", draining=True), 0, 0, "Draining"),
        (node("n", healthy=False, draining=True, conditions=(said("Ready", "AgentLost"),)), 0, 0, "AgentLost"),
    ],
)
def test_how_a_node_is_doing(one: FleetNode, used: int, free: int, reason: str | None) -> None:
    row = node_row(one, used)
    assert (row.free, row.reason) == (free, reason)
    assert (row.message is None) == (reason is None)


def test_the_queue_says_who_is_next_why_and_when() -> None:
    jobs = [
        running("old", "pool", since=4),
        job("second", age=20),
        job("first", {"priority": 9}, age=5),
        job("asleep", {"suspend": True}),
        job("again", failures=1, conditions=(said("Scheduled", "Retrying", at=ago(3)),), age=30),
        job("gpu", {"backend": "cuda"}),
    ]
    runs = [JobDuration(JobClass("x", "cpu"), 1.0, 10.0)]
    found = make_queue(jobs, [node("pool")], runs, NOW)
    shown = [(row.name, row.position, row.reason, row.startsIn, row.doneIn) for row in found.jobs]
    assert shown == [
        ("first", 1, "InsufficientCapacity", 6.0, 16.0),
        ("again", 2, "Retrying", 16.0, 26.0),
        ("second", 3, "InsufficientCapacity", 26.0, 36.0),
        ("asleep", None, "Suspended", None, None),
        ("gpu", None, "BackendUnavailable", None, None),
    ]
    assert (found.summary.waiting, found.summary.held, found.summary.running) == (5, 2, 1)
    assert (found.summary.slots, found.summary.free) == (1, 0)
    unknown = make_queue(jobs, [node("pool")], [], NOW)
    assert {row.startsIn for row in unknown.jobs} == {None}
    assert [row.runs_in_time() for row in found.jobs] == [True, True, True, False, False]
    shut = make_queue(jobs, [node("pool", {"unschedulable": True})], runs, NOW)
    assert {(row.position, row.runs_in_time()) for row in shut.jobs} == {(None, False)}  # also of the one that retries


def test_a_free_slot_that_nobody_gives_away_is_noticed() -> None:
    def reason(age: float) -> str:
        return make_queue([job("a", age=age)], [node("pool")], [], NOW).jobs[0].reason

    assert (reason(5), reason(60)) == ("Placing", "NotPlaced")


def test_a_job_placed_by_another_takes_its_slot_and_one_that_is_deleted_takes_none() -> None:
    placed = job("placed", {"schedulerName": "other"}, assignedNode="pool")
    going = FleetJob(MetaView("going", "x", deletionTimestamp=NOW), JobSpecView("s3://b/r", "s3://b/d"))
    found = make_queue(
        [placed, going, job("next")], [node("pool")], [JobDuration(JobClass("x", "cpu"), 1.0, 10.0)], NOW
    )
    assert [(row.name, row.reason, row.startsIn) for row in found.jobs] == [
        ("next", "InsufficientCapacity", 10.0),
        ("placed", "Placed", None),
    ]


def test_an_empty_fleet() -> None:
    assert make_queue([], [], [], NOW) == JobQueue([], make_queue([], [], [], NOW).summary)


def test_phases_are_chosen_by_leaving_out_the_others() -> None:
    assert phase_selector(ALL_PHASES) == ""
    assert phase_selector(UNFINISHED_PHASES) == "status.phase!=Succeeded,status.phase!=Failed"


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "-"), (-3, "0s"), (0.4, "0s"), (59.6, "1m"), (61, "1m1s"), (599, "9m59s"), (659, "10m"), (3599, "59m"),
        (3660, "1h1m"), (36600, "10h"), (90000, "1d1h"), (8_640_000, "100d"),
    ],
)  # fmt: skip
def test_spans(amount: float | None, text: str) -> None:
    assert duration(amount) == text


@pytest.mark.parametrize(
    ("text", "amount"), [("", None), ("0", 0), ("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("7d", 604800)]
)
def test_times(text: str, amount: int | None) -> None:
    assert parse_seconds(text, "--ttl") == amount


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "5x", "1h30", "10 m", "m", "99999999999", "9999999999d"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(BadInput, match="is no time; write it as 90s, 10m or 1h30m"):
        parse_seconds(text, "--ttl")


def test_pairs() -> None:
    assert parse_pairs(["a=b,c=d", "e="], "--label") == {"a": "b", "c": "d", "e": ""}
    for wrong in ("a", "=b"):
        with pytest.raises(BadInput, match="is no KEY=VALUE"):
            parse_pairs([wrong], "--label")


@given(st.text(max_size=200))
def test_any_clip_gives_a_name_that_the_server_takes(clip: str) -> None:
    name = job_name_for(clip)
    assert len(name) <= 52
    assert re.search(pattern_of(ObjectName), name)


@pytest.mark.parametrize(
    ("clip", "stem"),
    [
        ("s3://b/park/AV1 1Mbit.mp4?x=/y.z", "av1-1mbit"),
        ("file:///a/%E2%82%AC.mkv", "job"),
        ("https://host/a.b.mp4#t", "a-b"),
    ],
)
def test_a_job_is_named_after_its_clip(clip: str, stem: str) -> None:
    assert job_name_for(clip)[:-6] == stem
    assert job_name_for(clip) != job_name_for(clip)


def test_clips_must_be_where_the_job_runs() -> None:
    assert clip_uri("HTTPS://Host/A.mp4") == "https://Host/A.mp4"
    assert clip_uri("/clips/a b.mp4") == "file:///clips/a%20b.mp4"
    for path in ("a.mp4", "./a.mp4", "~/a.mp4", "", "C:\\a.mp4"):
        with pytest.raises(JobRejected, match="is a relative path, and jobs run on other machines"):
            clip_uri(path)
    assert model_uri("vmaf_v0.6.1") == "vmaf_v0.6.1"
    assert model_uri("/models/mine.json") == "file:///models/mine.json"
    with pytest.raises(JobRejected):
        model_uri("mine.json")


HOSTILE = "a\x1b]0;owned\x07\x9b31m\u202eb\nc\td\x00 é 日本"


def test_nothing_is_printed_that_a_terminal_would_obey() -> None:
    told = {"name": HOSTILE}
    (line,) = TableLayout(Columns(heads=("NAME",))).lines([(HOSTILE,)], head=False)
    for text in (line, cell(HOSTILE), as_json(told), as_json(told, indent=False), as_yaml(told)):
        assert all(one.isprintable() or one == "\n" for one in text), text
    assert json.loads(as_json(told)) == told
    assert yaml.safe_load(as_yaml(told)) == told
    assert "é 日本" in line


@given(st.recursive(st.text() | st.integers(-(2**53), 2**53) | st.none(), lambda inner: st.lists(inner, max_size=3)))
def test_what_is_printed_for_scripts_is_what_was_meant(thing: Any) -> None:
    assert json.loads(as_json(thing)) == thing
    assert yaml.safe_load(as_yaml(thing)) == thing


def test_columns_line_up_and_lines_fit() -> None:
    layout = TableLayout(Columns(heads=("NAME", "TEXT"), texts=("TEXT",)))
    assert layout.lines([("日本", "x"), ("abc", None)]) == ["NAME   TEXT", "日本   x", "abc    -"]
    assert layout.lines([("a", "y" * 50)], head=False, width=25) == [f"a      {'y' * 17}…"]
    assert layout.lines([("longer-than-that", "z")], head=False) == ["longer-than-that   z"]


FILMS = [f"park-joy-1080p-x265-crf{number}" for number in (20, 24, 28)]
LONG = "distorted: there is no file s3://clips/park-joy/1080p/x265-crf24.mp4"


def job_lines(width: int) -> list[str]:
    placed: dict[str, Any] = {"assignedNode": "gpu-berlin-01", "startedAt": ago(20), "finishedAt": ago(5)}
    found = [
        job(FILMS[0], phase="Succeeded", score=91.25, **placed),
        job(FILMS[1], phase="Failed", message=LONG, conditions=(said("Failed", "BadInput"),), **placed),
    ]
    rows = [jobs_row(job_row(one), NOW).cells for one in found]
    return [" ".join(line.split()) for line in TableLayout(JOBS).lines(rows, width=width)]


def test_what_matters_of_jobs_is_shown_on_any_terminal() -> None:
    assert job_lines(160)[0] == "NAME PHASE SCORE NODE ATTEMPTS AGE TIME MESSAGE"
    assert job_lines(160)[1] == f"{FILMS[0]} Succeeded 91.250 gpu-berlin-01 0 1m 15s -"
    assert job_lines(80) == [
        "NAME PHASE SCORE AGE TIME MESSAGE",
        f"{FILMS[0]} Succeeded 91.250 1m 15s -",
        f"{FILMS[1]} Failed - 1m 15s BadInput: distort…",
    ]
    assert job_lines(60) == [
        "NAME PHASE SCORE MESSAGE",
        "park-joy-1…265-crf20 Succeeded 91.250 -",
        "park-joy-1…265-crf24 Failed - BadInput: disto…",
    ]
    assert job_lines(40)[:2] == ["NAME PHASE SCORE", "park-joy-…265-crf20 Succeeded 91.250"]


@pytest.mark.parametrize("columns", [JOBS, JOBS.after("NAMESPACE"), NODES, QUEUE])
@given(st.data(), st.integers(1, 250))
def test_columns_fit_any_terminal_and_only_names_and_texts_are_cut(columns: Columns, data: Any, room: int) -> None:
    widths = [data.draw(st.integers(len(head), 120)) for head in columns.heads]
    found = dict(zip(columns.heads, columns.fit(widths, 3, room), strict=True))
    shown = [width for width in found.values() if width]
    assert shown
    assert sum(shown) + 3 * (len(shown) - 1) <= room
    cut_ = {head for head, width in zip(columns.heads, widths, strict=True) if 0 < found[head] < width}
    assert cut_ <= {*columns.names, *columns.texts}
    if sum(widths) + 3 * (len(widths) - 1) <= room:
        assert list(found.values()) == widths


def test_only_rows_that_changed_are_told_and_those_that_left() -> None:
    def sheet(**values: int) -> Listing:
        rows = [ListingRow(ObjectKey("x", name), value, (value,), value // 10) for name, value in values.items()]
        return Listing(rows, None)

    looks = iter([sheet(a=10, b=20), sheet(a=11, b=20, c=30), sheet(a=20, c=31), sheet()])
    seen = ListingDiff(lambda: next(looks), lambda row: row._replace(document="gone"))
    assert [row.document for row in seen.sheet().rows] == [10, 20]
    assert [row.document for row in seen.changed([])] == [30]
    assert [row.document for row in seen.changed([])] == ["gone", 20]
    assert [row.document for row in seen.changed([])] == ["gone", "gone"]
