"""Counts what was found damaged in the files of a training, each time once, also across restarts. Pure."""

from collections.abc import Mapping

import msgspec


class DamageCounter(msgspec.Struct):
    """Damaged records stay in the log and are found again by each process; damaged files are found once."""

    total: int = 0
    known: set[int] = msgspec.field(default_factory=set)  # positions in the log at which damage was counted

    def add_records(self, found: Mapping[int, int]) -> None:
        """Count what is damaged in the log: positions, and the number of records at each."""
        self.total += sum(count for position, count in found.items() if position not in self.known)
        self.known = set(found)

    def add_files(self, count: int) -> None:
        self.total += count
