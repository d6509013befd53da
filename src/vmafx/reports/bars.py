"""How the frames' scores are spread: a histogram, and one bar for the impatient."""

from collections.abc import Sequence

from vmafx.reports import words
from vmafx.reports.charts import horizontal, percent
from vmafx.reports.markup import Html, tag
from vmafx.reports.scales import bins, counts, decimals
from vmafx.scoring.result import Summary


def histogram(values: Sequence[float]) -> tuple[Html, str]:
    """The drawing, and how wide its bars are."""
    width, tally = bins(values)
    exact = decimals(width)
    y = counts(max(count for _, count in tally))
    share = 1 / len(tally)
    every = len(tally) // 10 + 1
    drawn = horizontal(y, 0)
    for place, (start, count) in enumerate(tally):
        height = y.at(count)
        told = f"{start:.{exact}f} to {start + width:.{exact}f}: {words.plural(count, 'frame')}"
        drawn.append(
            tag(
                "rect",
                tag("title", f"{told}, {count / len(values):.1%}"),
                x=percent((place + 0.06) * share),
                width=percent(0.88 * share),
                y=percent(1 - height),
                height=percent(height),
                class_="bar",
            )
        )
    for place in range(0, len(tally) + 1, every):
        at, start = percent(place * share), tally[0][0] + place * width
        odd = " odd" if place // every % 2 else ""
        drawn.append(tag("text", words.number(start, exact), x=at, y="100%", dy="1.6em", class_=f"tick below{odd}"))
    label = (
        f"Histogram of the VMAF of {words.plural(len(values), 'frame')}, from {min(values):.2f} to {max(values):.2f}"
    )
    drawing = tag("svg", *drawn, role="img", aria_label=label)
    return tag("div", drawing, class_="plot"), f"{width:g}"


def gauge(score: float, summary: Summary, *, ticks: bool = True) -> Html:
    """From 0 to 100: all frames thin, nine in ten of them thick, the score as a mark."""
    low, high = summary.percentiles["p5"], summary.percentiles["p95"]
    drawn = [
        tag("rect", x=0, width="100%", y=9, height=2, class_="rail"),
        _stretch(summary.min, summary.max, y=8, height=4, class_="all"),
        _stretch(low, high, y=5, height=10, class_="most"),
        tag("line", x1=percent(_at(score)), x2=percent(_at(score)), y1=2, y2=18, class_="mark"),
    ]
    for value in range(0, 101, 20) if ticks else ():
        anchor = {0: "start", 100: "end"}.get(value, "middle")
        drawn.append(tag("text", f"{value}", x=percent(_at(value)), y=34, text_anchor=anchor, class_="tick"))
    label = f"{score:.2f} on a scale from 0 to 100; nine in ten frames from {low:.2f} to {high:.2f}"
    return tag("svg", *drawn, role="img", aria_label=label, class_="gauge", height=38 if ticks else 20)


def _stretch(low: float, high: float, **attributes: str | float) -> Html:
    return tag("rect", x=percent(_at(low)), width=percent(max(_at(high) - _at(low), 0.004)), rx=1, **attributes)


def _at(score: float) -> float:
    return min(max(score / 100, 0.0), 1.0)
