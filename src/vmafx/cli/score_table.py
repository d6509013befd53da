"""Scores as tables for people."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vmafx.scoring.result import FeatureStatistics, ScoreResult

# Columns of the table, with the terminal width from which on they fit; narrower terminals get fewer columns.
MIN_WIDTHS = {"mean": 0, "harmonic": 84, "min": 36, "p5": 47, "median": 58, "p95": 69, "max": 75}
RANKING_WITH_FILES = 70  # terminal width from which on the ranking has the bitrates and sizes of the clips
SHOWN_FEATURES = ("vmaf", "psnr_y", "psnr_cb", "psnr_cr", "ssim", "ms_ssim", "psnr_hvs", "ciede", "cambi")


def print_scores(results: Sequence[ScoreResult]) -> None:
    console = Console()
    for result in results:
        console.print(_feature_table(result, console.width))
        for note in result.notes:
            console.print(Text(f"note: {note}", style="yellow"))
        frames = "1 frame" if result.frames == 1 else f"{result.frames:,} frames"
        scored = f"{result.pooling} of {frames}"
        details = f"{scored}, cached; {result.model}"
        if not result.cached:
            details = f"{scored}; {result.model}; scored at {result.fps:.1f} fps"
        console.print(
            Text(f"VMAF {result.score:.3f}", style="bold"),
            Text(f"({details})"),
        )
    for engine in dict.fromkeys(result.engine for result in results):
        decoder = f"; decoded with {engine.decoder}" if engine.decoder else ""
        console.print(Text(f"backend {engine.backend}: {engine.versions}{decoder}", style="dim"))
    if len(results) > 1:
        console.print(_ranking_table(results, console.width))


def _feature_table(result: ScoreResult, width: int) -> Table:
    """The columns that fit; numbers are never cut."""
    clip = result.distorted
    title = ", ".join(filter(None, (clip.uri, clip.file_size, clip.kbits)))
    table = Table(title=Text(title), title_justify="left")
    heads = [head for head in MIN_WIDTHS if width >= MIN_WIDTHS[head]]
    table.add_column("feature", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for name in (name for name in SHOWN_FEATURES if name in result.features):
        values = _statistics(result.features[name])
        numbers = [values[head] for head in heads]
        table.add_row(name, *(f"{number:.4f}" if abs(number) < 2 else f"{number:.3f}" for number in numbers))
    return table


def _statistics(feature: FeatureStatistics) -> dict[str, float]:
    return {
        "mean": feature.mean,
        "harmonic": feature.harmonicMean,
        "min": feature.min,
        "max": feature.max,
        "p5": feature.percentiles["p5"],
        "median": feature.percentiles["p50"],
        "p95": feature.percentiles["p95"],
    }


def _ranking_table(results: Sequence[ScoreResult], width: int) -> Table:
    table = Table(title="Ranking, highest VMAF first", title_justify="left")
    table.add_column("distorted")
    with_files = width >= RANKING_WITH_FILES
    for head in ("VMAF", "min", *(("bitrate", "size") if with_files else ())):
        table.add_column(head, justify="right", no_wrap=True)
    for result in sorted(results, key=lambda result: -result.score):
        clip = result.distorted
        files = [clip.kbits or "-", clip.file_size or "-"] if with_files else []
        table.add_row(Text(clip.uri), f"{result.score:.3f}", f"{result.features['vmaf'].min:.3f}", *files)
    return table
