"""The laws of jobs that agents run: where they are placed, whose word counts, and what takes a job from its node."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from tests.support.history import (
    ENDED,
    Moment,
    Object,
    Turn,
    condition,
    failed_as,
    turn_of,
    turns,
    with_agent,
    written_at,
)
from tests.support.machines import Said

# Heartbeats and placements are kept to the second, or nearly.
MINUTE, TICK = timedelta(seconds=60), timedelta(seconds=1)
LAG = timedelta(seconds=8)  # how far behind the cache of an operator may be that nobody stopped
SILENT = re.compile(r"its node (\S+) has sent no heartbeat since (\S+)")
NOT_TAKEN = re.compile(r"agent (\S+) did not claim it within 60 s")
FAULT = re.compile(r"(EngineFailure|NodeFault): ")
GONE = re.compile(r"its node (\S+) was deleted")

Breaches = Iterator[tuple[Moment, str]]


def marks(history: list[Moment]) -> Breaches:
    """claimedAt and progress belong to the running attempt. If the job ends with it, claimedAt stays; progress becomes
    complete if the job succeeded, and is removed if it failed."""
    for moment, _, _, old, new in turns(history):
        for field in ("claimedAt", "progress"):
            if new["phase"] == "Pending" and field in new:
                yield moment, f"is Pending, and its {field} is {new[field]}"
            if new["phase"] == "Running" and (old or {}).get("phase") == "Pending" and field in new:
                yield moment, f"is placed, and its {field} is {new[field]} already"
        if new["phase"] in ENDED:
            if (old or {}).get("claimedAt") != new.get("claimedAt"):
                yield (
                    moment,
                    f"ended, and its claimedAt went from {(old or {}).get('claimedAt')} to {new.get('claimedAt')}",
                )
            progress, frames = new.get("progress"), new.get("frames")
            counts = progress and (progress.get("frames"), progress.get("totalFrames"))
            if progress and (new["phase"] == "Failed" or counts != (frames, frames)):
                yield moment, f"ended as {new['phase']} with {frames} frames, and its progress is {progress}"
        taken = old.get("claimedAt") if old is not None and old["phase"] == new["phase"] == "Running" else None
        if taken and new.get("claimedAt") != taken:
            yield moment, f"was taken at {taken}, and then at {new.get('claimedAt')}"


def no_pods(history: list[Moment]) -> Breaches:
    """What an agent runs has no Pod."""
    agents: set[tuple[str, int]] = set()
    for moment in history:
        turn = turn_of(moment)
        if turn is not None and turn.new["phase"] == "Running" and with_agent(turn.new):
            agents.add((turn.uid, turn.new.get("attempts", 0) - 1))
        elif moment.kind == "pod" and moment.new is not None and moment.old is None:
            metadata = moment.new["metadata"]
            attempt = metadata["ownerReferences"][0]["uid"], int(metadata["labels"]["vmafx.dev/attempt"])
            if attempt in agents:
                yield moment, f"is a Pod for attempt {attempt[1]} of a job that an agent runs"


def homes(history: list[Moment]) -> Breaches:
    """A job is given to an agent only on an Agent node that has spoken, and a Pod only to other nodes."""
    spoke: dict[str, datetime | None] = {}  # nodes, and until when at least they were there and had spoken
    runtime: dict[str, str] = {}
    for moment in history:
        if moment.kind == "node":
            node = moment.new or {"spec": {}, "status": {}}
            if node.get("status", {}).get("agentSession"):
                spoke[moment.name] = None
            elif spoke.get(moment.name, ...) is None:
                spoke[moment.name] = written_at(moment.new)
            runtime[moment.name] = node["spec"].get("runtime", runtime.get(moment.name, "Pod"))
        turn = turn_of(moment)
        if turn is None or turn.new["phase"] != "Running" or (turn.old or {}).get("phase") == "Running":
            continue
        name, wanted = turn.new.get("assignedNode", ""), "Agent" if with_agent(turn.new) else "Pod"
        if runtime.get(name, "Pod") != wanted:
            yield moment, f"was placed on {name} for {wanted}, and that is for {runtime.get(name)}"
        elif wanted == "Agent" and not _has_spoken(spoke, name, written_at(moment.new)):
            yield moment, f"was placed on {name}, whose agent has not spoken"


def _has_spoken(spoke: dict[str, datetime | None], name: str, now: datetime | None) -> bool:
    if name not in spoke:
        return False
    until = spoke[name]
    return until is None or now is None or now - until <= LAG


def moves(history: list[Moment]) -> Breaches:
    """A job leaves its agent without an end only if people stop it, the node is lost or gone, the agent fails, or did
    not take it within a minute: and that it was so is seen in the history itself."""
    placed: dict[str, datetime] = {}
    lost: dict[str, set[str]] = {}  # nodes, and the heartbeats after which they were given up
    went: dict[str, set[str]] = {}  # jobs, and their nodes that were deleted since, or just before
    on: dict[str, str] = {}
    there: set[str] = set()
    for moment in history:
        if moment.kind == "node":
            _see(moment, lost)
            there.add(moment.name)
            if moment.new is None:
                there.remove(moment.name)
                for uid, node in on.items():
                    went.setdefault(uid, set()).update({node} & {moment.name})
        turn = turn_of(moment)
        if turn is None:
            continue
        if turn.new["phase"] == "Running" and turn.uid not in on:
            on[turn.uid] = turn.new.get("assignedNode", "")
            went[turn.uid] = {on[turn.uid]} - there
            placed[turn.uid] = written_at(moment.new) or datetime.max.replace(tzinfo=UTC)
        elif turn.leaves and turn.old is not None:
            if with_agent(turn.old) and (why := _why_not(turn, placed[turn.uid], lost, went[turn.uid])):
                yield moment, why
            on.pop(turn.uid, None)


def _see(moment: Moment, lost: dict[str, set[str]]) -> None:
    status = (moment.new or {}).get("status", {})
    if condition(status, "Ready", "False") == "AgentLost":
        lost.setdefault(moment.name, set()).add(status.get("lastHeartbeat", ""))


def _why_not(turn: Turn, placed: datetime, lost: dict[str, set[str]], went: set[str]) -> str | None:
    """What is wrong with how an attempt ended; None if it is as it should be."""
    old, new = turn.old or {}, turn.new
    node, counted = old.get("assignedNode"), new.get("failures", 0) - old.get("failures", 0)
    again = new["phase"] == "Pending" and condition(new, "Scheduled", "False") != "Suspended"
    if not again and failed_as(new) != "RetriesExhausted":
        return f"counts {counted} failures, and is {failed_as(new) or new['phase']}" if counted else None
    says, now = new.get("message", ""), written_at(turn.moment.new)
    if GONE.search(says):
        wrong = counted != 0 or node not in went
    elif (silent := SILENT.search(says)) is not None:
        since = datetime.fromisoformat(silent[2])
        heard = {datetime.fromisoformat(one) for one in lost.get(silent[1], ())}
        wrong = silent[1] != node or since not in heard or now is None or now - since < MINUTE - TICK
    elif (late := NOT_TAKEN.search(says)) is not None:
        wrong = late[1] != node or "claimedAt" in old or now is None or now - placed < MINUTE - TICK
    else:
        wrong = FAULT.search(says) is None
    if again and not wrong and not GONE.search(says) and counted != 1:
        return f"counts {counted} failures for {says!r}"
    return f"was taken from {node}, placed at {placed}, at {now}: {says!r}" if wrong else None


def words(history: list[Moment], said: list[Said]) -> Breaches:
    """Who takes an attempt has it, and a job ends by the word of the agent that had it then, and of that attempt."""
    homes_of: dict[str, str] = {}
    last: dict[str, Moment] = {}
    for turn in turns(history):
        old = turn.old or {}
        if turn.new["phase"] == "Running":
            homes_of[turn.new["controllerJobID"]] = turn.new.get("assignedNode", "")
            last[turn.new["controllerJobID"]] = turn.moment
        if turn.leaves and with_agent(old):
            yield from _unsaid(turn, said)
    for agent, attempt, what, _ in said:
        if what == "taken" and attempt not in homes_of:
            yield history[-1], f"{agent} took {attempt}, which never was"
        elif what == "taken" and homes_of[attempt] != agent:
            yield last[attempt], f"{agent} took {attempt}, which {homes_of[attempt]} had"


def _unsaid(turn: Turn, said: list[Said]) -> Breaches:
    old: Object = turn.old or {}
    mine = [one for one in said if (one.agent, one.attempt) == (old.get("assignedNode"), old.get("controllerJobID"))]
    scores = [one.score for one in mine if one.what == "scored"]
    if turn.new["phase"] == "Succeeded" and turn.new.get("score") not in scores:
        yield turn.moment, f"has score {turn.new.get('score')}; its agent said {scores or None}"
    by_fault = failed_as(turn.new) == "BadInput" or FAULT.search(turn.new.get("message", "")) is not None
    if turn.new["phase"] != "Succeeded" and by_fault and not [one for one in mine if one.what == "not scored"]:
        yield turn.moment, f"failed ({turn.new.get('message')}), and its agent said nothing of that"
