"""All that ever happened in a cluster, read from etcd's own log, and the laws that no moment of it may break.

etcd keeps every version of every object until it is told to forget. Read from the first revision on, in the order in
which it happened, its watch is the whole story, whoever was killed on the way: the API server may have told less.
"""

import base64
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import aiohttp
import msgspec

from vmafx.devcluster import DevCluster

# The API server keeps Pods as JSON only if told to, and forgets old revisions unless told not to.
KEEP_ALL = ("--storage-media-type=application/json", "--etcd-compaction-interval=0")
FOLDERS: dict[str, "Kind"] = {
    "/registry/pods/": "pod",
    "/registry/vmafx.dev/vmafxjobs/": "job",
    "/registry/vmafx.dev/vmafxnodes/": "node",
}
LAST_LINE = 1 << 26  # bytes
ENDED = ("Succeeded", "Failed")
TURNS = {
    ("Pending", "Pending"), ("Pending", "Running"), ("Pending", "Failed"),
    ("Running", "Running"), ("Running", "Pending"), ("Running", "Succeeded"), ("Running", "Failed"),
    ("Succeeded", "Succeeded"), ("Failed", "Failed"),
}  # fmt: skip

Kind = Literal["job", "pod", "node"]
Object = dict[str, Any]


class Moment(NamedTuple):
    """One object changed: `old` is None if it was made, `new` if it was deleted."""

    revision: int
    kind: Kind
    name: str
    old: Object | None
    new: Object | None


async def read(cluster: DevCluster, namespace: str) -> list[Moment]:
    """Everything up to now that happened to the jobs, Pods and nodes of a namespace."""
    socket = aiohttp.UnixConnector(str(cluster.folder / "client:0"))
    moments: list[Moment] = []
    async with aiohttp.ClientSession(connector=socket, read_bufsize=LAST_LINE) as session:
        async with session.post("http://etcd/v3/kv/range", json={"key": _b64("/registry/")}) as answer:
            until = int((await answer.json())["header"]["revision"])
        for folder, kind in FOLDERS.items():
            found = [one async for one in _events(session, f"{folder}{namespace}/", until)]
            moments += [Moment(revision, kind, name, old, new) for revision, name, old, new in found]
    return sorted(moments, key=lambda moment: moment.revision)


async def _events(
    session: aiohttp.ClientSession, folder: str, until: int
) -> AsyncIterator[tuple[int, str, Object | None, Object | None]]:
    """etcd tells nothing of having caught up; so a last key of our own is put there, and waited for."""
    last = f"{folder[:-1]}0"  # the first key after the folder
    async with session.post("http://etcd/v3/kv/put", json={"key": _b64(last), "value": ""}) as answer:
        answer.raise_for_status()
    wanted = {"key": _b64(folder), "range_end": _b64(last + "\0"), "start_revision": "1", "prev_kv": True}
    async with session.post("http://etcd/v3/watch", json={"create_request": wanted}) as stream:
        async for line in stream.content:
            for event in msgspec.json.decode(line)["result"].get("events", ()):
                key = base64.b64decode(event["kv"]["key"]).decode()
                if key == last:
                    return
                revision = int(event["kv"]["mod_revision"])
                if revision <= until:
                    yield revision, key.rpartition("/")[2], _value(event.get("prev_kv")), _value(event["kv"])
    raise AssertionError("etcd ended the watch")


def _value(kept: dict[str, str] | None) -> Object | None:
    if not kept or "value" not in kept:
        return None
    value: Object = msgspec.json.decode(base64.b64decode(kept["value"]))
    if value["kind"] == "VmafxJob":  # defaults are filled in when it is read
        value.setdefault("status", {}).setdefault("phase", "Pending")
    return value


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def broken_laws(history: Iterable[Moment]) -> list[str]:
    """Every breach, with the revision at which it happened; empty if all is well."""
    moments = list(history)
    laws = (phases, endings, attempts, failures, consent, capacity, pods, answers)
    return [f"revision {moment.revision}, {moment.name}: {text}" for law in laws for moment, text in law(moments)]


Breaches = Iterator[tuple[Moment, str]]


def phases(history: list[Moment]) -> Breaches:
    """A job begins as Pending, and its phase turns only as it may."""
    for moment, old, new in _turns(history):
        if old is None:
            if new["phase"] != "Pending":
                yield moment, f"begins as {new['phase']}"
        elif (old["phase"], new["phase"]) not in TURNS:
            yield moment, f"turns from {old['phase']} to {new['phase']}"


def endings(history: list[Moment]) -> Breaches:
    """What ended stays as it ended, with a time, and a score if and only if it succeeded."""
    for moment, old, new in _turns(history):
        if old is not None and old["phase"] in ENDED and old != new:
            yield moment, f"was {old['phase']} and changed: {old} to {new}"
        if new["phase"] in ENDED and "finishedAt" not in new:
            yield moment, "ended at no time"
        if ("score" in new) != (new["phase"] == "Succeeded"):
            yield moment, f"has score {new.get('score')} and is {new['phase']}"


