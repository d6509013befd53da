"""Scores as a table, or as JSON."""

from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vmafx.scoring.batch import Failed, Scored
from vmafx.scoring.result import Result, Summary

COLUMNS = {"mean": 0, "harmonic": 84, "min": 36, "p5": 47, "median": 58, "p95": 69, "max": 75}  # from which width on
SHOWN = ("vmaf", "psnr_y", "psnr_cb", "psnr_cr", "ssim", "ms_ssim", "psnr_hvs", "ciede", "cambi")


def as_json(outcomes: Sequence[Scored | Failed], names: Sequence[str]) -> str:
    """One object for one clip, a list for several; what failed has an `error` in place of a score."""
    told = [_told(outcomes[min(number, len(outcomes) - 1)], name) for number, name in enumerate(names)]
    return msgspec.json.format(msgspec.json.encode(told if len(told) > 1 else told[0]), indent=2).decode()


def _told(outcome: Scored | Failed, name: str) -> object:
    if isinstance(outcome, Scored):
        return outcome.report.result
    return {"distorted": {"uri": name}, "error": {"kind": type(outcome.error).__name__, "message": str(outcome.error)}}


def show(results: Sequence[Result]) -> None:
    console = Console()
    for result in results:
        console.print(_table(result, console.width))
        for note in result.notes:
            console.print(Text(f"note: {note}", style="yellow"))
        again = ", known from before" if result.cached else f" at {result.fps:.1f} fps"
        how = "the mean" if result.pooling == "mean" else result.pooling
        frames = "1 frame" if result.frames == 1 else f"{result.frames:,} frames"
        console.print(
            Text(f"VMAF {result.score:.3f}", style="bold"), Text(f"({how} of {frames}{again}; {result.model})")
        )
    if len(results) > 1:
        console.print(_overview(results))


def _table(result: Result, width: int) -> Table:
    """As many columns as there is room for: half a number is worse than none."""
    table = Table(title=Text(result.distorted.uri), title_justify="left")
    heads = [head for head in COLUMNS if width >= COLUMNS[head]]
    table.add_column("measure", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for name in (name for name in SHOWN if name in result.features):
        row = _row(result.features[name])
        table.add_row(name, *(f"{row[head]:.4f}" if abs(row[head]) < 2 else f"{row[head]:.3f}" for head in heads))
    return table


def _row(one: Summary) -> dict[str, float]:
    steps = {"p5": one.percentiles["p5"], "median": one.percentiles["p50"], "p95": one.percentiles["p95"]}
    return {"mean": one.mean, "harmonic": one.harmonicMean, "min": one.min, "max": one.max, **steps}


def _overview(results: Sequence[Result]) -> Table:
    table = Table(title="best first", title_justify="left")
    table.add_column("distorted")
    table.add_column("VMAF", justify="right")
    table.add_column("min", justify="right")
    for result in sorted(results, key=lambda one: -one.score):
        table.add_row(Text(result.distorted.uri), f"{result.score:.3f}", f"{result.features['vmaf'].min:.3f}")
    return table
