"""`vmafx top` without a cluster: what a frame says, and what of it is drawn."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from tests.unit.fleet.test_listings import HOSTILE, NOW, ago, job, node, running, said
from vmafx.api.job import JobProgress
from vmafx.cli.top_screen import BAR, divide_rows, render, slot_bar
from vmafx.fleet.overview import MAX_REMEMBERED, EndedJobs, FleetOverview, make_overview, sorted_by
from vmafx.fleet.queue import make_queue
from vmafx.fleet.reader import FleetJob, FleetNode
from vmafx.fleet.rows import key_of
from vmafx.runtime.store import ObjectChange


def over(name: str, seconds: float, phase: Any = "Succeeded", **status: Any) -> FleetJob:
    times = {"startedAt": ago(seconds + 10), "finishedAt": ago(seconds)}
    return job(name, phase=phase, **({"score": 91.25, "frames": 120} | times | status))


def ended(*jobs: FleetJob, whole: bool = True) -> EndedJobs:
    made = EndedJobs()
    made.read(jobs, NOW, whole=whole)
    return made


def look(jobs: list[FleetJob], nodes: list[FleetNode], gone: EndedJobs | None = None) -> FleetOverview:
    return make_overview(
        "https://host:6443", "x", NOW, nodes, jobs, make_queue(jobs, nodes, [], NOW), gone or EndedJobs()
    )


def telling(name: str, on: str, frames: int, total: int, fps: float) -> FleetJob:
    placed = said("Scheduled", "Placed", status="True", at=ago(8))
    told = JobProgress(frames, total, fps)
    return job(name, phase="Running", assignedNode=on, attempts=2, conditions=(placed,), progress=told)


def drawn(found: FleetOverview, room: int | None = None, width: int = 120, **options: Any) -> list[str]:
    console = Console(width=width, height=room or 1000, color_system=None)
    with console.capture() as captured:
        console.print(render(found, room, width, **options))
    return captured.get().splitlines()


FLEET = look(
    [telling("half", "fast", 60, 120, 80.0), running("quiet", "slow", 30), job("next"), job("later", age=5)],
    [node("fast", throughput=300.0, detectedDevice="A100"), node("slow", {"capacity": 2, "unschedulable": True})],
    ended(over("good", 5), over("bad", 8, "Failed", score=None, message="no such clip")),
)  # fmt: skip


def test_a_frame_says_what_runs_where_and_how_fast() -> None:
    assert FLEET.phases == {"Pending": 2, "Running": 2, "Succeeded": 1, "Failed": 1}
    assert (FLEET.slots, FLEET.used, FLEET.free) == (3, 2, 0)
    half, quiet = FLEET.running
    assert (half.node, half.attempt, half.done, half.fps, half.elapsed) == ("fast", 2, 0.5, 80.0, 8.0)
    assert (quiet.done, quiet.fps, quiet.elapsed) == (None, None, 30.0)
    assert [(one.name, [row.name for row in one.jobs]) for one in FLEET.nodes] == [
        ("fast", ["half"]), ("slow", ["quiet"]),
    ]  # fmt: skip
    assert [row.name for row in FLEET.queue] == ["next", "later"]
    assert [row.name for row in FLEET.ended] == ["good", "bad"]
    assert FLEET.fps == 80.0  # what jobs tell of themselves goes before what ended
    assert FLEET.jobsPerSecond == round(2 / 60, 3)


def test_how_fast_it_goes_is_told_by_the_last_minute() -> None:
    made = ended(over("now", 1, frames=600), over("old", 61), over("bad", 2, "Failed", frames=9))
    assert (made.pace(NOW).jobs, made.pace(NOW).frames) == (2 / 60, 10.0)
    assert look([], [], made).fps == 10.0
    part = ended(over("before", 1), whole=False)  # of which nobody knows how many there were beside
    assert part.pace(NOW).jobs is None
    part.hear(ObjectChange(key_of(over("after", -5)), None, over("after", -5)))
    assert part.pace(NOW + timedelta(seconds=10)).jobs == 1 / 10


def test_an_end_is_counted_once_and_forgotten_when_its_job_is_deleted() -> None:
    made, one = ended(), over("a", 1)
    for _ in range(2):
        made.hear(ObjectChange(key_of(one), None, one))
    made.hear(ObjectChange(key_of(one), None, job("b")))
    assert made.phases() == {"Succeeded": 1, "Failed": 0}
    made.hear(ObjectChange(key_of(one), one, None))
    assert made.phases() == {"Succeeded": 0, "Failed": 0}
    assert made.whole


def test_more_ends_than_are_remembered_are_at_least_so_many() -> None:
    made = ended(*(over(f"job-{number}", 1) for number in range(MAX_REMEMBERED + 1)))
    assert (made.phases()["Succeeded"], made.whole) == (MAX_REMEMBERED, False)
    assert f"{MAX_REMEMBERED:,}+ succeeded" in "\n".join(drawn(look([], [], made), 30))


def test_orders() -> None:
    jobs = [telling("a", "m", 1, 9, 5.0), telling("b", "n", 1, 9, 7.0), running("c", "n", 99)]
    found = look(jobs, [node("m", {"capacity": 9}, throughput=9.0), node("n", {"capacity": 2})])

    def names(sorting: Any) -> tuple[list[str], list[str]]:
        shown = sorted_by(found, sorting)
        return [one.name for one in shown.nodes], [one.name for one in shown.running]

    assert names("name") == (["m", "n"], ["a", "b", "c"])
    assert names("busy") == (["n", "m"], ["c", "a", "b"])
    assert names("fps") == (["m", "n"], ["b", "a", "c"])


def test_the_screen_shows_it() -> None:
    shown = drawn(FLEET)
    text = "\n".join(shown)
    assert shown[0].split()[:5] == ["vmafx", "top", "host:6443", "namespace", "x"]
    assert "2 of 3 used, 0 free" in text
    told = [" ".join(line.split()) for line in shown]
    assert f"half fast 2 {slot_bar(0.5)} 50% 80.0 8s" in told
    assert f"fast cpu A100 healthy {slot_bar(1)} 1/1 300.0 half 50%" in told
    assert "good Succeeded 91.25 120 - 10s -" in told
    for piece in ("InsufficientCapacity: the only slot", "Cordoned: it gets no new jobs", "no such clip"):
        assert piece in text
    assert "no running jobs" in "\n".join(drawn(look([], [])))


def a_crowd() -> FleetOverview:
    """With names and messages as they are in life."""
    names = [f"park-joy-1080p-x265-crf{number}" for number in (20, 22, 24, 26)]
    gone = ended(
        over(names[2], 5, assignedNode="gpu-berlin-01", frames=14400),
        over(names[3], 8, "Failed", score=None, message="distorted: there is no file s3://clips/park-joy-crf26.mp4"),
    )
    nodes = [
        node("gpu-berlin-01", {"gpuVendor": "nvidia"}, throughput=812.0, detectedDevice="NVIDIA A100-SXM4-80GB"),
        node("gpu-berlin-02", {"unschedulable": True}),
    ]
    return look([telling(names[0], "gpu-berlin-01", 60, 120, 80.0), job(names[1])], nodes, gone)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_narrow_terminal_shows_what_matters(width: int) -> None:
    shown = drawn(a_crowd(), 24, width)
    told = [" ".join(line.split()) for line in shown]
    for head in ("PHASE", "SCORE", "MESSAGE", "HEALTH", "SLOTS", "PROGRESS", "ELAPSED", "REASON"):
        assert any(head in line for line in told), head
    assert any(line.startswith("park-joy-1") and "crf24 Succeeded 91.25" in line for line in told)
    assert any(line.startswith("gpu-berlin-02 ") and "Cordoned: it g" in line for line in told)
    assert any("park-joy-1080p-x265-crf22" in line and "InsufficientCapacity" in line for line in told)
    assert not any(word in {"…", "-…"} for line in told for word in line.split())
    if width >= 80:
        assert any("crf24 Succeeded 91.25" in line and "10s" in line for line in told)


@pytest.mark.parametrize("room", range(1, 30))
def test_a_low_terminal_shows_parts_with_rows_or_not_at_all(room: int) -> None:
    told = drawn(a_crowd(), room, 40)
    assert not any("the first 0" in line or "the latest 0" in line for line in told)
    heads = [place for place, line in enumerate(told) if line.split()[:1] in (["NODE"], ["JOB"])]
    assert all(place + 1 < len(told) and told[place + 1].strip() for place in heads), told


def test_parts_that_are_cut_say_what_is_shown() -> None:
    gone = [over(f"ended-{number}", number) for number in range(60)]
    found = look([job(f"waits-{number}") for number in range(9)], [node("n")], ended(*gone))
    assert "Ended (60)  the latest 50" in drawn(found)
    low = drawn(found, 24)
    assert "Queue (9)  the first 4" in low
    assert "Ended (60)  the latest 4" in low
    assert "Queue (9)  the first one" in drawn(found, 18)
    assert "Ended (60+)  the latest 50" in drawn(look([], [], ended(*gone, whole=False)))
    assert "Ended (2)" in drawn(FLEET)


@given(st.integers(1, 60), st.integers(20, 200), st.integers(0, 30))
def test_the_screen_fits_any_terminal(room: int, width: int, many: int) -> None:
    jobs = [job(f"waits-{number}") for number in range(many)] + [running(f"runs-{n}", "n", 5) for n in range(many)]
    found = look(jobs, [node(f"n{number}") for number in range(many)], ended(*(over(f"e{n}", n) for n in range(many))))
    shown = drawn(found, room, width, notes=[Text("q quit")])
    assert len(shown) <= room
    assert max(map(len, shown)) <= width


def test_what_others_wrote_is_never_obeyed() -> None:
    evil = job("[red]a[/]", phase="Failed", message=f"{HOSTILE} [link=x]", finishedAt=NOW, assignedNode=HOSTILE)
    text = "\n".join(
        drawn(look([running("a", HOSTILE, 1)], [node("n", detectedDevice=HOSTILE)], ended(evil)), width=300)
    )
    assert all(one.isprintable() or one == "\n" for one in text), text
    assert "[red]a[/]" in text
    assert "[link=x]" in text


@pytest.mark.parametrize(
    ("room", "wants", "given_"),
    [
        (10, [3, 3, 3], [3, 3, 3]),
        (8, [2, 9, 9], [2, 3, 3]),
        (2, [5, 5, 5], [1, 1, 0]),
        (0, [5], [0]),
        (-4, [5], [0]),
        (7, [0, 9], [0, 7]),
    ],
)
def test_room_is_shared(room: int, wants: list[int], given_: list[int]) -> None:
    assert divide_rows(room, wants) == given_


def test_bars() -> None:
    assert [slot_bar(part).count("█") for part in (-1, 0, 0.001, 0.5, 0.999, 1, 7)] == [
        0,
        0,
        1,
        BAR // 2,
        BAR - 1,
        BAR,
        BAR,
    ]
    assert {len(slot_bar(part / 50)) for part in range(51)} == {BAR}
