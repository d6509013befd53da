"""How many charts a page has, and how many points they show: so that no report is above 1 MB beside its pictures."""

from collections.abc import Sequence

import msgspec

from vmafx.reports.measures import elementary, extras
from vmafx.scoring.result import Report

# Bytes, as measured; those of a point are for its drawings and for the values that page.js shows.
PAGE = 850_000
CLIP = 20_000  # its tables, and its large chart without points
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


def budget(reports: Sequence[Report]) -> Budget:
    """With many clips, charts of what few ask for are left out first, then all small ones; their tables stay."""
    others, parts = (sum(len(columns(report)) for report in reports) for columns in (extras, elementary))
    for draw_others, draw_parts in ((True, True), (True, False), (False, False)):
        share = _share(len(reports), others * draw_others + parts * draw_parts)
        if share >= MIN_POINTS:
            break
    return Budget(
        points=min(max(FACTOR * share, MIN_POINTS), MAX_POINTS),
        small_points=min(max(share, MIN_POINTS), MAX_SMALL_POINTS),
        extras=draw_others,
        elementary=draw_parts,
    )


def _share(clips: int, small: int) -> int:
    """How many points each small curve can have."""
    large = clips * (2 if clips > 1 else 1)  # several have an overview
    return (PAGE - CLIP * clips - SMALL_CHART * small) // (SMALL_POINT * small + LARGE_POINT * FACTOR * large)
