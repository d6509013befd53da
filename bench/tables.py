"""Medians beside each other, and whether the goals are met."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.contest import GO, OURS


class Goal(NamedTuple):
    """What ours may take at most, or must reach at least: as a ratio to Go's, or by itself."""

    limit: float
    ratio: bool = True
    least: bool = False

    def verdict(self, ours: float, go: float | None) -> str:
        said = f"{'at least' if self.least else 'at most'} {self.limit:g}{' of Go' if self.ratio else ''}"
        if self.ratio and go is None:
            return said
        value = round(ours / go if self.ratio and go else ours, 2)
        met = value >= self.limit if self.least else value <= self.limit
        return f"{said}: {'met' if met else '**missed**'}"


class Row(NamedTuple):
    """A figure of a run."""

    title: str
    of: Callable[[Any], float]
    goal: Goal | None = None


def heading(names: Sequence[str]) -> None:
    print(f"| | {' | '.join(names)} | ours to {_other(names) or 'nobody'} | goal |\n|{'---|' * (len(names) + 3)}")


def lines(names: Sequence[str], rows: Iterable[Row], results: Mapping[str, Sequence[Any]]) -> None:
    """A line for each row, with the median of each contestant's runs; ours first. Goals are set against Go."""
    for row in rows:
        medians = {name: statistics.median(map(row.of, results[name])) for name in names}
        ours, other = medians.get(OURS), medians.get(_other(names) or "")
        ratio = f"{ours / other:.2f}" if ours is not None and other else ""
        goal = row.goal.verdict(ours, medians.get(GO)) if row.goal and ours is not None else ""
        print(
            f"| {row.title} | {' | '.join(f'{medians[name]:.2f}' for name in names)} | {ratio} | {goal} |", flush=True
        )


def _other(names: Sequence[str]) -> str | None:
    """Whom ours is compared with: Go, if it takes part."""
    others = [name for name in names if name != OURS]
    return GO if GO in others else next(iter(others), None)
