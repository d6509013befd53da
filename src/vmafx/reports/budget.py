"""How many charts and points an HTML report may have, so that it stays below 1 MB without its pictures."""

from collections.abc import Sequence

import msgspec

from vmafx.reports.features import elementary, extras
from vmafx.scoring.result import Report

# Measured sizes in bytes. A point counts its drawings and the value that curves.js shows.
PAGE = 850_000
CLIP = 20_000  # tables of a clip, and its large chart without points
ROW, ROW_WITHOUT_GAUGE = 750, 350  # of the overview table
NAMES = 10  # per character of the URIs of a clip and its reference, which occur several times
SMALL_CHART, SMALL_POINT = 1_000, 27
LARGE_POINT = 50  # drawn in three widths
DETAIL_POINT = 13  # only a value, for the zoom
RATE_POINT = 1_700  # of the chart of rates and qualities, drawn in three widths

MAX_SECTIONS = 30  # with more clips, readers use the overview
MAX_RATES = 60  # clips in a chart of rates and qualities; the scores of more would cover each other
LARGE_FACTOR = 4  # points of a large chart's curve, as a multiple of a small chart's
MIN_POINTS = 40
MAX_POINTS, MAX_SMALL_POINTS = 1500, 300  # more cannot be distinguished on a screen
MAX_DETAIL = 6000  # four minutes at 25 fps


class Budget(msgspec.Struct, frozen=True):
    points: int  # per curve in a large chart
    small_points: int  # per curve in a small chart
    extras: bool  # charts for additional features such as PSNR
    elementary: bool  # charts for the elementary features of VMAF
    sections: int  # clips with their own section
    gauges: bool = True  # gauges in the rows of the overview
    rates: bool = True  # the chart of rates and qualities
    detail: int = MIN_POINTS  # values per curve of a large chart, which a zoom shows


def page_budget(reports: Sequence[Report]) -> Budget:
    """Divide the page size among the clips.

    As the number of clips grows, charts of elementary features are omitted first, then charts of additional features
    (their tables stay), then the sections of the clips with higher scores. The overview always lists all clips.
    """
    longest = max(len(report.result.distorted.uri) + len(report.result.reference.uri) for report in reports)
    sections, gauges = _sections(len(reports), NAMES * longest)
    if sections < len(reports):
        return Budget(
            MIN_POINTS,
            MIN_POINTS,
            extras=False,
            elementary=False,
            sections=sections,
            gauges=gauges,
            rates=_rate_chart(len(reports)) > 0,
        )
    n_extras, n_elementary = (sum(len(columns(report)) for report in reports) for columns in (extras, elementary))
    for draw_extras, draw_elementary in ((True, True), (True, False), (False, False)):
        small_charts = n_extras * draw_extras + n_elementary * draw_elementary
        share = _points_per_small_curve(len(reports), small_charts, NAMES * longest)
        if share >= MIN_POINTS:
            break
    points = min(max(LARGE_FACTOR * share, MIN_POINTS), MAX_POINTS)
    small_points = min(max(share, MIN_POINTS), MAX_SMALL_POINTS)
    curves = _large_curves(len(reports))
    free = _free(len(reports), small_charts, NAMES * longest)
    unused = free - SMALL_POINT * small_charts * small_points - LARGE_POINT * curves * points
    return Budget(
        points=points,
        small_points=small_points,
        extras=draw_extras,
        elementary=draw_elementary,
        sections=sections,
        detail=min(points + max(unused, 0) // (DETAIL_POINT * curves), MAX_DETAIL),
    )


def _sections(clips: int, names: int) -> tuple[int, bool]:
    """The number of clips with a section, and whether the rows of the overview have gauges."""
    gauges = clips * (ROW + names) < PAGE // 2
    rows = 0 if clips <= MAX_SECTIONS else clips * (names // 2 + (ROW if gauges else ROW_WITHOUT_GAUGE))
    room = (PAGE - rows - _rate_chart(clips)) // (CLIP + names + 2 * LARGE_POINT * MIN_POINTS)
    return min(clips, MAX_SECTIONS, max(room, 1)), gauges


def _points_per_small_curve(clips: int, small_charts: int, names: int) -> int:
    cost = SMALL_POINT * small_charts + LARGE_POINT * LARGE_FACTOR * _large_curves(clips)
    return _free(clips, small_charts, names) // cost


def _large_curves(clips: int) -> int:
    return clips * (2 if clips > 1 else 1)  # several clips also have a curve in the overview


def _free(clips: int, small_charts: int, names: int) -> int:
    """The bytes that are left for points."""
    return PAGE - (CLIP + names) * clips - SMALL_CHART * small_charts - _rate_chart(clips)


def _rate_chart(clips: int) -> int:
    """The bytes of the chart of rates and qualities."""
    return RATE_POINT * clips if 1 < clips <= MAX_RATES else 0
