"""The section of one clip: score, curves, tables, clip facts and worst frames."""

from base64 import b64encode
from collections.abc import Iterable, Sequence

from vmafx.reports import formatting
from vmafx.reports.budget import Budget
from vmafx.reports.charts import SMALL, ChartLine, FrameChart, draw, figure, gauge, histogram
from vmafx.reports.curves import Curve, thin
from vmafx.reports.features import elementary, extras, feature_info, is_elementary
from vmafx.reports.markup import Html, join, tag
from vmafx.scoring.pictures import FramePair
from vmafx.scoring.result import ClipFacts, FeatureStatistics, Report, ScoreResult


def run_facts(result: ScoreResult) -> Html:
    frames = f"{result.frames:,}" + (f", every {_ordinal(result.subsample)}" if result.subsample > 1 else "")
    facts = {
        "Model": result.model,
        "Pooling": formatting.pooling(result.pooling),
        "Frames scored": frames,
        "Compared at": f"{formatting.size(result.width, result.height)}, {result.pixelFormat}",
        "Speed": "from the cache" if result.cached else f"{formatting.number(result.fps, 1)} fps",
        "Engine": f"libvmaf {result.engine.libvmaf}, ffmpeg {result.engine.ffmpeg}",
    }
    pairs = (tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items())
    return tag("dl", *pairs, class_="facts")


def clip_lines(result: ScoreResult) -> Html:
    """The two clips in short, to stand under the title."""
    named = (
        ("distorted", result.distorted, None),
        ("against", result.reference, formatting.name(result.reference.uri)),
    )
    return tag("p", *(tag("span", tag("b", side), tag("bdi", _clip_summary(clip, name))) for side, clip, name in named),
               class_="lines")  # fmt: skip


def clip_table(result: ScoreResult) -> Html:
    """Side by side; where the two differ in what they should share, the row says so."""
    reference, distorted = result.reference, result.distorted
    told, given = _clip_facts(reference), _clip_facts(distorted)
    rows = [
        _clip_row("Clip", tag("bdi", reference.uri), tag("bdi", distorted.uri)),
        *(_clip_row(name, told[name], given[name], differ=told[name] != given[name]) for name in told),
        _clip_row("Container", reference.container, distorted.container),
        _clip_row("Codec", reference.codec, distorted.codec),
        _clip_row("SHA-256", _digest(reference), _digest(distorted)),
    ]
    heads = (tag("th", name, scope="col") for name in ("", "Reference", "Distorted"))
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="clips")
    return tag("div", table, class_="wide", tabindex=0, role="region", aria_label="The two clips")


def _clip_facts(clip: ClipFacts) -> dict[str, str]:
    length = f" ({formatting.clock(clip.frames / clip.frameRate)})" if clip.frameRate else ""
    return {
        "Size": formatting.size(clip.width, clip.height),
        "Pixel format": clip.pixelFormat,
        "Frame rate": formatting.rate(clip.frameRate),
        "Frames": f"{clip.frames:,}{length}",
    }


def _clip_summary(clip: ClipFacts, name: str | None) -> str:
    rate = f"{formatting.rate(clip.frameRate)} fps" if clip.frameRate else None
    return " · ".join(
        filter(None, (name, clip.codec, formatting.size(clip.width, clip.height), clip.pixelFormat, rate))
    )


def _clip_row(name: str, reference: str, distorted: str, *, differ: bool = False) -> Html:
    mark = tag("span", "differs", class_="differs") if differ else None
    return tag("tr", tag("th", name, scope="row"), tag("td", reference), tag("td", join(distorted, mark)))


def _digest(clip: ClipFacts) -> Html:
    return tag("code", clip.digest.removeprefix("sha256:")[:12], title=clip.digest)


def _ordinal(count: int) -> str:
    ending = "th" if count % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{ending}"


def section(report: Report, name: str, anchor: str, pictures: Sequence[FramePair], room: Budget) -> Html:
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


def rate_of(result: ScoreResult) -> float | None:
    """Frames are counted as the reference has them."""
    return result.reference.frameRate or result.distorted.frameRate


def _notes(notes: Sequence[str]) -> Html | None:
    if not notes:
        return None
    items = tag("ul", *(tag("li", note) for note in notes))
    return tag("aside", tag("strong", "Please note"), items, class_="notes", aria_label="Notes")


