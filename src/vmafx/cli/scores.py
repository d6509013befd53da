"""Scores as a table, or as JSON."""

from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vmafx.scoring.result import Result

SHOWN = ("vmaf", "psnr_y", "psnr_cb", "psnr_cr", "ssim", "ms_ssim", "psnr_hvs", "ciede", "cambi")


def as_json(results: Sequence[Result], *, several: bool) -> str:
    """One object, or a list of them where several were asked for."""
    content = msgspec.json.encode(results if several else results[0] if results else None)
    return msgspec.json.format(content, indent=2).decode()


def show(results: Sequence[Result]) -> None:
    console = Console()
    for result in results:
        console.print(_table(result))
        for note in result.notes:
            console.print(Text(f"note: {note}", style="yellow"))
        again = ", known from before" if result.cached else f" at {result.fps:.1f} fps"
        how = "the mean" if result.pooling == "mean" else result.pooling
        console.print(
            Text(f"VMAF {result.score:.3f}", style="bold"),
            Text(f"({how} of {result.frames:,} frames{again}; {result.model})"),
        )
    if len(results) > 1:
        console.print(_overview(results))


def _table(result: Result) -> Table:
    table = Table(title=Text(result.distorted.uri), title_justify="left")
    table.add_column("measure")
    for head in ("mean", "harmonic", "min", "p5", "median", "p95", "max"):
        table.add_column(head, justify="right")
    for name in (name for name in SHOWN if name in result.features):
        one = result.features[name]
        row = (one.mean, one.harmonicMean, one.min, *(one.percentiles[step] for step in ("p5", "p50", "p95")), one.max)
        table.add_row(name, *(f"{value:.4f}" if abs(value) < 2 else f"{value:.3f}" for value in row))
    return table


def _overview(results: Sequence[Result]) -> Table:
    table = Table(title="best first", title_justify="left")
    table.add_column("distorted")
    table.add_column("VMAF", justify="right")
    table.add_column("min", justify="right")
    for result in sorted(results, key=lambda one: -one.score):
        table.add_row(Text(result.distorted.uri), f"{result.score:.3f}", f"{result.features['vmaf'].min:.3f}")
    return table
