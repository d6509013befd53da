"""How many charts a page has, and how many points they show: so that no report is above 1 MB beside its pictures."""

from collections.abc import Sequence

import msgspec

from vmafx.reports.features import elementary, extras
from vmafx.scoring.result import Report

# Bytes, as measured; those of a point are for its drawings and for the values that page.js shows.
PAGE = 850_000
CLIP = 20_000  # its tables, and its large chart without points
ROW, ROW_WITHOUT_GAUGE = 700, 300  # in the overview's table
NAMES = 10  # bytes for each character of a clip's and its reference's names, which are told several times
MAX_SECTIONS = 30  # from there on, a report is read by its overview
SMALL_CHART, SMALL_POINT = 1_000, 27
LARGE_POINT = 50  # drawn for three widths
FACTOR = 4  # a large chart's curve has that many times the points of a small one's
MIN_POINTS = 40
MAX_POINTS, MAX_SMALL_POINTS = 1500, 300  # more could not be told apart on a screen


class Budget(msgspec.Struct, frozen=True):
    points: int  # of a curve in a large chart
    small_points: int  # of a curve in a small one
    extras: bool  # whether the measures beside VMAF have charts
    elementary: bool  # whether what VMAF is made of has charts
    sections: int  # clips that have one of their own
    gauges: bool = True  # whether the overview's rows have one


def budget(reports: Sequence[Report]) -> Budget:
    """With many clips, charts of what few ask for are left out first, then all small ones; their tables stay.

    With more than that, only some clips have a section. The overview has a row for each, in any case.
    """
    longest = max(len(report.result.distorted.uri) + len(report.result.reference.uri) for report in reports)
    sections, gauges = _sections(len(reports), NAMES * longest)
    if sections < len(reports):
        return Budget(MIN_POINTS, MIN_POINTS, extras=False, elementary=False, sections=sections, gauges=gauges)
    others, parts = (sum(len(columns(report)) for report in reports) for columns in (extras, elementary))
    for draw_others, draw_parts in ((True, True), (True, False), (False, False)):
        share = _share(len(reports), others * draw_others + parts * draw_parts, NAMES * longest)
        if share >= MIN_POINTS:
            break
    return Budget(
        points=min(max(FACTOR * share, MIN_POINTS), MAX_POINTS),
        small_points=min(max(share, MIN_POINTS), MAX_SMALL_POINTS),
        extras=draw_others,
        elementary=draw_parts,
        sections=sections,
    )


def _sections(clips: int, names: int) -> tuple[int, bool]:
    """How many clips have one, and whether the rows of all have gauges."""
    gauges = clips * (ROW + names) < PAGE // 2
    rows = 0 if clips <= MAX_SECTIONS else clips * (names // 2 + (ROW if gauges else ROW_WITHOUT_GAUGE))
    room = (PAGE - rows) // (CLIP + names + 2 * LARGE_POINT * MIN_POINTS)
    return min(clips, MAX_SECTIONS, max(room, 1)), gauges


def _share(clips: int, small: int, names: int) -> int:
    """How many points each small curve can have."""
    large = clips * (2 if clips > 1 else 1)  # several have an overview
    return (PAGE - (CLIP + names) * clips - SMALL_CHART * small) // (SMALL_POINT * small + LARGE_POINT * FACTOR * large)