def _score(report: Report) -> Html:
    result = report.result
    how = f"{formatting.pooling(result.pooling)} of {formatting.plural(result.frames, 'frame')}"
    return tag(
        "div",
        tag("p", "VMAF", class_="eyebrow"),
        tag("p", tag("strong", formatting.number(result.score)), tag("span", " of 100"), class_="score"),
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
        tag("div", tag("dt", name), tag("dd", tag("b", formatting.number(value)), tag("small", small)))
        for name, (value, small) in told.items()
    )
    return tag("dl", *tiles, class_="tiles")


def _curve(report: Report, pictures: Sequence[FramePair], points: int) -> Html:
    result, curve = report.result, thin(report.numbers, report.values["vmaf"], points)
    vmaf = result.features["vmaf"]
    levels = {"mean": vmaf.mean, "p5": vmaf.percentiles["p5"]}
    chart = FrameChart(
        label=f"VMAF by frame, {formatting.number(vmaf.min)} to {formatting.number(vmaf.max)}, mean {vmaf.mean:.2f}",
        first=report.numbers[0],
        last=report.numbers[-1],
        lines=[ChartLine("VMAF", curve)],
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


def _summary(result: ScoreResult, title: str, columns: Iterable[str]) -> Html:
    heads = ("Measure", "Mean", "Harmonic", "Min", "p1", "p5", "p50", "p95", "Max")
    rows = (_summary_row(column, result.features[column]) for column in columns)
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in heads)))
    table = tag("div", tag("table", head, tag("tbody", *rows), class_="numbers"), class_="wide", tabindex=0,
                role="region", aria_label=title)  # fmt: skip
    return tag("div", tag("h3", title), table, class_="panel")


def _summary_row(column: str, summary: FeatureStatistics) -> Html:
    known, steps = feature_info(column), summary.percentiles
    values = (
        summary.mean,
        summary.harmonicMean,
        summary.min,
        *(steps[p] for p in ("p1", "p5", "p50", "p95")),
        summary.max,
    )
    cells = (tag("td", formatting.number(value, known.decimals)) for value in values)
    return tag("tr", tag("th", known.label, scope="row", title=column), *cells)


def _main(result: ScoreResult) -> list[str]:
    columns = [column for column in result.features if not is_elementary(column)]
    return sorted(columns, key=lambda column: column != "vmaf")


def _multiples(report: Report, columns: Sequence[str], points: int) -> Html | None:
    return tag("div", *(_small(report, column, points) for column in columns), class_="multiples") if columns else None


def _small(report: Report, column: str, points: int) -> Html:
    known, curve = feature_info(column), thin(report.numbers, report.values[column], points)
    title = f"{known.label}, {known.unit}" if known.unit else known.label
    if not curve.points:
        return figure(title, tag("p", "No frame has a finite value.", class_="muted"), heading="h4")
    low, high = min(value for _, value in curve.points), max(value for _, value in curve.points)
    chart = FrameChart(
        label=f"{known.label} by frame, from {low:.{known.decimals}f} to {high:.{known.decimals}f}",
        first=report.numbers[0],
        last=report.numbers[-1],
        lines=[ChartLine(known.label, curve)],
        measure=known,
        rate=rate_of(report.result),
        sizes=(SMALL,),
    )
    left_out = f"{formatting.plural(curve.left_out, 'frame')} without a finite value" if curve.left_out else ""
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


def _worst(result: ScoreResult, pictures: Sequence[FramePair]) -> Html | None:
    if not pictures:
        return None
    heads = tag("p", tag("span", "Reference"), tag("span", "Distorted"), class_="sides", aria_hidden="true")
    return tag("div", tag("h3", "Worst frames"), heads, *(_pair(result, one) for one in pictures), class_="panel worst")


def _pair(result: ScoreResult, picture: FramePair) -> Html:
    moment = _moment(result, picture.frame)
    images = (
        tag("img", src=f"data:image/jpeg;base64,{b64encode(data).decode()}", alt=f"{side}, {moment}",
            width=result.width, height=result.height)
        for side, data in (("Reference", picture.reference), ("Distorted", picture.distorted))
    )  # fmt: skip
    caption = tag("figcaption", tag("b", formatting.number(picture.score)), f" {moment}")
    return tag("figure", caption, *images)


def _moment(result: ScoreResult, frame: int) -> str:
    rate = rate_of(result)
    return f"frame {frame:,}" + (f" at {formatting.clock(frame / rate)}" if rate else "")
