"""The section of one clip: score, statistics, curves, worst frames, and facts about the scoring and the clips."""

from base64 import b64encode
from collections.abc import Iterable, Sequence

import msgspec

from vmafx.reports import formatting
from vmafx.reports.budget import Budget
from vmafx.reports.charts import SMALL, draw, figure, gauge, histogram
from vmafx.reports.curves import downsample
from vmafx.reports.features import elementary, extras, feature_info, is_elementary
from vmafx.reports.markup import Html, join, tag
from vmafx.reports.score_charts import clip_chart, downsampling_note, feature_chart, frame_rate
from vmafx.scoring.result import ClipFacts, FeatureStatistics, FramePair, Pictures, Report, ScoreResult

BEING_TAKEN = (
    "Pictures of these frames were still being taken when this report was made. Reload the page, or download the "
    "report again, to see them."
)


def section(report: Report, name: str, anchor: str, pictures: Pictures, budget: Budget) -> Html:
    result, which = report.result, anchor.replace("-", " ")
    return tag(
        "section",
        tag("header", tag("h2", tag("bdi", name)), _clip_lines(result)),
        _notes(result.notes, which),
        tag("div", _score(report), _key_figures(report), _scoring_facts(result), class_="hero panel"),
        _curve(report, pictures or (), budget),
        tag("div", _histogram(report), _statistics(result, "Statistics", which, _main_features(result)), class_="pair"),
        _extra_charts(report, budget),
        _worst_frames(result, pictures),
        tag("div", tag("h3", "Clips"), _clip_table(result, which), class_="panel"),
        _elementary_features(report, which, budget),
        id=anchor,
        aria_label=name,
    )


def _clip_lines(result: ScoreResult) -> Html:
    """A short description of both clips, below the title."""
    named = (
        ("distorted", result.distorted, None),
        ("reference", result.reference, formatting.name(result.reference.uri)),
    )
    return tag("p", *(tag("span", tag("b", side), tag("bdi", _clip_summary(clip, name))) for side, clip, name in named),
               class_="lines")  # fmt: skip


def _clip_summary(clip: ClipFacts, name: str | None) -> str:
    rate = f"{formatting.rate(clip.frameRate)} fps" if clip.frameRate else None
    frames = (formatting.size(clip.width, clip.height), clip.pixelFormat, rate)
    return " · ".join(filter(None, (name, clip.codec, *frames, clip.file_size, clip.kbits)))


def _notes(notes: Sequence[str], which: str) -> Html | None:
    if not notes:
        return None
    items = tag("ul", *(tag("li", note) for note in notes))
    return tag("aside", tag("strong", "Notes"), items, class_="notes", aria_label=f"Notes on {which}")


def _score(report: Report) -> Html:
    result = report.result
    pooled = f"{formatting.pooling(result.pooling)} of {formatting.plural(result.frames, 'frame')}"
    return tag(
        "div",
        tag("p", "VMAF", class_="eyebrow"),
        tag("p", tag("strong", formatting.number(result.score)), tag("span", " of 100"), class_="score"),
        tag("p", f"{pooled[0].upper()}{pooled[1:]}. Higher is better.", class_="muted"),
        gauge(result.score, result.features["vmaf"]),
        tag("p", "Thin bar: minimum to maximum. Thick bar: 5th to 95th percentile.", class_="muted key"),
    )


def _key_figures(report: Report) -> Html:
    vmaf, values = report.result.features["vmaf"], report.values["vmaf"]
    worst = report.numbers[values.index(min(values))]
    figures = {
        "Worst frame": (vmaf.min, _frame_and_time(report.result, worst)),
        "1st percentile": (vmaf.percentiles["p1"], "1 % of frames are below"),
        "5th percentile": (vmaf.percentiles["p5"], "5 % of frames are below"),
        "Median": (vmaf.percentiles["p50"], "50 % of frames are below"),
        "Mean": (vmaf.mean, "all frames weigh the same"),
        "Harmonic mean": (vmaf.harmonicMean, "low scores weigh more"),
    }
    tiles = (
        tag("div", tag("dt", name), tag("dd", tag("b", formatting.number(value)), tag("small", detail)))
        for name, (value, detail) in figures.items()
    )
    return tag("dl", *tiles, class_="tiles")


def _scoring_facts(result: ScoreResult) -> Html:
    frames = f"{result.frames:,}" + (f", every {formatting.ordinal(result.subsample)}" if result.subsample > 1 else "")
    facts = {
        "Model": result.model,
        "Pooling": formatting.pooling(result.pooling),
        "Frames scored": frames,
        "Scored at": f"{formatting.size(result.width, result.height)}, {result.pixelFormat}",
        "Scoring speed": "cached result" if result.cached else f"{formatting.number(result.fps, 1)} fps",
        "Backend": result.engine.backend,
        "Engine": result.engine.versions,
        "Decoder": result.engine.decoder or "unknown",
    }
    pairs = (tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items())
    return tag("dl", *pairs, class_="facts")


def _curve(report: Report, pictures: Sequence[FramePair], budget: Budget) -> Html:
    chart = clip_chart(report, pictures, budget.points, budget.detail)
    dots = "Dots: the worst frames, shown below." if pictures else ""
    return figure("VMAF per frame", draw(chart), " ".join(filter(None, (downsampling_note(chart), dots))))


def _histogram(report: Report) -> Html:
    chart = histogram(report.values["vmaf"])
    return figure("VMAF histogram", draw(chart), f"Number of frames per bin; bin width {chart.width:g}.")


