"""Loss and correlations of the versions of a trained model, over the samples that it was trained on."""

from collections.abc import Sequence
from pathlib import PurePath

from vmafx.api.training import ModelCheckpoint
from vmafx.reports.charts import LARGE, ChartLine, FrameChart, figure, legend
from vmafx.reports.curves import Curve
from vmafx.reports.features import FeatureInfo
from vmafx.reports.markup import Html, tag
from vmafx.reports.page import document
from vmafx.scoring.errors import BadInput

TITLE, SUBTITLE = "Training", "Held-out quality over the number of samples"
LOSS = FeatureInfo("Loss", 3, min_span=0.1)
CORRELATION = FeatureInfo("Correlation", 4, min_span=0.02, max_value=1)
FORMATS = (".png", ".svg", ".html")


def check_plot_name(name: str) -> None:
    """Raise BadInput if `learning_plot` would for this name."""
    if PurePath(name).suffix.lower() not in FORMATS:
        raise BadInput("options", f"--plot: {name} must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")


def learning_plot(name: str, training: str, checkpoints: Sequence[ModelCheckpoint]) -> bytes:
    """The plot in the format of the name's extension. Raises BadInput if no version has a measured quality."""
    check_plot_name(name)
    charts = _charts(checkpoints)
    if not charts:
        raise BadInput("options", f"training {training} has no version of its model yet that could be plotted")
    from vmafx.reports import plots  # noqa: PLC0415 - matplotlib takes 0.6 s and 50 MB

    title = f"{TITLE} {training}"
    match PurePath(name).suffix.lower():
        case ".png":
            return plots.stacked(charts, title, SUBTITLE, "png")
        case ".svg":
            return plots.stacked(charts, title, SUBTITLE, "svg")
    drawings = {
        label: tag("div", *(plots.draw(chart, size).svg for size in LARGE), class_="plot")
        for label, chart in charts.items()
    }
    figures = [_figure(label, drawing, charts[label]) for label, drawing in drawings.items()]
    header = tag("header", tag("h2", title), tag("p", SUBTITLE, class_="against"))
    table = tag("div", _table(checkpoints), class_="panel")
    return document(title, TITLE, tag("section", header, *figures, table)).encode()


def _figure(label: str, drawing: Html, chart: FrameChart) -> Html:
    names = [line.name for line in chart.lines]
    return figure(label, tag("div", drawing, legend(names)) if len(names) > 1 else drawing)


def _charts(checkpoints: Sequence[ModelCheckpoint]) -> dict[str, FrameChart]:
    """A chart of the loss and one of the correlations, without those that were never measured."""
    loss = [("Loss", [(one.samples, one.loss) for one in checkpoints])]
    correlations = [
        ("Pearson", [(one.samples, one.pearson) for one in checkpoints]),
        ("Spearman", [(one.samples, one.spearman) for one in checkpoints]),
    ]
    charts = {
        "Loss (mean squared error)": _chart(loss, LOSS),
        "Correlation with the scores": _chart(correlations, CORRELATION),
    }
    return {label: chart for label, chart in charts.items() if chart is not None}


def _chart(series: Sequence[tuple[str, Sequence[tuple[int, float | None]]]], feature: FeatureInfo) -> FrameChart | None:
    curves = {name: [(samples, value) for samples, value in points if value is not None] for name, points in series}
    lines = [ChartLine(name, Curve(points), index) for index, (name, points) in enumerate(curves.items()) if points]
    if not lines:
        return None
    across = [samples for points in curves.values() for samples, _ in points]
    latest = ", ".join(f"{line.name} {line.curve.points[-1][1]:.{feature.decimals}f}" for line in lines)
    label = f"{feature.label} after {min(across):,} to {max(across):,} samples; the latest version: {latest}"
    return FrameChart(label=label, first=min(across), last=max(across), lines=lines, feature=feature)


def _table(checkpoints: Sequence[ModelCheckpoint]) -> Html:
    heads = ("Version", "Samples", "Loss", "Pearson", "Spearman")
    rows = (
        tag(
            "tr",
            tag("th", f"{one.number:,}", scope="row"),
            tag("td", f"{one.samples:,}"),
            *(tag("td", "-" if value is None else f"{value:.4f}") for value in (one.loss, one.pearson, one.spearman)),
        )
        for one in reversed(checkpoints)
    )
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in heads)))
    table = tag("table", head, tag("tbody", *rows), class_="numbers")
    return tag("div", table, class_="wide", tabindex=0, role="region", aria_label="All versions")
