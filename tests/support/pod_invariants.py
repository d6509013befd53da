"""Invariants of Pods: for which attempts they are created, and how their outcome changes the job."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from tests.support.job_history import Change, JobUpdate, Object, condition, failed_as, job_update, with_agent

Attempt = tuple[str, int]  # uid of the job, number of the attempt
PodOutcome = Literal["score", "bad input", "disruption", "nothing"]
DISAPPEARED = "its Pod disappeared"


class LastSeen(NamedTuple):
    """The last version of a Pod."""

    last: Object
    deleted: bool


class AttemptEnd(NamedTuple):
    """The end of an attempt: the update of the job, and the Pods of the attempt until then."""

    update: JobUpdate
    pods: list[LastSeen]  # all Pods of the attempt
    seen: list[LastSeen]  # all versions of these Pods
    node_deleted: bool  # since the placement


def origins(history: list[Change]) -> Iterator[tuple[Change, str]]:
    """A Pod is created for the running attempt only. One created too late, by an operator that was stopped or has a
    stale cache, is deleted again, or its job is."""
    jobs: dict[str, Object] = {}
    late: dict[str, tuple[Change, str, str]] = {}  # by uid of the Pod
    for change in history:
        version = change.new or change.old or {}
        uid = version["metadata"].get("uid", "")
        if change.kind == "job":
            jobs[uid] = version["status"] if change.new else version["status"] | {"phase": "deleted"}
            if change.new is None:
                late = {pod: one for pod, one in late.items() if one[1] != uid}
        elif change.kind == "pod" and change.old is None:
            job, attempt = attempt_of(version)
            placed, phase = jobs.get(job, {}).get("attempts", 0), jobs.get(job, {}).get("phase")
            if attempt >= placed:
                yield change, f"is for attempt {attempt} of a job that was placed {placed} times"
            elif (attempt, phase) != (placed - 1, "Running"):
                late[uid] = (
                    change,
                    job,
                    f"is for attempt {attempt} of a job that is {phase} after {placed} placements, and stays",
                )
        elif change.kind == "pod" and (change.new is None or "deletionTimestamp" in version["metadata"]):
            late.pop(uid, None)
    for change, _, text in late.values():
        yield change, text


def single_pods(history: list[Change]) -> Iterator[tuple[Change, str]]:
    """An attempt has one Pod at a time."""
    existing: dict[Attempt, set[str]] = {}
    for change in history:
        if change.kind == "pod":
            names = existing.setdefault(attempt_of(change.new or change.old or {}), set())
            names.add(change.name)
            if change.new is None:
                names.remove(change.name)
            elif change.old is None and len(names) > 1:
                yield change, f"is one of {len(names)} Pods of an attempt: {sorted(names)}"


def results(history: list[Change]) -> Iterator[tuple[Change, str]]:
    """A job has a score, or fails as BadInput, only if a Pod of its last attempt reported that before."""
    for update, pods, _, _ in attempt_ends(history):
        scores = [score for pod in pods if (score := score_of(pod.last)) is not None]
        if update.new["phase"] == "Succeeded" and update.new.get("score") not in scores:
            yield update.change, f"has score {update.new.get('score')}; its Pod reported {scores or None}"
        if failed_as(update.new) == "BadInput" and "bad input" not in [outcome(pod.last) for pod in pods]:
            yield update.change, f"failed as BadInput; its Pod reported {[outcome(pod.last) for pod in pods]}"


def failure_counts(history: list[Change]) -> Iterator[tuple[Change, str]]:
    """Whether an attempt is retried, and counts as a failure, follows from its Pods. No Pod is ever rejected here.

    A worker that ended without a score counts, and so does a deleted Pod; a disruption or a deleted node does not. An
    attempt does not fail while one of its Pods has reported a score, unless the job was stopped before that.
    """
    for update, pods, seen, node_deleted in attempt_ends(history):
        counted = update.new.get("failures", 0) - (update.old or {}).get("failures", 0)
        why = failed_as(update.new)
        scored = any(outcome(pod.last) == "score" and not pod.deleted for pod in pods)
        if scored and (counted or why in {"BadInput", "RetriesExhausted"}):
            yield update.change, f"failed ({why or 'tried again'}) although its Pod reported a score"
        again = update.new["phase"] == "Pending" and condition(update.new, "Scheduled", "False") != "Suspended"
        if again or why == "RetriesExhausted":
            missed = DISAPPEARED in update.new.get("message", "")
            allowed = {count for pod in seen for count in allowed_counts(pod, missed=missed)}
            allowed |= {0} if node_deleted else set()
            if counted not in allowed:
                yield update.change, f"counts {counted} failures, allowed are {sorted(allowed)}"
        elif counted:
            yield update.change, f"counts {counted} failures, and is {why or update.new['phase']}"


def attempt_ends(history: list[Change]) -> Iterator[AttemptEnd]:
    """The ends of all attempts that ran as Pods."""
    pods: dict[Attempt, dict[str, list[LastSeen]]] = {}
    nodes: set[str] = set()
    unsettled: set[str] = set()  # jobs whose node was deleted since their placement
    on: dict[str, str] = {}
    for change in history:
        update = job_update(change)
        if change.kind == "pod":
            last = change.new or change.old or {}
            versions = pods.setdefault(attempt_of(last), {}).setdefault(last["metadata"].get("uid", ""), [])
            versions.append(LastSeen(last, change.new is None))
        elif change.kind == "node" and change.new is not None:
            nodes.add(change.name)
        elif change.kind == "node":
            nodes.discard(change.name)
            unsettled |= {uid for uid, node in on.items() if node == change.name}
        elif update is not None and update.new["phase"] == "Running" and update.uid not in on:
            on[update.uid] = update.new.get("assignedNode", "")
            unsettled |= {update.uid} if on[update.uid] not in nodes else set()
        elif update is not None and update.old is not None and update.leaves:
            attempt = update.uid, update.old.get("attempts", 0) - 1
            if not with_agent(update.old):
                own = pods.get(attempt, {}).values()
                seen = [version for each in own for version in each]
                yield AttemptEnd(update, [each[-1] for each in own], seen, update.uid in unsettled)
            on.pop(update.uid, None)
            unsettled.discard(update.uid)


def allowed_counts(pod: LastSeen, *, missed: bool) -> set[int]:
    """By how much failures may grow for a version of a Pod: the operator may have decided on an earlier one than the
    last. `missed`: it says that it did not see how the Pod ended."""
    by_outcome: dict[PodOutcome | None, set[int]] = {"disruption": {0}, "nothing": {1}}
    counts = by_outcome.get(outcome(pod.last), set())
    if not (pod.deleted or "deletionTimestamp" in pod.last["metadata"]):
        return counts
    if _is_disrupted(pod.last) and not missed:
        return counts | {0}  # on a lost node, the worker has no end
    return counts | {1}


def outcome(pod: Object) -> PodOutcome | None:
    """The outcome of a Pod; None while it runs."""
    status = pod.get("status", {})
    ended = _ended(pod)
    if ended is None and status.get("phase") not in {"Succeeded", "Failed"}:
        return None
    if score_of(pod) is not None:
        return "score"
    if _answer(pod).get("fault") == "BadInput":
        return "bad input"
    return "disruption" if _is_disrupted(pod) else "nothing"


def _is_disrupted(pod: Object) -> bool:
    """Not if the kubelet evicted it because its machine ran short of something."""
    status = pod.get("status", {})
    return condition(status, "DisruptionTarget", "True") is not None and status.get("reason") != "Evicted"


def score_of(pod: Object) -> float | None:
    score = _answer(pod).get("score")
    return score if isinstance(score, int | float) and 0 <= score <= 100 else None


def attempt_of(pod: Object) -> Attempt:
    metadata = pod["metadata"]
    return metadata["ownerReferences"][0]["uid"], int(metadata["labels"]["vmafx.dev/attempt"])


def _answer(pod: Object) -> Object:
    """The result that the worker reported for this attempt; empty if it is not valid."""
    uid, attempt = attempt_of(pod)
    try:
        answer = msgspec.json.decode((_ended(pod) or {}).get("message", ""))
    except msgspec.DecodeError:
        return {}
    return answer if isinstance(answer, dict) and answer.get("id") == f"{uid}-{attempt}" else {}


def _ended(pod: Object) -> Object | None:
    states = (one["state"] for one in pod.get("status", {}).get("containerStatuses", ()))
    return next((state["terminated"] for state in states if "terminated" in state), None)
