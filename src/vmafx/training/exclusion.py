"""Nodes whose samples are refused for a while, because they sent samples that cannot be true. Pure."""

from datetime import datetime, timedelta

import msgspec

from vmafx.api.training import MAX_EXCLUDED

MAX_STRIKES = 3  # unusable batches in a row
EXCLUDED_FOR = timedelta(hours=1)  # after which a node gets another chance


class _Offence(msgspec.Struct):
    """The unusable batches of a node in a row."""

    strikes: int
    reason: str  # of the last one
    until: datetime | None = None  # while the node is excluded


class NodeExclusion:
    """Counts unusable batches by node: MAX_STRIKES of them in a row exclude it."""

    def __init__(self, offences: dict[str, _Offence] | None = None) -> None:
        self._offences = offences or {}

    def reason(self, node: str, now: datetime) -> str | None:
        """Why the samples of a node are refused; None if they are not."""
        offence = self._offences.get(node)
        if offence is None or offence.until is None:
            return None
        # A clock that was set back does not make it longer.
        return offence.reason if timedelta(0) < offence.until - now <= EXCLUDED_FOR else None

    def strike(self, node: str, reason: str, now: datetime) -> bool:
        """Count an unusable batch; true if it excludes the node."""
        offence = self._offences.pop(node, None) or _Offence(0, reason)
        self._offences[node] = offence  # the latest last
        offence.strikes, offence.reason = offence.strikes + 1, reason
        if len(self._offences) > MAX_EXCLUDED:
            del self._offences[next(iter(self._offences))]
        if offence.strikes < MAX_STRIKES:
            return False
        offence.strikes, offence.until = MAX_STRIKES - 1, now + EXCLUDED_FOR  # the next one excludes it again
        return True

    def forgive(self, node: str) -> None:
        """A usable batch came."""
        self._offences.pop(node, None)

    def excluded(self, now: datetime) -> dict[str, str]:
        """The excluded nodes, and why."""
        return {node: offence.reason for node, offence in self._offences.items() if self.reason(node, now)}

    def state(self) -> bytes:
        return msgspec.msgpack.encode(self._offences)

    @classmethod
    def restore(cls, state: bytes) -> "NodeExclusion":
        return cls(msgspec.msgpack.decode(state, type=dict[str, _Offence]))
