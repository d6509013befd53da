"""The laws of Pods: for which attempts they are made, and what a job makes of what they tell."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from tests.support.history import Moment, Object, Turn, condition, failed_as, turn_of, with_agent

Attempt = tuple[str, int]  # of a job by its uid
Told = Literal["score", "bad input", "disruption", "nothing"]


class Seen(NamedTuple):
    """A Pod as it was last."""

    last: Object
    gone: bool


class Leaving(NamedTuple):
    """An attempt is over: how the job turned, and what is known of the attempt by then."""

    turn: Turn
    pods: list[Seen]  # all that it ever had
    node_went: bool  # at any time since it was placed there


def origins(history: list[Moment]) -> Iterator[tuple[Moment, str]]:
    """A Pod is made for the attempt that runs, and for none that was never placed. One that comes too late, by an
    operator that was stopped or whose cache lags, goes again, or its job does."""
    jobs: dict[str, Object] = {}
    late: dict[str, tuple[Moment, str, str]] = {}  # by the Pod's uid
    for moment in history:
        version = moment.new or moment.old or {}
        uid = version["metadata"].get("uid", "")
        if moment.kind == "job":
            jobs[uid] = version["status"] if moment.new else version["status"] | {"phase": "deleted"}
            if moment.new is None:
                late = {pod: one for pod, one in late.items() if one[1] != uid}
        elif moment.kind == "pod" and moment.old is None:
            job, attempt = attempt_of(version)
            placed, phase = jobs.get(job, {}).get("attempts", 0), jobs.get(job, {}).get("phase")
            if attempt >= placed:
                yield moment, f"is for attempt {attempt} of a job that was placed {placed} times"
            elif (attempt, phase) != (placed - 1, "Running"):
                late[uid] = moment, job, f"is for attempt {attempt} of a job that is {phase} after {placed}, and stays"
        elif moment.kind == "pod" and (moment.new is None or "deletionTimestamp" in version["metadata"]):
            late.pop(uid, None)
    for moment, _, text in late.values():
        yield moment, text


def twins(history: list[Moment]) -> Iterator[tuple[Moment, str]]:
    """An attempt has one Pod at a time."""
    there: dict[Attempt, set[str]] = {}
    for moment in history:
        if moment.kind == "pod":
            names = there.setdefault(attempt_of(moment.new or moment.old or {}), set())
            names.add(moment.name)
            if moment.new is None:
                names.remove(moment.name)
            elif moment.old is None and len(names) > 1:
                yield moment, f"is one of {len(names)} Pods of an attempt: {sorted(names)}"


def answers(history: list[Moment]) -> Iterator[tuple[Moment, str]]:
    """A job has the score that a Pod of its last attempt told, and told before; and so with a bad clip."""
    for turn, pods, _ in leavings(history):
        scores = [score for pod in pods if (score := score_of(pod.last)) is not None]
        if turn.new["phase"] == "Succeeded" and turn.new.get("score") not in scores:
            yield turn.moment, f"has score {turn.new.get('score')}; its Pod told {scores or None}"
        if failed_as(turn.new) == "BadInput" and "bad input" not in [told(pod.last) for pod in pods]:
            yield turn.moment, f"failed as BadInput; its Pod told {[told(pod.last) for pod in pods]}"


def blame(history: list[Moment]) -> Iterator[tuple[Moment, str]]:
    """What is tried again, and whether it counts as a failure, is as the attempt's Pods say. None is ever refused here.

    A worker that ended without a score counts, and so does a Pod that went; a disruption does not, nor a node that
    went. Nothing fails while there is a Pod that told a score: only who is stopped may stop before that is heard.
    """
    for turn, pods, node_went in leavings(history):
        counted = turn.new.get("failures", 0) - (turn.old or {}).get("failures", 0)
        why = failed_as(turn.new)
        scored = any(told(pod.last) == "score" and not pod.gone for pod in pods)
        if scored and (counted or why in {"BadInput", "RetriesExhausted"}):
            yield turn.moment, f"failed ({why or 'tried again'}) although its Pod told a score"
        again = turn.new["phase"] == "Pending" and condition(turn.new, "Scheduled", "False") != "Suspended"
        if again or why == "RetriesExhausted":
            fair = {count for pod in pods for count in fair_counts(pod)} | ({0} if node_went else set())
            if counted not in fair:
                yield turn.moment, f"counts {counted} failures, and fair were {sorted(fair)}"
        elif counted:
            yield turn.moment, f"counts {counted} failures, and is {why or turn.new['phase']}"


def leavings(history: list[Moment]) -> Iterator[Leaving]:
    """Of attempts that run as Pods."""
    pods: dict[Attempt, dict[str, Seen]] = {}
    nodes: set[str] = set()
    unsettled: set[str] = set()  # jobs whose node went since they were placed
    on: dict[str, str] = {}
    for moment in history:
        turn = turn_of(moment)
        if moment.kind == "pod":
            last = moment.new or moment.old or {}
            pods.setdefault(attempt_of(last), {})[last["metadata"].get("uid", "")] = Seen(last, moment.new is None)
        elif moment.kind == "node" and moment.new is not None:
            nodes.add(moment.name)
        elif moment.kind == "node":
            nodes.discard(moment.name)
            unsettled |= {uid for uid, node in on.items() if node == moment.name}
        elif turn is not None and turn.new["phase"] == "Running" and turn.uid not in on:
            on[turn.uid] = turn.new.get("assignedNode", "")
            unsettled |= {turn.uid} if on[turn.uid] not in nodes else set()
        elif turn is not None and turn.old is not None and turn.leaves:
            attempt = turn.uid, turn.old.get("attempts", 0) - 1
            if not with_agent(turn.old):
                yield Leaving(turn, list(pods.get(attempt, {}).values()), turn.uid in unsettled)
            on.pop(turn.uid, None)
            unsettled.discard(turn.uid)


def fair_counts(pod: Seen) -> set[int]:
    """By how much the failures may grow when a Pod like this is seen. One that went may have been seen as it was."""
    by_word: dict[Told | None, set[int]] = {"disruption": {0}, "nothing": {1}}
    said = by_word.get(told(pod.last), set())
    return said | {1} if pod.gone or "deletionTimestamp" in pod.last["metadata"] else said


def told(pod: Object) -> Told | None:
    """What the Pod of an attempt came to; None if it goes on."""
    status = pod.get("status", {})
    ended = _ended(pod)
    if ended is None and status.get("phase") not in {"Succeeded", "Failed"}:
        return None
    if score_of(pod) is not None:
        return "score"
    if _answer(pod).get("fault") == "BadInput":
        return "bad input"
    return "disruption" if condition(status, "DisruptionTarget", "True") is not None else "nothing"


def score_of(pod: Object) -> float | None:
    score = _answer(pod).get("score")
    return score if isinstance(score, int | float) and 0 <= score <= 100 else None


def attempt_of(pod: Object) -> Attempt:
    metadata = pod["metadata"]
    return metadata["ownerReferences"][0]["uid"], int(metadata["labels"]["vmafx.dev/attempt"])


def _answer(pod: Object) -> Object:
    """What its worker said of this very attempt; empty if that makes no sense."""
    uid, attempt = attempt_of(pod)
    try:
        answer = msgspec.json.decode((_ended(pod) or {}).get("message", ""))
    except msgspec.DecodeError:
        return {}
    return answer if isinstance(answer, dict) and answer.get("id") == f"{uid}-{attempt}" else {}


def _ended(pod: Object) -> Object | None:
    states = (one["state"] for one in pod.get("status", {}).get("containerStatuses", ()))
    return next((state["terminated"] for state in states if "terminated" in state), None)
