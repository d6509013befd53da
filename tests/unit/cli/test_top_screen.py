"""The screen of `vmafx top`: what is shown, and how it fits the terminal."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from tests.unit.fleet.objects import HOSTILE, NOW, job, node, running_job
from tests.unit.fleet.test_overview import FLEET, ended_job, ended_jobs, job_with_progress, overview_of
from vmafx.cli.top_screen import BAR_WIDTH, bar, divide_rows, render
from vmafx.fleet.overview import MAX_REMEMBERED, FleetOverview


def render_lines(overview: FleetOverview, height: int | None = None, width: int = 120, **options: Any) -> list[str]:
    console = Console(width=width, height=height or 1000, color_system=None)
    with console.capture() as captured:
        console.print(render(overview, height, width, **options))
    return captured.get().splitlines()


def test_the_screen_shows_slots_progress_reasons_and_results() -> None:
    lines = render_lines(FLEET)
    text = "\n".join(lines)
    assert lines[0].split()[:5] == ["vmafx", "top", "host:6443", "namespace", "x"]
    assert "2 of 3 used, 0 free" in text
    rows = [" ".join(line.split()) for line in lines]
    assert f"half fast 2 {bar(0.5)} 50% 80.0 8s" in rows
    assert f"fast cpu A100 healthy {bar(1)} 1/1 300.0 half 50%" in rows
    assert "good Succeeded 91.25 120 - 10s -" in rows
    for piece in ("InsufficientCapacity: the only slot", "Cordoned: it gets no new jobs", "no such clip"):
        assert piece in text
    assert "no running jobs" in "\n".join(render_lines(overview_of([], [])))


def test_a_count_of_ended_jobs_that_is_a_lower_bound_has_a_plus() -> None:
    ended = ended_jobs(*(ended_job(f"job-{number}", 1) for number in range(MAX_REMEMBERED + 1)))
    assert f"{MAX_REMEMBERED:,}+ succeeded" in "\n".join(render_lines(overview_of([], [], ended), 30))


def fleet_with_long_names() -> FleetOverview:
    names = [f"park-joy-1080p-x265-crf{number}" for number in (20, 22, 24, 26)]
    message = "distorted: there is no file s3://clips/park-joy-crf26.mp4"
    ended = ended_jobs(
        ended_job(names[2], 5, assignedNode="gpu-berlin-01", frames=14400),
        ended_job(names[3], 8, "Failed", score=None, message=message),
    )
    nodes = [
        node("gpu-berlin-01", {"gpuVendor": "nvidia"}, throughput=812.0, detectedDevice="NVIDIA A100-SXM4-80GB"),
        node("gpu-berlin-02", {"unschedulable": True}),
    ]
    return overview_of([job_with_progress(names[0], "gpu-berlin-01", 60, 120, 80.0), job(names[1])], nodes, ended)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_narrow_terminal_shows_the_most_important_columns(width: int) -> None:
    lines = [" ".join(line.split()) for line in render_lines(fleet_with_long_names(), 24, width)]
    for head in ("PHASE", "SCORE", "MESSAGE", "HEALTH", "SLOTS", "PROGRESS", "ELAPSED", "REASON"):
        assert any(head in line for line in lines), head
    assert any(line.startswith("park-joy-1") and "crf24 Succeeded 91.25" in line for line in lines)
    assert any(line.startswith("gpu-berlin-02 ") and "Cordoned: it g" in line for line in lines)
    assert any("park-joy-1080p-x265-crf22" in line and "InsufficientCapacity" in line for line in lines)
    assert not any(word in {"…", "-…"} for line in lines for word in line.split())
    if width >= 80:
        assert any("crf24 Succeeded 91.25" in line and "10s" in line for line in lines)


@pytest.mark.parametrize("height", range(1, 30))
def test_a_panel_on_a_low_terminal_has_at_least_one_row_or_is_left_out(height: int) -> None:
    lines = render_lines(fleet_with_long_names(), height, 40)
    assert not any("the first 0" in line or "the latest 0" in line for line in lines)
    heads = [index for index, line in enumerate(lines) if line.split()[:1] in (["NODE"], ["JOB"])]
    assert all(index + 1 < len(lines) and lines[index + 1].strip() for index in heads), lines


def test_the_title_of_a_cut_panel_has_the_number_of_rows() -> None:
    ended = [ended_job(f"ended-{number}", number) for number in range(60)]
    overview = overview_of([job(f"waiting-{number}") for number in range(9)], [node("n")], ended_jobs(*ended))
    assert "Finished (60)  the latest 50" in render_lines(overview)
    low = render_lines(overview, 24)
    assert "Queue (9)  the first 4" in low
    assert "Finished (60)  the latest 4" in low
    assert "Queue (9)  the first one" in render_lines(overview, 18)
    assert "Finished (60+)  the latest 50" in render_lines(overview_of([], [], ended_jobs(*ended, whole=False)))
    assert "Finished (2)" in render_lines(FLEET)


@given(st.integers(1, 60), st.integers(20, 200), st.integers(0, 30))
def test_the_screen_fits_any_terminal(height: int, width: int, count: int) -> None:
    jobs = [job(f"waiting-{number}") for number in range(count)]
    jobs += [running_job(f"running-{number}", "n", 5) for number in range(count)]
    ended = ended_jobs(*(ended_job(f"e{number}", number) for number in range(count)))
    overview = overview_of(jobs, [node(f"n{number}") for number in range(count)], ended)
    lines = render_lines(overview, height, width, notes=[Text("q quit")])
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_control_characters_and_markup_are_not_interpreted() -> None:
    hostile = job("[red]a[/]", phase="Failed", message=f"{HOSTILE} [link=x]", finishedAt=NOW, assignedNode=HOSTILE)
    nodes = [node("n", detectedDevice=HOSTILE)]
    overview = overview_of([running_job("a", HOSTILE, 1)], nodes, ended_jobs(hostile))
    text = "\n".join(render_lines(overview, width=300))
    assert all(character.isprintable() or character == "\n" for character in text), text
    assert "[red]a[/]" in text
    assert "[link=x]" in text


@pytest.mark.parametrize(
    ("free", "wanted", "expected"),
    [
        (10, [3, 3, 3], [3, 3, 3]),
        (8, [2, 9, 9], [2, 3, 3]),
        (2, [5, 5, 5], [1, 1, 0]),
        (0, [5], [0]),
        (-4, [5], [0]),
        (7, [0, 9], [0, 7]),
    ],
)
def test_rows_are_divided_evenly(free: int, wanted: list[int], expected: list[int]) -> None:
    assert divide_rows(free, wanted) == expected


def test_a_bar_is_empty_only_for_zero_and_full_only_for_one() -> None:
    fractions = (-1, 0, 0.001, 0.5, 0.999, 1, 7)
    expected = [0, 0, 1, BAR_WIDTH // 2, BAR_WIDTH - 1, BAR_WIDTH, BAR_WIDTH]
    assert [bar(fraction).count("█") for fraction in fractions] == expected
    assert {len(bar(part / 50)) for part in range(51)} == {BAR_WIDTH}
