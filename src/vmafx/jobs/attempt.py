"""What a worker gets and what it returns: the spec of the attempt and its result, both as JSON.

In a Pod, the result is the container's termination message, of which the kubelet keeps 4,096 bytes.
"""

from typing import TYPE_CHECKING, Literal

import msgspec

from vmafx.api.job import FeatureSummary, VmafxJobStatus
from vmafx.api.meta import ApiModel
from vmafx.api.scoring import ScoringSpec
from vmafx.api.views import unchecked

SPEC_VARIABLE = "VMAFX_WORK"  # the environment variable with the AttemptSpec
SAMPLES_FILE_VARIABLE = "VMAFX_SAMPLES_FILE"  # of an agent's worker: the file for the samples
SAMPLES_URL_VARIABLE = "VMAFX_SAMPLES_URL"  # of a Pod: where to push the samples
SAMPLES_TOKEN_VARIABLE = "VMAFX_SAMPLES_TOKEN"  # noqa: S105 - the name of a variable
# The keys that a worker takes from the Secret with a job's credentials. Others could change how the worker starts or
# what it may open; a path, such as AWS_CONFIG_FILE, could name a file of another job.
CREDENTIAL_VARIABLES = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "GOOGLE_APPLICATION_CREDENTIALS_JSON",
)  # fmt: skip
CREDENTIAL_PREFIX = "VMAFX_JOB_"  # of their variables in a Pod, where variables of the node have the plain names
MAX_RESULT_BYTES = 4000
MAX_MESSAGE = 1000  # characters

Fault = Literal["BadInput", "EngineFailure", "NodeFault"]
EXIT_CODES: dict[str, int] = {"BadInput": 2, "EngineFailure": 3, "NodeFault": 4}

if TYPE_CHECKING:
    _UncheckedSpec = ScoringSpec
else:
    _UncheckedSpec = unchecked(ScoringSpec, "_UncheckedSpec")


class AttemptSpec(_UncheckedSpec, kw_only=True):
    """What to score, and the id of the attempt. Not validated again: the API server validated the job."""

    id: str


def uid_of(attempt: str) -> str:
    """The uid of the job in the id of an attempt; empty if it is not a valid id."""
    uid, _, number = attempt.rpartition("-")
    return uid if number.isdecimal() else ""


class AttemptResult(ApiModel):
    """A score, or the fault that prevented it."""

    id: str
    score: float | None = None
    frames: int | None = None
    metrics: dict[str, FeatureSummary] = {}
    reportURI: str | None = None
    fault: Fault | None = None
    message: str | None = None


def encode_result(result: AttemptResult) -> bytes:
    """Encode within MAX_RESULT_BYTES: drop features first; never drop the score, the frames or the fault."""
    if result.message and len(result.message) > MAX_MESSAGE:
        result = msgspec.structs.replace(result, message=f"{result.message[: MAX_MESSAGE - 1]}…")
    kept = dict(result.metrics)
    while (
        len(content := msgspec.json.encode(msgspec.structs.replace(result, metrics=kept))) > MAX_RESULT_BYTES and kept
    ):
        kept.popitem()
    if len(content) > MAX_RESULT_BYTES:
        content = msgspec.json.encode(AttemptResult(result.id, result.score, result.frames, fault=result.fault))
    return content


def decode_result(content: str, attempt: str) -> AttemptResult | None:
    """The result of this attempt; None if the content is not a valid one."""
    try:
        result = msgspec.json.decode(content, type=AttemptResult)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    if result.id != attempt or (result.score is None) == (result.fault is None):
        return None
    if result.score is not None and not 0 <= result.score <= 100:
        return None
    try:
        status = {"frames": result.frames, "metrics": result.metrics, "reportURI": result.reportURI}
        msgspec.convert(msgspec.to_builtins(status), VmafxJobStatus)
    except msgspec.ValidationError:
        return None
    return result