def attempts(history: list[Moment]) -> Breaches:
    """Attempts count placements: one more with each, named after the job and the number, never twice."""
    for moment, old, new in _turns(history):
        before, now = (old or {}).get("attempts", 0), new.get("attempts", 0)
        placed = new["phase"] == "Running" and (old or {}).get("phase") == "Pending"
        if now != before + placed:
            yield moment, f"attempts went from {before} to {now}"
        wanted = f"{moment.new['metadata']['uid']}-{now - 1}" if new["phase"] == "Running" and moment.new else None
        if new["phase"] in {"Pending", "Running"} and new.get("controllerJobID") != wanted:
            yield moment, f"is {new['phase']} as {new.get('controllerJobID')}, and should be as {wanted}"


def failures(history: list[Moment]) -> Breaches:
    """A failure is counted when an attempt ends, one at a time, and one too many ends the job."""
    for moment, old, new in _turns(history):
        before, now = (old or {}).get("failures", 0), new.get("failures", 0)
        left = (old or {}).get("phase") == "Running" and new["phase"] != "Running"
        if not before <= now <= before + left:
            yield moment, f"failures went from {before} to {now}"
        limit = moment.new["spec"].get("retryLimit", 3) if moment.new else 0
        if (now > limit) != (reason(new) == "RetriesExhausted"):
            yield moment, f"failed {now} times of {limit + 1}, and its reason is {reason(new)}"


def consent(history: list[Moment]) -> Breaches:
    """Nobody places what was cancelled or suspended: every write says which version it was decided on."""
    for moment, old, new in _turns(history):
        if old is None or moment.old is None:
            continue
        spec = moment.old["spec"]
        if old["phase"] == "Pending" and new["phase"] == "Running" and (spec.get("cancel") or spec.get("suspend")):
            yield moment, "was placed although it was cancelled or suspended"


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
                node = on[moment.name] = status["assignedNode"]
                if (used := Counter(on.values())[node]) > slots[node]:
                    yield moment, f"makes {used} jobs on {node}, which has {slots[node]} slots"


def pods(history: list[Moment]) -> Breaches:
    """A Pod is made for an attempt that was placed before, and only for that."""
    placed: dict[str, int] = {}
    for moment in history:
        if moment.new is None:
            continue
        if moment.kind == "job":
            placed[moment.new["metadata"]["uid"]] = moment.new["status"].get("attempts", 0)
        elif moment.kind == "pod" and moment.old is None:
            uid, attempt = _attempt_of(moment.new)
            if attempt >= placed.get(uid, 0):
                yield moment, f"is for attempt {attempt} of a job that was placed {placed.get(uid, 0)} times"


def answers(history: list[Moment]) -> Breaches:
    """A job has the score that the Pod of its current attempt told, and told before."""
    told: dict[str, float] = {}
    for moment in history:
        if moment.kind == "pod" and moment.new is not None:
            if (score := _score_of(moment.new)) is not None:
                uid, attempt = _attempt_of(moment.new)
                told[f"{uid}-{attempt}"] = score
        elif moment.kind == "job" and moment.new is not None:
            status = moment.new["status"]
            if status["phase"] == "Succeeded" and told.get(status.get("controllerJobID")) != status.get("score"):
                yield moment, f"has score {status.get('score')}; its Pod told {told.get(status.get('controllerJobID'))}"


def reason(status: Object) -> str | None:
    """Why a job failed, if it did."""
    failed = [one for one in status.get("conditions", ()) if one["type"] == "Failed" and one["status"] == "True"]
    return failed[0]["reason"] if failed else None


def _turns(history: list[Moment]) -> Iterator[tuple[Moment, Object | None, Object]]:
    """Each version of each job, beside the one before; a namesake made later is another job."""
    for moment in history:
        if moment.kind == "job" and moment.new is not None:
            yield moment, moment.old["status"] if moment.old else None, moment.new["status"]


def _attempt_of(pod: Object) -> tuple[str, int]:
    metadata = pod["metadata"]
    return metadata["ownerReferences"][0]["uid"], int(metadata["labels"]["vmafx.dev/attempt"])


def _score_of(pod: Object) -> float | None:
    for container in pod.get("status", {}).get("containerStatuses", ()):
        ended = container["state"].get("terminated")
        if ended and ended.get("exitCode", 0) == 0:
            try:
                answer = msgspec.json.decode(ended.get("message", ""))
            except msgspec.DecodeError:
                return None
            return answer.get("score") if isinstance(answer, dict) else None
    return None
