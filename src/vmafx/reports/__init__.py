"""A run's reports as files: a page for people, tables for programs. Nothing here scores, and nothing here is fetched.

data.py          JSON and CSV
files.py         writes any of them, by the ending of the name
page.py          the HTML page; beside it page.css and page.js, which it carries within itself
overview.py      several clips at a glance
section.py       one clip: its score, curves, tables and worst frames
clips.py         how a score came about: the run, and what the two clips were
rate_quality.py  encodes by what they cost and how good they look: a page, and a PNG
charts.py        what a chart shows, and its markup
plots.py         every chart as a figure, which becomes SVG or PNG
ticks.py         where a chart's axes have ticks
canvas.py        matplotlib, and how all charts look; imported only when something is drawn
svg.py           what matplotlib wrote, as a part of a page
curves.py        long clips made short without losing a dip; frames counted by their score
budget.py        how many charts and points a page can have
measures.py      what we know of each measure
words.py         numbers, times and clips as people read them
markup.py        elements; the one place where text becomes HTML
"""

from vmafx.reports.files import (
    ReportSettings,
    check_path,
    csv_report,
    json_report,
    placed,
    render_report,
    shows_pictures,
    write_report,
)
from vmafx.reports.page import html

__all__ = [
    "ReportSettings",
    "check_path",
    "csv_report",
    "html",
    "json_report",
    "placed",
    "render_report",
    "shows_pictures",
    "write_report",
]
