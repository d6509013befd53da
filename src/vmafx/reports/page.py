"""HTML pages: each is one file that needs nothing else, and reads well without its script."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib import resources

from vmafx.reports import words
from vmafx.reports.budget import budget
from vmafx.reports.markup import Html, tag
from vmafx.reports.overview import overview
from vmafx.reports.section import section
from vmafx.scoring.frames import Picture
from vmafx.scoring.result import Report


def html(reports: Sequence[Report], pictures: Mapping[str, Sequence[Picture]] = {}) -> str:
    """The page; `pictures` are of the worst frames, by the `key` of the result that they belong to."""
    names = words.names([report.result.distorted.uri for report in reports])
    anchors = [f"clip-{place}" for place in range(1, len(reports) + 1)]
    room = budget(reports)
    worst = sorted(range(len(reports)), key=lambda place: reports[place].result.score)[: room.sections]
    detailed = sorted(worst)
    sections = [
        section(reports[place], names[place], anchors[place], pictures.get(reports[place].result.key, ()), room)
        for place in detailed
    ]
    if len(reports) > 1:
        sections.insert(0, overview(reports, names, {place: anchors[place] for place in detailed}, room))
    return document(_title(reports, names), "Video quality report", *sections)


def document(title: str, heading: str, *content: Html) -> str:
    """A whole page: one file that needs nothing else, in which only our own script may run."""
    style, script = _piece("page.css"), _piece("page.js")
    policy = "; ".join((
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        f"script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'",
        "base-uri 'none'",
        "form-action 'none'",
    ))  # fmt: skip
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", style),
    )
    toggle = tag("button", "Dark", type="button", id="theme", hidden="")
    banner = tag("header", tag("h1", heading), toggle, class_="banner")
    body = tag("body", banner, tag("main", *content), tag("footer", tag("p", "Made by vmafx")), tag("script", script))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _title(reports: Sequence[Report], names: Sequence[str]) -> str:
    if len(reports) == 1:
        return f"VMAF {words.number(reports[0].result.score)}: {names[0]}"
    return f"VMAF of {len(reports)} clips"


@cache
def _piece(name: str) -> Html:
    return Html(resources.files("vmafx.reports").joinpath(name).read_text(encoding="utf-8"))
