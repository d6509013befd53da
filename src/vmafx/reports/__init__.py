"""A run's reports as files: a page for people, tables for programs. Nothing here scores, and nothing here is fetched.

data.py       JSON and CSV
files.py      writes any of them, by the ending of the name
page.py       the HTML page; beside it page.css and page.js, which it carries within itself
overview.py   several clips at a glance
section.py    one clip: its score, curves, tables and worst frames
clips.py      how a score came about: the run, and what the two clips were
charts.py     curves over the frames
bars.py       how the frames' scores are spread
scales.py     axes, ticks, and long clips made short without losing a dip
measures.py   what we know of each measure
words.py      numbers, times and clips as people read them
markup.py     elements; the one place where text becomes HTML
"""

from vmafx.reports.data import csv, json
from vmafx.reports.files import check, render, write
from vmafx.reports.page import html

__all__ = ["check", "csv", "html", "json", "render", "write"]
