"""Nodes whose samples are refused for a while, because they sent implausible samples. Pure."""

from datetime import datetime, timedelta

import msgspec

from vmafx.api.training import MAX_EXCLUDED

MAX_STRIKES = 3  # unusable batches in a row
EXCLUDED_FOR = timedelta(hours=1)  # after which a node gets another chance


class NodeExcluded(Exception):
    """The samples of a node are refused for now; they can be sent again later."""


class _Failures(msgspec.Struct):
    """The unusable batches of a node in a row."""

    strikes: int
    reason: str  # of the last one
    attempt: str = ""  # of the last one
    until: datetime | None = None  # while the node is excluded


class NodeExclusion:
    """Counts unusable batches by node: MAX_STRIKES of them in a row exclude it."""

    def __init__(self, failures: dict[str, _Failures] | None = None) -> None:
        self._failures = failures or {}

    def reason(self, node: str, now: datetime) -> str | None:
        """Why the samples of a node are refused; None if they are not."""
        failures = self._failures.get(node)
        if failures is None or failures.until is None:
            return None
        # A clock that was set back does not make it longer.
        return failures.reason if timedelta(0) < failures.until - now <= EXCLUDED_FOR else None

    def strike(self, node: str, attempt: str, reason: str, now: datetime) -> bool:
        """Count an unusable batch, once if it is sent again; true if it excludes the node."""
        failures = self._failures.pop(node, None) or _Failures(0, reason)
        self._failures[node] = failures  # the latest last
        if failures.attempt == attempt:
            return False
        failures.strikes, failures.reason, failures.attempt = failures.strikes + 1, reason, attempt
        if len(self._failures) > MAX_EXCLUDED:
            del self._failures[next(iter(self._failures))]
        if failures.strikes < MAX_STRIKES:
            return False
        failures.strikes, failures.until = MAX_STRIKES - 1, now + EXCLUDED_FOR  # the next one excludes it again
        return True

    def reset(self, node: str) -> None:
        """A usable batch came."""
        self._failures.pop(node, None)

    def excluded(self, now: datetime) -> dict[str, str]:
        """The excluded nodes, and why."""
        return {node: failures.reason for node, failures in self._failures.items() if self.reason(node, now)}

    def state(self) -> bytes:
        return msgspec.msgpack.encode(self._failures)

    @classmethod
    def restore(cls, state: bytes) -> "NodeExclusion":
        return cls(msgspec.msgpack.decode(state, type=dict[str, _Failures]))
