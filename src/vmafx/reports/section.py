"""One clip: its score, curves, tables and worst frames."""

from base64 import b64encode
from collections.abc import Iterable, Sequence

from vmafx.reports import words
from vmafx.reports.budget import Budget
from vmafx.reports.charts import SMALL, FrameChart, Line, draw, figure, gauge, histogram
from vmafx.reports.clips import clip_lines, clip_table, run_facts
from vmafx.reports.curves import Curve, thin
from vmafx.reports.markup import Html, tag
from vmafx.reports.measures import elementary, extras, is_elementary, measure
from vmafx.scoring.frames import Picture
from vmafx.scoring.result import Report, Result, Summary


def section(report: Report, name: str, anchor: str, pictures: Sequence[Picture], room: Budget) -> Html:
    result = report.result
    return tag(
        "section",
        tag("header", tag("h2", tag("bdi", name)), clip_lines(result)),
        _notes(result.notes),
        tag("div", _score(report), _numbers(report), run_facts(result), class_="hero panel"),
        _curve(report, pictures, room.points),
        tag("div", _histogram(report), _summary(result, "Measures", _main(result)), class_="pair"),
        _others(report, room),
        _worst(result, pictures),
        tag("div", tag("h3", "Clips"), clip_table(result), class_="panel"),
        _elementary(report, room),
        id=anchor,
        aria_label=name,
    )


def rate_of(result: Result) -> float | None:
    """Frames are counted as the reference has them."""
    return result.reference.frameRate or result.distorted.frameRate


def _notes(notes: Sequence[str]) -> Html | None:
    if not notes:
        return None
    items = tag("ul", *(tag("li", note) for note in notes))
    return tag("aside", tag("strong", "Please note"), items, class_="notes", aria_label="Notes")


def _score(report: Report) -> Html:
    result = report.result
    how = f"{words.pooling(result.pooling)} of {words.plural(result.frames, 'frame')}"
    return tag(
        "div",
        tag("p", "VMAF", class_="eyebrow"),
        tag("p", tag("strong", words.number(result.score)), tag("span", " of 100"), class_="score"),
        tag("p", f"{how[0].upper()}{how[1:]}. Higher is better.", class_="muted"),
        gauge(result.score, result.features["vmaf"]),
        tag("p", "Thin: all frames. Thick: 9 in 10 of them.", class_="muted key"),
    )


def _numbers(report: Report) -> Html:
    """What a mean hides."""
    vmaf, values = report.result.features["vmaf"], report.values["vmaf"]
    worst = report.numbers[values.index(min(values))]
    told = {
        "Worst frame": (vmaf.min, _moment(report.result, worst)),
        "1 in 100 below": (vmaf.percentiles["p1"], "p1"),
        "5 in 100 below": (vmaf.percentiles["p5"], "p5"),
        "Half below": (vmaf.percentiles["p50"], "median"),
        "Mean": (vmaf.mean, "all frames alike"),
        "Harmonic mean": (vmaf.harmonicMean, "bad frames weigh more"),
    }
    tiles = (
        tag("div", tag("dt", name), tag("dd", tag("b", words.number(value)), tag("small", small)))
        for name, (value, small) in told.items()
    )
    return tag("dl", *tiles, class_="tiles")


def _curve(report: Report, pictures: Sequence[Picture], points: int) -> Html:
    result, curve = report.result, thin(report.numbers, report.values["vmaf"], points)
    vmaf = result.features["vmaf"]
    levels = {"mean": vmaf.mean, "p5": vmaf.percentiles["p5"]}
    chart = FrameChart(
        label=f"VMAF by frame, from {words.number(vmaf.min)} to {words.number(vmaf.max)}; mean {vmaf.mean:.2f}",
        first=report.numbers[0],
        last=report.numbers[-1],
        lines=[Line("VMAF", curve)],
        rate=rate_of(result),
        levels=levels if len(report.numbers) > 1 else {},
        dots=[(picture.frame, picture.score) for picture in pictures],
    )
    told = [note_on(curve)] if curve.buckets else []
    told += ["Dots: the frames shown below."] if pictures else []
    return figure("VMAF by frame", draw(chart), " ".join(told))


def note_on(curve: Curve) -> str:
    return f"Line: mean of every {curve.size} frames. Band: from the worst to the best of them."


