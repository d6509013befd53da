"""Invariants of jobs on agents: placement, reported results, and reasons for taking a job from its node."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from tests.support.job_history import (
    ENDED,
    Change,
    JobUpdate,
    Object,
    condition,
    failed_as,
    job_update,
    job_updates,
    with_agent,
    written_at,
)
from tests.support.machines import AgentLogEntry

# Timestamps of heartbeats and placements have a resolution of about one second.
MINUTE, TICK = timedelta(seconds=60), timedelta(seconds=1)
LAG = timedelta(seconds=8)  # maximum lag of the cache of a running operator
SILENT = re.compile(r"its node (\S+) has sent no heartbeat since (\S+)")
NOT_TAKEN = re.compile(r"agent (\S+) did not claim it within 60 s")
FAULT = re.compile(r"(EngineFailure|NodeFault): ")
GONE = re.compile(r"its node (\S+) was deleted")

Violations = Iterator[tuple[Change, str]]


def claims(history: list[Change]) -> Violations:
    """claimedAt and progress belong to the running attempt.

    When the job ends with it, claimedAt stays; progress becomes complete if the job succeeded, and is removed if not.
    """
    for change, _, _, old, new in job_updates(history):
        for field in ("claimedAt", "progress"):
            if new["phase"] == "Pending" and field in new:
                yield change, f"is Pending, and its {field} is {new[field]}"
            if new["phase"] == "Running" and (old or {}).get("phase") == "Pending" and field in new:
                yield change, f"is placed, and its {field} is {new[field]} already"
        if new["phase"] in ENDED:
            before, after = (old or {}).get("claimedAt"), new.get("claimedAt")
            if before != after:
                yield change, f"ended, and its claimedAt went from {before} to {after}"
            progress, frames = new.get("progress"), new.get("frames")
            counts = progress and (progress.get("frames"), progress.get("totalFrames"))
            if progress and (new["phase"] == "Failed" or counts != (frames, frames)):
                yield change, f"ended as {new['phase']} with {frames} frames, and its progress is {progress}"
        taken = old.get("claimedAt") if old is not None and old["phase"] == new["phase"] == "Running" else None
        if taken and new.get("claimedAt") != taken:
            yield change, f"was taken at {taken}, and then at {new.get('claimedAt')}"


def no_pods(history: list[Change]) -> Violations:
    """An attempt on an agent has no Pod."""
    agents: set[tuple[str, int]] = set()
    for change in history:
        update = job_update(change)
        if update is not None and update.new["phase"] == "Running" and with_agent(update.new):
            agents.add((update.uid, update.new.get("attempts", 0) - 1))
        elif change.kind == "pod" and change.new is not None and change.old is None:
            metadata = change.new["metadata"]
            attempt = metadata["ownerReferences"][0]["uid"], int(metadata["labels"]["vmafx.dev/attempt"])
            if attempt in agents:
                yield change, f"is a Pod for attempt {attempt[1]} of a job that an agent runs"


def placements(history: list[Change]) -> Violations:
    """Attempts on agents are placed on Agent nodes with a session, Pods on other nodes."""
    sessions: dict[str, datetime | None] = {}  # nodes with an agent session, and when it ended if it did
    runtime: dict[str, str] = {}
    for change in history:
        if change.kind == "node":
            node = change.new or {"spec": {}, "status": {}}
            if node.get("status", {}).get("agentSession"):
                sessions[change.name] = None
            elif sessions.get(change.name, ...) is None:
                sessions[change.name] = written_at(change.new)
            runtime[change.name] = node["spec"].get("runtime", runtime.get(change.name, "Pod"))
        update = job_update(change)
        if update is None or update.new["phase"] != "Running" or (update.old or {}).get("phase") == "Running":
            continue
        name, wanted = update.new.get("assignedNode", ""), "Agent" if with_agent(update.new) else "Pod"
        if runtime.get(name, "Pod") != wanted:
            yield change, f"was placed on {name} for {wanted}, and that is for {runtime.get(name)}"
        elif wanted == "Agent" and not _has_session(sessions, name, written_at(change.new)):
            yield change, f"was placed on {name}, whose agent has no session"


def _has_session(sessions: dict[str, datetime | None], name: str, now: datetime | None) -> bool:
    if name not in sessions:
        return False
    until = sessions[name]
    return until is None or now is None or now - until <= LAG


def removals(history: list[Change]) -> Violations:
    """A job leaves its agent unfinished only if a user stops it, the node is lost or deleted, the agent fails, or did
    not claim it within a minute; the history must show that reason."""
    placed: dict[str, datetime] = {}
    lost: dict[str, set[str]] = {}  # nodes, and the last heartbeats after which they were lost
    went: dict[str, set[str]] = {}  # jobs, and those of their nodes that were deleted since or just before
    drained: set[str] = set()  # jobs whose node drained since they were placed
    on: dict[str, str] = {}
    existing: set[str] = set()
    draining: set[str] = set()
    for change in history:
        if change.kind == "node":
            _record_lost(change, lost)
            existing.add(change.name)
            draining.discard(change.name)
            if change.new is None:
                existing.remove(change.name)
                for uid, node in on.items():
                    went.setdefault(uid, set()).update({node} & {change.name})
            elif change.new.get("status", {}).get("draining"):
                draining.add(change.name)
                drained |= {uid for uid, node in on.items() if node == change.name}
        update = job_update(change)
        if update is None:
            continue
        if update.new["phase"] == "Running" and update.uid not in on:
            on[update.uid] = update.new.get("assignedNode", "")
            went[update.uid] = {on[update.uid]} - existing
            drained.discard(update.uid)
            drained |= {update.uid} if on[update.uid] in draining else set()
            placed[update.uid] = written_at(change.new) or datetime.max.replace(tzinfo=UTC)
        elif update.leaves and update.old is not None:
            uncounted = went[update.uid], update.uid in drained
            if with_agent(update.old) and (why := _removal_error(update, placed[update.uid], lost, *uncounted)):
                yield change, why
            on.pop(update.uid, None)


def _record_lost(change: Change, lost: dict[str, set[str]]) -> None:
    status = (change.new or {}).get("status", {})
    if condition(status, "Ready", "False") == "AgentLost":
        lost.setdefault(change.name, set()).add(status.get("lastHeartbeat", ""))


def _removal_error(
    update: JobUpdate, placed: datetime, lost: dict[str, set[str]], went: set[str], drained: bool
) -> str | None:
    """Why the end of an attempt is a violation; None if it is valid. No failure counts if an agent that drains did not
    claim the job."""
    old, new = update.old or {}, update.new
    node, counted = old.get("assignedNode"), new.get("failures", 0) - old.get("failures", 0)
    again = new["phase"] == "Pending" and condition(new, "Scheduled", "False") != "Suspended"
    if not again and failed_as(new) != "RetriesExhausted":
        return f"counts {counted} failures, and is {failed_as(new) or new['phase']}" if counted else None
    message, now = new.get("message", ""), written_at(update.change.new)
    late = NOT_TAKEN.search(message)
    if GONE.search(message):
        wrong = counted != 0 or node not in went
    elif (silent := SILENT.search(message)) is not None:
        since = datetime.fromisoformat(silent[2])
        heard = {datetime.fromisoformat(one) for one in lost.get(silent[1], ())}
        wrong = silent[1] != node or since not in heard or now is None or now - since < MINUTE - TICK
    elif late is not None:
        wrong = late[1] != node or "claimedAt" in old or now is None or now - placed < MINUTE - TICK
    else:
        wrong = FAULT.search(message) is None
    uncounted = GONE.search(message) or (late and drained)
    if again and not wrong and not uncounted and counted != 1:
        return f"counts {counted} failures for {message!r}"
    return f"was taken from {node}, placed at {placed}, at {now}: {message!r}" if wrong else None


def agent_logs(history: list[Change], log_entries: list[AgentLogEntry]) -> Violations:
    """An agent starts only attempts placed on it, and a job finishes with what that agent logged of that attempt."""
    node_of: dict[str, str] = {}
    last: dict[str, Change] = {}
    for update in job_updates(history):
        old = update.old or {}
        if update.new["phase"] == "Running":
            node_of[update.new["controllerJobID"]] = update.new.get("assignedNode", "")
            last[update.new["controllerJobID"]] = update.change
        if update.leaves and with_agent(old):
            yield from _unlogged(update, log_entries)
    for agent, attempt, what, _ in log_entries:
        if what == "taken" and attempt not in node_of:
            yield history[-1], f"{agent} took {attempt}, which was never placed"
        elif what == "taken" and node_of[attempt] != agent:
            yield last[attempt], f"{agent} took {attempt}, which {node_of[attempt]} had"


def _unlogged(update: JobUpdate, log_entries: list[AgentLogEntry]) -> Violations:
    old: Object = update.old or {}
    entries = [
        one for one in log_entries if (one.agent, one.attempt) == (old.get("assignedNode"), old.get("controllerJobID"))
    ]
    scores = [one.score for one in entries if one.what == "scored"]
    if update.new["phase"] == "Succeeded" and update.new.get("score") not in scores:
        yield update.change, f"has score {update.new.get('score')}; its agent logged {scores or None}"
    by_fault = failed_as(update.new) == "BadInput" or FAULT.search(update.new.get("message", "")) is not None
    if update.new["phase"] != "Succeeded" and by_fault and not [one for one in entries if one.what == "not scored"]:
        yield update.change, f"failed ({update.new.get('message')}), and its agent logged no failure"
