"""The history of jobs, Pods, nodes or inference services, read from etcd; invariants.py checks it, and
serving_invariants.py that of services.

etcd keeps every version of every object until it is compacted. A watch from the first revision on returns all of them
in order, even if the API server was killed in between and its own watches missed some.
"""

import base64
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

import aiohttp
import msgspec

from vmafx.devcluster import DevCluster

# By default, the API server stores Pods as protobuf and compacts etcd.
KEEP_ALL = ("--storage-media-type=application/json", "--etcd-compaction-interval=0")
FOLDERS: dict[str, "Kind"] = {
    "/registry/pods/": "pod",
    "/registry/vmafx.dev/vmafxjobs/": "job",
    "/registry/vmafx.dev/vmafxnodes/": "node",
}
SERVING_FOLDERS: dict[str, "Kind"] = {
    "/registry/pods/": "pod",
    "/registry/deployments/": "deployment",
    "/registry/replicasets/": "replica set",
    "/registry/services/specs/": "service",
    "/registry/horizontalpodautoscalers/": "autoscaler",
    "/registry/vmafx.dev/zerfooinferenceservices/": "inference service",
}
END_KEY = "/registry0"  # sorts after all keys of the API server
MAX_LINE_BYTES = 1 << 26
ENDED = ("Succeeded", "Failed")

Kind = Literal["job", "pod", "node", "inference service", "deployment", "replica set", "service", "autoscaler"]
Object = dict[str, Any]


class Change(NamedTuple):
    """A change of one object: `old` is None for a creation, `new` for a deletion."""

    revision: int
    kind: Kind
    name: str
    old: Object | None
    new: Object | None


async def read(cluster: DevCluster, namespace: str, folders: Mapping[str, Kind] = FOLDERS) -> list[Change]:
    """All changes of the objects of a namespace until now."""
    socket = aiohttp.UnixConnector(str(cluster.folder / "client:0"))
    changes: list[Change] = []
    async with aiohttp.ClientSession(connector=socket, read_bufsize=MAX_LINE_BYTES) as session:
        async for event in _events(session):
            key = base64.b64decode(event["kv"]["key"]).decode()
            folder, _, name = key.rpartition("/")
            kind = folders.get(folder.removesuffix(namespace)) if folder.endswith(f"/{namespace}") else None
            if kind is not None:
                revision = int(event["kv"]["mod_revision"])
                changes.append(Change(revision, kind, name, _value(event.get("prev_kv")), _value(event["kv"])))
    return changes


async def _events(session: aiohttp.ClientSession) -> AsyncIterator[Object]:
    """All events until now: a watch does not report that it has caught up, so this writes END_KEY and stops there.

    END_KEY is outside of the API server's prefix, because a value that it cannot decode would break its watches.
    """
    async with session.post("http://etcd/v3/kv/put", json={"key": _b64(END_KEY), "value": _b64("x")}) as response:
        until = (await response.json())["header"]["revision"]
    request = {"key": _b64("/registry/"), "range_end": _b64(END_KEY + "\0"), "start_revision": "1", "prev_kv": True}
    async with session.post("http://etcd/v3/watch", json={"create_request": request}) as stream:
        async for line in stream.content:
            for event in msgspec.json.decode(line)["result"].get("events", ()):
                if event["kv"]["mod_revision"] == until:
                    return
                yield event
    raise AssertionError("etcd ended the watch")


def _value(stored: dict[str, str] | None) -> Object | None:
    if not stored or "value" not in stored:
        return None
    value: Object = msgspec.json.decode(base64.b64decode(stored["value"]))
    if value["kind"] == "VmafxJob":  # the API server fills in defaults when it reads
        value.setdefault("status", {}).setdefault("phase", "Pending")
    return value


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class JobUpdate(NamedTuple):
    """An update of a job: old and new status, and the spec of the version on which the update was decided."""

    change: Change
    uid: str
    spec: Object
    old: Object | None
    new: Object

    @property
    def leaves(self) -> bool:
        """Whether the update ends a running attempt."""
        return self.old is not None and self.old["phase"] == "Running" and self.new["phase"] != "Running"


def job_update(change: Change) -> JobUpdate | None:
    """The update of a job; None for other kinds and for deletions. A new job with the same name is another job."""
    if change.kind != "job" or change.new is None:
        return None
    old = change.old or change.new
    return JobUpdate(
        change,
        change.new["metadata"]["uid"],
        old["spec"],
        change.old["status"] if change.old else None,
        change.new["status"],
    )


def job_updates(history: list[Change]) -> Iterator[JobUpdate]:
    yield from filter(None, map(job_update, history))


def condition(status: Object, kind: str, value: str) -> str | None:
    """The reason of a condition, if it has that value."""
    found = (one for one in status.get("conditions", ()) if one["type"] == kind and one["status"] == value)
    return next((one.get("reason", "") for one in found), None)


def failed_as(status: Object) -> str | None:
    """Why a job failed, if it did."""
    return condition(status, "Failed", "True")


def with_agent(status: Object) -> bool:
    """Whether the running attempt was placed with an agent."""
    return condition(status, "Scheduled", "True") == "PlacedWithAgent"


def written_at(version: Object | None) -> datetime | None:
    """When a version was written, from its managedFields."""
    managers = (version or {}).get("metadata", {}).get("managedFields", ())
    return max((datetime.fromisoformat(one["time"]) for one in managers if "time" in one), default=None)
