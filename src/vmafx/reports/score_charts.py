"""The charts of scored clips: VMAF per frame of one clip and of several, and VMAF against bitrate."""

from collections.abc import Sequence

from vmafx.reports import formatting
from vmafx.reports.charts import ChartLine, FrameChart, RateChart, RatePoint
from vmafx.reports.curves import Curve, downsample
from vmafx.reports.features import feature_info
from vmafx.scoring.result import FramePair, Report, ScoreResult

RATE_TITLE = "Rate and quality"
RATE_SUBTITLE = "VMAF against bitrate in kbit/s; up and to the left is better"
MAX_NAME = 60  # characters of a clip's name in a tooltip


def clip_chart(report: Report, pictures: Sequence[FramePair], points: int, detail: int = 0) -> FrameChart:
    """One clip, with its mean and 5th percentile, and dots for the frames that have pictures.

    The curve has at most `points` points, and its values on the page `detail`, if that is more.
    """
    vmaf = report.result.features["vmaf"]
    levels = {"mean": vmaf.mean, "p5": vmaf.percentiles["p5"]}
    return FrameChart(
        label=f"VMAF per frame, {formatting.number(vmaf.min)} to {formatting.number(vmaf.max)}, mean {vmaf.mean:.2f}",
        first=report.numbers[0],
        last=report.numbers[-1],
        lines=[_line(report, "VMAF", 0, points, detail)],
        rate=frame_rate(report.result),
        levels=levels if len(report.numbers) > 1 else {},
        dots=[(picture.frame, picture.score) for picture in pictures],
    )


def feature_chart(report: Report, column: str, curve: Curve) -> FrameChart:
    """A feature of one clip, with its values as a curve that is not empty."""
    known = feature_info(column)
    low, high = min(value for _, value in curve.points), max(value for _, value in curve.points)
    return FrameChart(
        label=f"{known.label} per frame, from {low:.{known.decimals}f} to {high:.{known.decimals}f}",
        first=report.numbers[0],
        last=report.numbers[-1],
        lines=[ChartLine(known.label, curve)],
        feature=known,
        rate=frame_rate(report.result),
    )


def clips_chart(
    reports: Sequence[Report], names: Sequence[str], points: int, detail: int = 0, column: str = "vmaf"
) -> FrameChart:
    """VMAF or another feature of several clips, a line for each."""
    rates = {frame_rate(report.result) for report in reports}
    return FrameChart(
        label=f"{feature_info(column).label} per frame of {len(reports)} clips",
        first=min(report.numbers[0] for report in reports),
        last=max(report.numbers[-1] for report in reports),
        lines=[
            _line(report, name, index, points, detail, column)
            for index, (report, name) in enumerate(zip(reports, names, strict=True))
        ],
        feature=feature_info(column),
        rate=rates.pop() if len(rates) == 1 else None,
    )


def rate_points(reports: Sequence[Report], names: Sequence[str]) -> list[RatePoint]:
    """Bitrate and score of each clip whose bitrate is known.

    Empty if there are fewer than two, or if the clips were not compared with one reference in one way.
    """
    ways = {(one.result.reference.digest, one.result.model, one.result.pooling) for one in reports}
    points = [
        RatePoint(_short(name), clip.codec, clip.bitrate / 1000, report.result.score)
        for report, name in zip(reports, names, strict=True)
        if (clip := report.result.distorted).bitrate
    ]
    return points if len(ways) == 1 and len(points) > 1 else []


def rate_chart(points: Sequence[RatePoint], labelled: str = "") -> RateChart:
    low, high = min(points, key=lambda one: one.vmaf), max(points, key=lambda one: one.vmaf)
    label = (
        f"VMAF against bitrate of {len(points)} encodes, from {low.vmaf:.1f} ({low.name}, {low.kbits:,.0f} kbit/s) "
        f"to {high.vmaf:.1f} ({high.name}, {high.kbits:,.0f} kbit/s); the table lists all"
    )
    return RateChart(label=label, points=points, labelled=labelled)


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def _line(report: Report, name: str, index: int, points: int, detail: int, column: str = "vmaf") -> ChartLine:
    numbers, values = report.numbers, report.values[column]
    more = downsample(numbers, values, detail) if points < detail else None
    return ChartLine(name, downsample(numbers, values, points), index, more)


def downsampling_note(chart: FrameChart) -> str:
    """What the line and the band of a downsampled curve are; empty if every frame is drawn."""
    curve: Curve = max((line.curve for line in chart.lines), key=lambda curve: curve.bucket_size)
    if not curve.buckets:
        return ""
    return f"Line: mean of every {curve.bucket_size} frames. Band: minimum to maximum of these frames."


def frame_rate(result: ScoreResult) -> float | None:
    """The frame rate for times on the page: frame numbers are those of the reference."""
    return result.reference.frameRate or result.distorted.frameRate
