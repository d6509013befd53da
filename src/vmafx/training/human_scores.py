"""The human scores of jobs: those that are used, and those that wait in the log. Pure."""

import msgspec

from vmafx.training.held_out import clip_id
from vmafx.training.samples import HumanScore

MAX_SCORES = 100_000  # as many as jobs in the log


class HumanScores:
    """The latest score of each job."""

    def __init__(self, used: dict[int, float] | None = None) -> None:
        self._used = used or {}  # by clip
        self._stored: dict[int, float] = {}  # in the log, to be used

    def is_new(self, score: HumanScore) -> bool:
        """Whether this is not the latest score of the job: the operator sends all scores again after a restart."""
        clip = clip_id(score.job)
        return self._stored.get(clip, self._used.get(clip)) != score.score

    def store(self, score: HumanScore) -> None:
        """The score is in the log."""
        _put(self._stored, clip_id(score.job), score.score)

    def use(self, job: str, score: float) -> bool:
        """Take a score into use; false if it already is."""
        clip = clip_id(job)
        if self._stored.get(clip) == score:
            del self._stored[clip]
        if self._used.get(clip) == score:
            return False
        _put(self._used, clip, score)
        return True

    def of(self, job: str) -> float | None:
        """The score of a job that is in use."""
        return self._used.get(clip_id(job))

    def state(self) -> bytes:
        """Without those that are in the log only."""
        return msgspec.msgpack.encode(self._used)

    @classmethod
    def restore(cls, state: bytes) -> "HumanScores":
        return cls(msgspec.msgpack.decode(state, type=dict[int, float]))


def _put(scores: dict[int, float], clip: int, score: float) -> None:
    """As the latest score; the oldest beyond the limit is forgotten."""
    scores.pop(clip, None)
    scores[clip] = score
    if len(scores) > MAX_SCORES:
        del scores[next(iter(scores))]
