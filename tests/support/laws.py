"""The laws that no moment of a history may break: those of jobs and nodes here, those of who runs them in pod_laws.py
and agent_laws.py."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta

from tests.support import agent_laws, pod_laws
from tests.support.history import ENDED, Moment, condition, failed_as, turn_of, turns, written_at
from tests.support.machines import Said

TURNS = {
    ("Pending", "Pending"), ("Pending", "Running"), ("Pending", "Failed"),
    ("Running", "Running"), ("Running", "Pending"), ("Running", "Succeeded"), ("Running", "Failed"),
    ("Succeeded", "Succeeded"), ("Failed", "Failed"),
}  # fmt: skip
# How far behind the cache of an operator may be that nobody stopped. Times in objects have whole seconds.
LAG, TICK = timedelta(seconds=8), timedelta(seconds=1)

Breaches = Iterator[tuple[Moment, str]]
Law = Callable[[list[Moment]], Breaches]


def broken_laws(history: Iterable[Moment], said: list[Said] | None = None) -> list[str]:
    """Every breach, with the revision at which it happened; empty if all is well. `said`: what agents' logs tell."""
    moments = list(history)
    laws: tuple[Law, ...] = (
        phases, endings, attempts, failures, consent, capacity, places, lives,
        pod_laws.origins, pod_laws.twins, pod_laws.answers, pod_laws.blame,
        agent_laws.marks, agent_laws.no_pods, agent_laws.homes, agent_laws.moves,
        lambda moments: agent_laws.words(moments, said or []),
    )  # fmt: skip
    return [f"revision {moment.revision}, {moment.name}: {text}" for law in laws for moment, text in law(moments)]


def phases(history: list[Moment]) -> Breaches:
    """A job begins as Pending, and its phase turns only as it may."""
    for turn in turns(history):
        now = turn.new["phase"]
        if turn.old is None:
            if now != "Pending":
                yield turn.moment, f"begins as {now}"
        elif (turn.old["phase"], now) not in TURNS:
            yield turn.moment, f"turns from {turn.old['phase']} to {now}"


def endings(history: list[Moment]) -> Breaches:
    """What ended stays as it ended, with a time, and a score if and only if it succeeded."""
    for moment, _, _, old, new in turns(history):
        if old is not None and old["phase"] in ENDED and old != new:
            yield moment, f"was {old['phase']} and changed: {old} to {new}"
        if new["phase"] in ENDED and "finishedAt" not in new:
            yield moment, "ended at no time"
        if ("score" in new) != (new["phase"] == "Succeeded"):
            yield moment, f"has score {new.get('score')} and is {new['phase']}"


def attempts(history: list[Moment]) -> Breaches:
    """Attempts count placements, each named after the job and its number. Until it is over, and where the job ends
    with it for good, an attempt keeps its name and its node."""
    for moment, uid, _, old, new in turns(history):
        before, now = (old or {}).get("attempts", 0), new.get("attempts", 0)
        placed = new["phase"] == "Running" and (old or {}).get("phase") == "Pending"
        if now != before + placed:
            yield moment, f"attempts went from {before} to {now}"
        wanted = f"{uid}-{now - 1}" if new["phase"] == "Running" else None
        if new["phase"] in {"Pending", "Running"} and new.get("controllerJobID") != wanted:
            yield moment, f"is {new['phase']} as {new.get('controllerJobID')}, and should be as {wanted}"
        if ("assignedNode" in new) != (new["phase"] == "Running") and new["phase"] not in ENDED:
            yield moment, f"is {new['phase']} on {new.get('assignedNode')}"
        if old is not None and (new["phase"] in ENDED or old["phase"] == new["phase"] == "Running"):
            for field in ("controllerJobID", "assignedNode"):
                if old.get(field) != new.get(field):
                    yield moment, f"its {field} went from {old.get(field)} to {new.get(field)}"


def failures(history: list[Moment]) -> Breaches:
    """A failure is counted when an attempt ends, one at a time, and one too many ends the job."""
    for turn in turns(history):
        before, now = (turn.old or {}).get("failures", 0), turn.new.get("failures", 0)
        if not before <= now <= before + turn.leaves:
            yield turn.moment, f"failures went from {before} to {now}"
        limit, why = turn.spec.get("retryLimit", 3), failed_as(turn.new)
        if (now > limit) != (why == "RetriesExhausted"):
            yield turn.moment, f"failed {now} times of {limit + 1}, and its reason is {why}"


def consent(history: list[Moment]) -> Breaches:
    """Nobody places what was cancelled or suspended, nor stops what was not, nor what has no deadline."""
    for turn in turns(history):
        if turn.old is None or turn.old["phase"] == turn.new["phase"]:
            continue
        if turn.new["phase"] == "Running" and (turn.spec.get("cancel") or turn.spec.get("suspend")):
            yield turn.moment, "was placed although it was cancelled or suspended"
        why = failed_as(turn.new)
        if turn.leaves and turn.new["phase"] == "Pending":
            why = condition(turn.new, "Scheduled", "False")
        asked = {"Cancelled": "cancel", "Suspended": "suspend", "DeadlineExceeded": "activeDeadlineSeconds"}
        if why in asked and not turn.spec.get(asked[why]):
            yield turn.moment, f"is {why}, and its {asked[why]} is not set"


def capacity(history: list[Moment]) -> Breaches:
    """No node ever has more jobs than slots, the most it ever offered while it had them."""
    slots: Counter[str] = Counter()
    on: dict[str, str] = {}
    for moment in history:
        if moment.kind == "node":
            slots[moment.name] = max(slots[moment.name], (moment.new or {"spec": {}})["spec"].get("capacity", 1))
        elif moment.kind == "job":
            status = (moment.new or {}).get("status", {})
            on.pop(moment.name, None)
            if status.get("phase") == "Running":
                node = on[moment.name] = status.get("assignedNode", "")
                if (used := Counter(on.values())[node]) > slots[node]:
                    yield moment, f"makes {used} jobs on {node}, which has {slots[node]} slots"


def places(history: list[Moment]) -> Breaches:
    """Nothing is placed on a node that has been gone or cordoned for longer than caches lag.

    A version tells when it was written, to the second; a deletion tells no time, but was before what came next.
    """
    shut: dict[str, datetime | None] = {}  # nodes that take nothing, and since when at the latest
    for moment in history:
        time = written_at(moment.new)
        if time is not None:
            shut |= {name: time + TICK for name, since in shut.items() if since is None}
        if moment.kind == "node":
            if moment.new is not None and not moment.new["spec"].get("unschedulable"):
                shut.pop(moment.name, None)
            elif moment.name not in shut:
                shut[moment.name] = time and time + TICK
        turn = turn_of(moment)
        if turn is None or time is None or turn.new["phase"] != "Running" or (turn.old or {}).get("phase") == "Running":
            continue
        node = turn.new.get("assignedNode", "")
        if (since := shut.get(node)) is not None and time - since > LAG:
            yield moment, f"was placed on {node}, which took nothing since {since}, at {time}"


def lives(history: list[Moment]) -> Breaches:
    """Every job ends, unless it is deleted before."""
    last = {(moment.new or moment.old or {})["metadata"]["uid"]: moment for moment in history if moment.kind == "job"}
    for moment in last.values():
        if moment.new is not None and moment.new["status"]["phase"] not in ENDED:
            yield moment, f"is {moment.new['status']['phase']} at last, and never ended"
