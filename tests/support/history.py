"""All that ever happened in a cluster, read from etcd's own log. What it may not contain stands in laws.py.

etcd keeps every version of every object until it is told to forget. Read from the first revision on, in the order in
which it happened, its watch is the whole story, whoever was killed on the way: the API server may have told less.
"""

import base64
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
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
LAST = "/registry0"  # the first key after all of the API server's
LAST_LINE = 1 << 26  # bytes
ENDED = ("Succeeded", "Failed")

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
        async for event in _events(session):
            key = base64.b64decode(event["kv"]["key"]).decode()
            folder, _, name = key.rpartition("/")
            kind = FOLDERS.get(folder.removesuffix(namespace)) if folder.endswith(f"/{namespace}") else None
            if kind is not None:
                revision = int(event["kv"]["mod_revision"])
                moments.append(Moment(revision, kind, name, _value(event.get("prev_kv")), _value(event["kv"])))
    return moments


async def _events(session: aiohttp.ClientSession) -> AsyncIterator[Object]:
    """etcd tells nothing of having caught up; so a last key of our own is put there, and waited for.

    It is where the API server does not look: of a thing that it cannot read, it would tell nobody any more.
    """
    async with session.post("http://etcd/v3/kv/put", json={"key": _b64(LAST), "value": _b64("x")}) as answer:
        until = (await answer.json())["header"]["revision"]
    wanted = {"key": _b64("/registry/"), "range_end": _b64(LAST + "\0"), "start_revision": "1", "prev_kv": True}
    async with session.post("http://etcd/v3/watch", json={"create_request": wanted}) as stream:
        async for line in stream.content:
            for event in msgspec.json.decode(line)["result"].get("events", ()):
                if event["kv"]["mod_revision"] == until:
                    return
                yield event
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


class Turn(NamedTuple):
    """A version of a job beside the one before, of which the spec counts: each write is decided on a version."""

    moment: Moment
    uid: str
    spec: Object
    old: Object | None
    new: Object

    @property
    def leaves(self) -> bool:
        """An attempt that ran is over."""
        return self.old is not None and self.old["phase"] == "Running" and self.new["phase"] != "Running"


def turn_of(moment: Moment) -> Turn | None:
    """What a moment is for a job; None if it is none's, or its deletion. A namesake made later is another job."""
    if moment.kind != "job" or moment.new is None:
        return None
    old = moment.old or moment.new
    return Turn(
        moment,
        moment.new["metadata"]["uid"],
        old["spec"],
        moment.old["status"] if moment.old else None,
        moment.new["status"],
    )


def turns(history: list[Moment]) -> Iterator[Turn]:
    yield from filter(None, map(turn_of, history))


def condition(status: Object, kind: str, value: str) -> str | None:
    """The reason of a condition, if it has that value."""
    found = (one for one in status.get("conditions", ()) if one["type"] == kind and one["status"] == value)
    return next((one.get("reason", "") for one in found), None)


def failed_as(status: Object) -> str | None:
    """Why a job failed, if it did."""
    return condition(status, "Failed", "True")


def with_agent(status: Object) -> bool:
    """Whether the attempt that runs was given to an agent."""
    return condition(status, "Scheduled", "True") == "PlacedWithAgent"


def written_at(version: Object | None) -> datetime | None:
    """When a version was written, by its newest manager."""
    managers = (version or {}).get("metadata", {}).get("managedFields", ())
    return max((datetime.fromisoformat(one["time"]) for one in managers if "time" in one), default=None)
