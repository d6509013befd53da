"""Invariants of the history of jobs and nodes; those of Pods and agents are in pod_invariants.py and
agent_invariants.py."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta

from tests.support import agent_invariants, pod_invariants
from tests.support.job_history import ENDED, Change, condition, failed_as, job_update, job_updates, written_at
from tests.support.machines import AgentLogEntry

PHASE_CHANGES = {
    ("Pending", "Pending"), ("Pending", "Running"), ("Pending", "Failed"),
    ("Running", "Running"), ("Running", "Pending"), ("Running", "Succeeded"), ("Running", "Failed"),
    ("Succeeded", "Succeeded"), ("Failed", "Failed"),
}  # fmt: skip
# Maximum lag of the cache of a running operator; timestamps in objects have a resolution of one second.
LAG, TICK = timedelta(seconds=8), timedelta(seconds=1)

Violations = Iterator[tuple[Change, str]]
Invariant = Callable[[list[Change]], Violations]


def violations(history: Iterable[Change], log_entries: list[AgentLogEntry] | None = None) -> list[str]:
    """All violations, each with its revision. `log_entries` are from the logs of agents."""
    changes = list(history)
    invariants: tuple[Invariant, ...] = (
        phases, endings, attempts, failures, user_requests, capacity, closed_nodes, completion,
        pod_invariants.origins, pod_invariants.single_pods, pod_invariants.results, pod_invariants.failure_counts,
        agent_invariants.claims, agent_invariants.no_pods, agent_invariants.placements, agent_invariants.removals,
        lambda changes: agent_invariants.agent_logs(changes, log_entries or []),
    )  # fmt: skip
    return [
        f"revision {change.revision}, {change.name}: {text}"
        for invariant in invariants
        for change, text in invariant(changes)
    ]


def phases(history: list[Change]) -> Violations:
    """A job starts as Pending, and its phase changes only as in PHASE_CHANGES."""
    for update in job_updates(history):
        now = update.new["phase"]
        if update.old is None:
            if now != "Pending":
                yield update.change, f"starts as {now}"
        elif (update.old["phase"], now) not in PHASE_CHANGES:
            yield update.change, f"changes from {update.old['phase']} to {now}"


def endings(history: list[Change]) -> Violations:
    """A finished job never changes; it has an end time, and a score if and only if it succeeded."""
    for change, _, _, old, new in job_updates(history):
        if old is not None and old["phase"] in ENDED and old != new:
            yield change, f"was {old['phase']} and changed: {old} to {new}"
        if new["phase"] in ENDED and "finishedAt" not in new:
            yield change, "has no finishedAt"
        if ("score" in new) != (new["phase"] == "Succeeded"):
            yield change, f"has score {new.get('score')} and is {new['phase']}"


def attempts(history: list[Change]) -> Violations:
    """`attempts` counts placements, and each has an id of job and number. A running attempt keeps its id and its node,
    and so does the last one when the job finishes."""
    for change, uid, _, old, new in job_updates(history):
        before, now = (old or {}).get("attempts", 0), new.get("attempts", 0)
        placed = new["phase"] == "Running" and (old or {}).get("phase") == "Pending"
        if now != before + placed:
            yield change, f"attempts went from {before} to {now}"
        wanted = f"{uid}-{now - 1}" if new["phase"] == "Running" else None
        if new["phase"] in {"Pending", "Running"} and new.get("controllerJobID") != wanted:
            yield change, f"is {new['phase']} as {new.get('controllerJobID')}, expected {wanted}"
        if ("assignedNode" in new) != (new["phase"] == "Running") and new["phase"] not in ENDED:
            yield change, f"is {new['phase']} on {new.get('assignedNode')}"
        if old is not None and (new["phase"] in ENDED or old["phase"] == new["phase"] == "Running"):
            for field in ("controllerJobID", "assignedNode"):
                if old.get(field) != new.get(field):
                    yield change, f"its {field} went from {old.get(field)} to {new.get(field)}"


def failures(history: list[Change]) -> Violations:
    """Failures are counted one at a time, when an attempt ends; more than retryLimit fail the job."""
    for update in job_updates(history):
        before, now = (update.old or {}).get("failures", 0), update.new.get("failures", 0)
        if not before <= now <= before + update.leaves:
            yield update.change, f"failures went from {before} to {now}"
        limit, why = update.spec.get("retryLimit", 3), failed_as(update.new)
        if (now > limit) != (why == "RetriesExhausted"):
            yield update.change, f"failed {now} times of {limit + 1}, and its reason is {why}"


def user_requests(history: list[Change]) -> Violations:
    """A cancelled or suspended job is not placed; a job is stopped only by cancel, suspend or a deadline."""
    for update in job_updates(history):
        if update.old is None or update.old["phase"] == update.new["phase"]:
            continue
        if update.new["phase"] == "Running" and (update.spec.get("cancel") or update.spec.get("suspend")):
            yield update.change, "was placed although it was cancelled or suspended"
        why = failed_as(update.new)
        if update.leaves and update.new["phase"] == "Pending":
            why = condition(update.new, "Scheduled", "False")
        fields = {"Cancelled": "cancel", "Suspended": "suspend", "DeadlineExceeded": "activeDeadlineSeconds"}
        if why in fields and not update.spec.get(fields[why]):
            yield update.change, f"is {why}, and its {fields[why]} is not set"


def capacity(history: list[Change]) -> Violations:
    """No node has more running jobs than its highest capacity so far."""
    slots: Counter[str] = Counter()
    on: dict[str, str] = {}
    for change in history:
        if change.kind == "node":
            slots[change.name] = max(slots[change.name], (change.new or {"spec": {}})["spec"].get("capacity", 1))
        elif change.kind == "job":
            status = (change.new or {}).get("status", {})
            on.pop(change.name, None)
            if status.get("phase") == "Running":
                node = on[change.name] = status.get("assignedNode", "")
                if (used := Counter(on.values())[node]) > slots[node]:
                    yield change, f"makes {used} jobs on {node}, which has {slots[node]} slots"


def closed_nodes(history: list[Change]) -> Violations:
    """No job is placed on a node that was deleted or cordoned more than LAG ago.

    The time of a change is known to the second; a deletion has no time, but precedes the next change.
    """
    closed: dict[str, datetime | None] = {}  # deleted and cordoned nodes, and since when at the latest
    for change in history:
        time = written_at(change.new)
        if time is not None:
            closed |= {name: time + TICK for name, since in closed.items() if since is None}
        if change.kind == "node":
            if change.new is not None and not change.new["spec"].get("unschedulable"):
                closed.pop(change.name, None)
            elif change.name not in closed:
                closed[change.name] = time and time + TICK
        update = job_update(change)
        if (
            update is None
            or time is None
            or update.new["phase"] != "Running"
            or (update.old or {}).get("phase") == "Running"
        ):
            continue
        node = update.new.get("assignedNode", "")
        if (since := closed.get(node)) is not None and time - since > LAG:
            yield change, f"was placed on {node}, closed since {since}, at {time}"


def completion(history: list[Change]) -> Violations:
    """Every job finishes, unless it is deleted."""
    last = {(change.new or change.old or {})["metadata"]["uid"]: change for change in history if change.kind == "job"}
    for change in last.values():
        if change.new is not None and change.new["status"]["phase"] not in ENDED:
            yield change, f"is {change.new['status']['phase']} at the end of the history"
