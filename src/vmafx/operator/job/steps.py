"""What can be done about a job: the words in which decisions are told. How attempts end is in vmafx.jobs.outcome."""

from typing import Literal

import msgspec

from vmafx.jobs.outcome import Outcome

RECHECK_INTERVAL = 5.0  # seconds, while something is not there that should be


class NoAction(msgspec.Struct, frozen=True):
    """All is as it should be; look again after so many seconds, if any."""

    after: float | None = None


class Enqueue(msgspec.Struct, frozen=True):
    """It waits for a node; look again after so many seconds, if any."""

    after: float | None = None


class KeepPending(msgspec.Struct, frozen=True):
    """It waits for something that is not a node: Scheduled=False with this reason; look again after so many seconds."""

    reason: Literal["Suspended", "Suspending", "AwaitingScheduler", "Retrying"]
    message: str
    after: float | None = None


class PlaceOn(msgspec.Struct, frozen=True):
    """Run it on this node, whoever chose that."""

    node: str


class RejectPlacement(msgspec.Struct, frozen=True):
    """The node that was chosen cannot take it, or is not there (yet): Scheduled=False with this reason."""

    reason: str
    message: str


class CreatePod(msgspec.Struct, frozen=True):
    """The attempt has no Pod. `left`: seconds until the job's deadline."""

    left: float | None = None


class WaitForPodName(msgspec.Struct, frozen=True):
    """The name of the attempt's Pod is that of another Pod. `left`: seconds until the job's deadline."""

    left: float | None = None


class SetMessage(msgspec.Struct, frozen=True):
    """It goes on, and people are told what keeps it; nothing keeps it any more if that is empty."""

    message: str
    after: float | None = None


class MirrorForeign(msgspec.Struct, frozen=True):
    """It stands as another controller says; look again after so many seconds, if any."""

    phase: Literal["Pending", "Running"]
    message: str
    after: float | None = None


Step = (
    NoAction
    | Enqueue
    | KeepPending
    | PlaceOn
    | RejectPlacement
    | CreatePod
    | WaitForPodName
    | Outcome
    | SetMessage
    | MirrorForeign
)


def earlier(first: float | None, second: float | None) -> float | None:
    """The lesser of two times, of which either may be never."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