def _histogram(report: Report) -> Html:
    chart = histogram(report.values["vmaf"])
    return figure("Frames by VMAF", draw(chart), f"Number of frames in steps of {chart.width:g}.")


def _summary(result: Result, title: str, columns: Iterable[str]) -> Html:
    heads = ("Measure", "Mean", "Harmonic", "Min", "p1", "p5", "p50", "p95", "Max")
    rows = (_summary_row(column, result.features[column]) for column in columns)
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in heads)))
    table = tag("div", tag("table", head, tag("tbody", *rows), class_="numbers"), class_="wide", tabindex=0,
                role="region", aria_label=title)  # fmt: skip
    return tag("div", tag("h3", title), table, class_="panel")


def _summary_row(column: str, summary: Summary) -> Html:
    known, steps = measure(column), summary.percentiles
    values = (
        summary.mean,
        summary.harmonicMean,
        summary.min,
        *(steps[p] for p in ("p1", "p5", "p50", "p95")),
        summary.max,
    )
    cells = (tag("td", words.number(value, known.decimals)) for value in values)
    return tag("tr", tag("th", known.label, scope="row", title=column), *cells)


def _main(result: Result) -> list[str]:
    columns = [column for column in result.features if not is_elementary(column)]
    return sorted(columns, key=lambda column: column != "vmaf")


def _multiples(report: Report, columns: Sequence[str], points: int) -> Html | None:
    return tag("div", *(_small(report, column, points) for column in columns), class_="multiples") if columns else None


def _small(report: Report, column: str, points: int) -> Html:
    known, curve = measure(column), thin(report.numbers, report.values[column], points)
    title = f"{known.label}, {known.unit}" if known.unit else known.label
    if not curve.points:
        return figure(title, tag("p", "No frame has a finite value.", class_="muted"), heading="h4")
    low, high = min(value for _, value in curve.points), max(value for _, value in curve.points)
    chart = FrameChart(
        label=f"{known.label} by frame, from {low:.{known.decimals}f} to {high:.{known.decimals}f}",
        first=report.numbers[0],
        last=report.numbers[-1],
        lines=[Line(known.label, curve)],
        measure=known,
        rate=rate_of(report.result),
        sizes=(SMALL,),
    )
    left_out = f"{words.plural(curve.left_out, 'frame')} without a finite value" if curve.left_out else ""
    return figure(title, draw(chart), "; ".join(filter(None, (known.hint, left_out))), heading="h4")


def _left_out() -> Html:
    return tag("p", "With so many clips, further curves are left out; a report as CSV has all values.", class_="muted")


def _others(report: Report, room: Budget) -> Html | None:
    columns = extras(report)
    return _left_out() if columns and not room.extras else _multiples(report, columns, room.small_points)


def _elementary(report: Report, room: Budget) -> Html | None:
    columns = [column for column in elementary(report) if column in report.result.features]
    if not columns:
        return None
    curves = _multiples(report, columns, room.small_points) if room.elementary else _left_out()
    inside = (_summary(report.result, "Elementary measures", columns), curves)
    return tag(
        "details",
        tag("summary", f"What VMAF is made of: {len(columns)} elementary measures"),
        tag("div", *inside, class_="stack"),
    )


def _worst(result: Result, pictures: Sequence[Picture]) -> Html | None:
    if not pictures:
        return None
    heads = tag("p", tag("span", "Reference"), tag("span", "Distorted"), class_="sides", aria_hidden="true")
    return tag("div", tag("h3", "Worst frames"), heads, *(_pair(result, one) for one in pictures), class_="panel worst")


def _pair(result: Result, picture: Picture) -> Html:
    moment = _moment(result, picture.frame)
    images = (
        tag("img", src=f"data:image/jpeg;base64,{b64encode(data).decode()}", alt=f"{side}, {moment}",
            width=result.width, height=result.height)
        for side, data in (("Reference", picture.reference), ("Distorted", picture.distorted))
    )  # fmt: skip
    caption = tag("figcaption", tag("b", words.number(picture.score)), f" {moment}")
    return tag("figure", caption, *images)


def _moment(result: Result, frame: int) -> str:
    rate = rate_of(result)
    return f"frame {frame:,}" + (f" at {words.clock(frame / rate)}" if rate else "")
