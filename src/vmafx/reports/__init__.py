"""Reports of scored clips: an HTML page for people, JSON and CSV for programs, and charts. Nothing here scores a clip.

files.py         JSON and CSV reports; writes a report in the format of its file name
page.py          the HTML page, with its overview; page.css and the scripts are embedded in it
page.js          the switch between light and dark, and what the other scripts use
curves.js        values under the pointer and by keyboard, and the zoom
frames.js        the viewer of the worst frames
section.py       the section of one clip: score, curves, tables and worst frames
score_charts.py  the charts of scored clips
chart_files.py   the charts of scored clips as SVG and PNG
rate_quality.py  VMAF against bitrate of several encodes, as a page and as a PNG
encoder_comparison.py  several encoders compared on one source, as a page
ladder.py        a ladder of sizes and qualities, as a page
learning.py      loss and correlations of the versions of a trained model, as a page, PNG or SVG
charts.py        the chart types and their markup
plots.py         draws the charts with matplotlib
canvas.py        the style of all charts, and figures as SVG or PNG; the only import of matplotlib
curves.py        downsampling of curves, and histogram bins
budget.py        how many charts and points a page may have
features.py      label, precision and scale of each feature
formatting.py    numbers, times and clip names as text
markup.py        HTML elements and escaping
"""

from vmafx.reports.chart_files import ChartFormat, chart_file
from vmafx.reports.encoder_comparison import ComparedEncode, ComparedEncoder, ComparisonPage, encoder_comparison
from vmafx.reports.files import (
    ReportSettings,
    check_path,
    csv_report,
    json_report,
    needed_feature,
    render_report,
    resolve_path,
    shows_pictures,
    write_report,
)
from vmafx.reports.ladder import LadderEncode, LadderPage, LadderShot, ladder_page
from vmafx.reports.page import html

__all__ = [
    "ChartFormat",
    "ComparedEncode",
    "ComparedEncoder",
    "ComparisonPage",
    "LadderEncode",
    "LadderPage",
    "LadderShot",
    "ReportSettings",
    "chart_file",
    "check_path",
    "csv_report",
    "encoder_comparison",
    "html",
    "json_report",
    "ladder_page",
    "needed_feature",
    "render_report",
    "resolve_path",
    "shows_pictures",
    "write_report",
]
