"""Scores that people gave to clips: which are known, and which wait for the samples of their job. Pure."""

import hashlib
from typing import TypeVar

import msgspec

from vmafx.training.samples import HumanScore

MAX_KNOWN = 50_000  # the operator sends all scores again after a restart
MAX_WAITING = 10_000
K = TypeVar("K")


class HumanScores:
    """The latest scores, by job."""

    def __init__(self, known: dict[int, float] | None = None, waiting: dict[str, float] | None = None) -> None:
        self._known, self._waiting = known or {}, waiting or {}

    def is_new(self, score: HumanScore) -> bool:
        return self._known.get(_identity(score.job)) != score.score

    def add(self, score: HumanScore) -> None:
        _put(self._known, _identity(score.job), score.score, MAX_KNOWN)

    def wait_for(self, score: HumanScore) -> None:
        """The samples of the job have not come yet."""
        _put(self._waiting, score.job, score.score, MAX_WAITING)

    def take(self, job: str) -> float | None:
        """The score that waited for the samples of this job."""
        return self._waiting.pop(job, None)

    def state(self) -> bytes:
        return msgspec.msgpack.encode((self._known, self._waiting))

    @classmethod
    def restore(cls, state: bytes) -> "HumanScores":
        return cls(*msgspec.msgpack.decode(state, type=tuple[dict[int, float], dict[str, float]]))


def _put(scores: dict[K, float], key: K, score: float, limit: int) -> None:
    """As the latest score; the oldest beyond the limit is forgotten."""
    scores.pop(key, None)
    scores[key] = score
    if len(scores) > limit:
        del scores[next(iter(scores))]


def _identity(job: str) -> int:
    return int.from_bytes(hashlib.blake2b(job.encode(), digest_size=8).digest())
