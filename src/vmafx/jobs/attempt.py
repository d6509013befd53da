"""What a worker is given and what it leaves: the attempt's spec and its result, both JSON.

The result is a container's termination message, of which a kubelet keeps the last 4,096 bytes.
"""

from typing import TYPE_CHECKING, Literal

import msgspec

from vmafx.api.job import FeatureSummary, VmafxJobStatus
from vmafx.api.meta import ApiModel
from vmafx.api.scoring import ScoringSpec
from vmafx.api.views import unchecked

SPEC_VARIABLE = "VMAFX_WORK"  # the variable that holds the Work
MAX_RESULT_BYTES = 4000  # bytes
MAX_MESSAGE = 1000  # characters

Fault = Literal["BadInput", "EngineFailure", "NodeFault"]
EXIT_CODES: dict[str, int] = {"BadInput": 2, "EngineFailure": 3, "NodeFault": 4}


if TYPE_CHECKING:
    _UncheckedSpec = ScoringSpec
else:
    _UncheckedSpec = unchecked(ScoringSpec, "_UncheckedSpec")


class AttemptSpec(_UncheckedSpec, kw_only=True):
    """One attempt at a job: what to score, and the attempt's id. The API server has checked it with the job."""

    id: str


class AttemptResult(ApiModel):
    """How it went: a score, or whose fault it was that there is none."""

    id: str
    score: float | None = None
    frames: int | None = None
    metrics: dict[str, FeatureSummary] = {}
    reportURI: str | None = None
    fault: Fault | None = None
    message: str | None = None


def encode_result(answer: AttemptResult) -> bytes:
    """The answer within its limit. Measures are dropped first; the score, the frames and the fault never."""
    if answer.message and len(answer.message) > MAX_MESSAGE:
        answer = msgspec.structs.replace(answer, message=f"{answer.message[: MAX_MESSAGE - 1]}…")
    kept = dict(answer.metrics)
    while (
        len(content := msgspec.json.encode(msgspec.structs.replace(answer, metrics=kept))) > MAX_RESULT_BYTES and kept
    ):
        kept.popitem()
    if len(content) > MAX_RESULT_BYTES:
        content = msgspec.json.encode(AttemptResult(answer.id, answer.score, answer.frames, fault=answer.fault))
    return content


def decode_result(content: str, attempt: str) -> AttemptResult | None:
    """What a worker said of this attempt; None if it said nothing that can be trusted."""
    try:
        answer = msgspec.json.decode(content, type=AttemptResult)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    if answer.id != attempt or (answer.score is None) == (answer.fault is None):
        return None
    if answer.score is not None and not 0 <= answer.score <= 100:
        return None
    try:
        kept = {"frames": answer.frames, "metrics": answer.metrics, "reportURI": answer.reportURI}
        msgspec.convert(msgspec.to_builtins(kept), VmafxJobStatus)
    except msgspec.ValidationError:
        return None
    return answer