def _statistics(result: ScoreResult, title: str, which: str, columns: Iterable[str]) -> Html:
    heads = ("Feature", "Mean", "Harmonic mean", "Min", "p1", "p5", "p50", "p95", "Max")
    rows = (_statistics_row(column, result.features[column]) for column in columns)
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in heads)))
    table = tag("div", tag("table", head, tag("tbody", *rows), class_="numbers"), class_="wide", tabindex=0,
                role="region", aria_label=f"{title} of {which}")  # fmt: skip
    return tag("div", tag("h3", title), table, class_="panel")


def _statistics_row(column: str, summary: FeatureStatistics) -> Html:
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


def _main_features(result: ScoreResult) -> list[str]:
    columns = [column for column in result.features if not is_elementary(column)]
    return sorted(columns, key=lambda column: column != "vmaf")


def _extra_charts(report: Report, budget: Budget) -> Html | None:
    columns = extras(report)
    return (
        _omitted_charts_note() if columns and not budget.extras else _small_charts(report, columns, budget.small_points)
    )


def _small_charts(report: Report, columns: Sequence[str], points: int) -> Html | None:
    if not columns:
        return None
    return tag("div", *(_small_chart(report, column, points) for column in columns), class_="multiples")


def _small_chart(report: Report, column: str, points: int) -> Html:
    known, curve = feature_info(column), downsample(report.numbers, report.values[column], points)
    if not curve.points:
        return figure(known.title, tag("p", "No frame has a finite value.", class_="muted"), heading="h4")
    chart = msgspec.structs.replace(feature_chart(report, column, curve), sizes=(SMALL,))
    omitted = f"{formatting.plural(curve.not_finite, 'frame')} without a finite value" if curve.not_finite else ""
    return figure(known.title, draw(chart), "; ".join(filter(None, (known.hint, omitted))), heading="h4")


def _omitted_charts_note() -> Html:
    text = "Charts of further features are omitted because of the number of clips; a CSV report has all values."
    return tag("p", text, class_="muted")


def _worst_frames(result: ScoreResult, pictures: Pictures) -> Html | None:
    """The pairs, one below the other; frames.js shows one at a time."""
    if pictures is None:
        return tag("div", tag("h3", "Worst frames"), tag("p", BEING_TAKEN), class_="panel")
    if not pictures:
        return None
    heads = tag("p", tag("span", "Reference"), tag("span", "Distorted"), class_="sides", aria_hidden="true")
    pairs = (_frame_pair(result, one) for one in pictures)
    return tag("div", tag("h3", "Worst frames"), heads, *pairs, class_="panel worst")


def _frame_pair(result: ScoreResult, picture: FramePair) -> Html:
    position = _frame_and_time(result, picture.frame)
    images = (
        tag("img", src=f"data:image/jpeg;base64,{b64encode(data).decode()}", alt=f"{side}, {position}",
            width=result.width, height=result.height)
        for side, data in (("Reference", picture.reference), ("Distorted", picture.distorted))
    )  # fmt: skip
    caption = tag("figcaption", tag("b", formatting.number(picture.score)), f" {position}")
    return tag("figure", caption, *images, data_frame=picture.frame)


def _clip_table(result: ScoreResult, which: str) -> Html:
    """Both clips side by side; rows whose values should be equal are marked if they differ."""
    reference, distorted = result.reference, result.distorted
    expected, actual = _comparable_facts(reference), _comparable_facts(distorted)
    rows = [
        _clip_row("Clip", tag("bdi", reference.uri), tag("bdi", distorted.uri)),
        *(_clip_row(name, expected[name], actual[name], differ=expected[name] != actual[name]) for name in expected),
        _clip_row("Demuxer", reference.container, distorted.container),
        _clip_row("Codec", reference.codec, distorted.codec),
        _clip_row("File size", reference.file_size or "unknown", distorted.file_size or "unknown"),
        _clip_row("Bitrate", reference.kbits or "unknown", distorted.kbits or "unknown"),
        _clip_row("SHA-256", _digest(reference), _digest(distorted)),
    ]
    heads = (tag("th", name, scope="col") for name in ("Property", "Reference", "Distorted"))
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="clips")
    return tag(
        "div", table, class_="wide", tabindex=0, role="region", aria_label=f"Properties of {which} and its reference"
    )


def _comparable_facts(clip: ClipFacts) -> dict[str, str]:
    length = f" ({formatting.clock(clip.frames / clip.frameRate)})" if clip.frameRate else ""
    return {
        "Size": formatting.size(clip.width, clip.height),
        "Pixel format": clip.pixelFormat,
        "Frame rate": formatting.rate(clip.frameRate),
        "Frames": f"{clip.frames:,}{length}",
    }


def _clip_row(name: str, reference: str, distorted: str, *, differ: bool = False) -> Html:
    mark = tag("span", "differs", class_="differs") if differ else None
    return tag("tr", tag("th", name, scope="row"), tag("td", reference), tag("td", join(distorted, mark)))


def _digest(clip: ClipFacts) -> Html:
    return tag("code", clip.digest.removeprefix("sha256:")[:12], title=clip.digest)


def _elementary_features(report: Report, which: str, budget: Budget) -> Html | None:
    columns = [column for column in elementary(report) if column in report.result.features]
    if not columns:
        return None
    curves = _small_charts(report, columns, budget.small_points) if budget.elementary else _omitted_charts_note()
    content = (_statistics(report.result, "Elementary features", which, columns), curves)
    return tag(
        "details",
        tag("summary", f"Elementary features of VMAF ({len(columns)})"),
        tag("div", *content, class_="stack"),
    )


def _frame_and_time(result: ScoreResult, frame: int) -> str:
    rate = frame_rate(result)
    return f"frame {frame:,}" + (f" at {formatting.clock(frame / rate)}" if rate else "")
