"""Tables of medians, with the verdict on each goal."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.contestants import OURS
from bench.go_variants import GO


class Goal(NamedTuple):
    """A limit for a contestant, usually ours: a maximum, or with `least` a minimum; as a ratio to Go, or absolute."""

    limit: float
    ratio: bool = True
    least: bool = False
    contestant: str = OURS

    def verdict(self, figure: float, go: float | None) -> str:
        whose = "" if self.contestant == OURS else f"{self.contestant}: "
        text = f"{whose}{'at least' if self.least else 'at most'} {self.limit:g}{' of Go' if self.ratio else ''}"
        if self.ratio and go is None:
            return text
        value = round(figure / go if self.ratio and go else figure, 2)
        met = value >= self.limit if self.least else value <= self.limit
        return f"{text}: {'met' if met else '**missed**'}"


class Row(NamedTuple):
    """One figure of a run: its title, how to get it, and its goal."""

    title: str
    of: Callable[[Any], float]
    goal: Goal | None = None


def heading(names: Sequence[str]) -> None:
    print(f"| | {' | '.join(names)} | ours to {_baseline(names) or '-'} | goal |\n|{'---|' * (len(names) + 3)}")


def lines(names: Sequence[str], rows: Iterable[Row], results: Mapping[str, Sequence[Any]]) -> None:
    """Print a line for each row with the median of each contestant's runs. Ratio goals refer to Go."""
    for row in rows:
        medians = {name: statistics.median(map(row.of, results[name])) for name in names}
        ours, other = medians.get(OURS), medians.get(_baseline(names) or "")
        ratio = f"{ours / other:.2f}" if ours is not None and other else ""
        judged = medians.get(row.goal.contestant) if row.goal else None
        goal = row.goal.verdict(judged, medians.get(GO)) if row.goal and judged is not None else ""
        print(
            f"| {row.title} | {' | '.join(f'{medians[name]:.2f}' for name in names)} | {ratio} | {goal} |", flush=True
        )


def _baseline(names: Sequence[str]) -> str | None:
    """The contestant that ours is compared with: Go if it takes part, else the first other."""
    others = [name for name in names if name != OURS]
    return GO if GO in others else next(iter(others), None)
