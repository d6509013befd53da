"""The steps that `decide` can return for a job. The ends of an attempt are in jobs/outcome.py.

`requeue_after` is in seconds; None means that the job is reconciled again only when something changes.
"""

from typing import Literal

import msgspec

from vmafx.jobs.outcome import Outcome

RECHECK_INTERVAL = 5.0  # seconds, while an expected object is missing


class NoAction(msgspec.Struct, frozen=True):
    """Nothing to do."""

    requeue_after: float | None = None


class Enqueue(msgspec.Struct, frozen=True):
    """Wait in the queue for a node."""

    requeue_after: float | None = None


class KeepPending(msgspec.Struct, frozen=True):
    """Stay out of the queue: Scheduled=False with this reason."""

    reason: Literal["Suspended", "Suspending", "AwaitingScheduler", "Retrying"]
    message: str
    requeue_after: float | None = None


class PlaceOn(msgspec.Struct, frozen=True):
    """Start the next attempt on this node."""

    node: str


class RejectPlacement(msgspec.Struct, frozen=True):
    """The chosen node does not exist or cannot run the job: Scheduled=False with this reason."""

    reason: str
    message: str


class CreatePod(msgspec.Struct, frozen=True):
    """The attempt has no Pod; create it."""

    deadline_left: float | None = None  # seconds


class WaitForPodName(msgspec.Struct, frozen=True):
    """A Pod that is not this attempt's has the name; wait until it is gone."""

    deadline_left: float | None = None  # seconds


class SetMessage(msgspec.Struct, frozen=True):
    """The attempt continues; status.message says what delays it, and is cleared if empty."""

    message: str
    requeue_after: float | None = None


class MirrorExternal(msgspec.Struct, frozen=True):
    """Copy the state that an external controller reports."""

    phase: Literal["Pending", "Running"]
    message: str
    requeue_after: float | None = None


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
    | MirrorExternal
)


def earlier(first: float | None, second: float | None) -> float | None:
    """The smaller of two delays; None means never."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
