"""The kopf anchor: what the benchmarks ask of an operator, on kopf and as lean as kopf gets.

Writes the health of every VmafxNode and runs every VmafxJob as a Pod. Raw event handlers, so that kopf keeps no
state on the objects; no posted events, no peering; Pods by label; one bounded pool of connections, since kopf's own has
no limit.
"""

import asyncio
import json
import logging
import os
from collections import Counter
from datetime import UTC, datetime
from typing import Any, NamedTuple

import aiohttp
import kopf
import uvloop
from aiohttp import web

JOBS, NODES, PODS = ("vmafx.dev", "v1", "vmafxjobs"), ("vmafx.dev", "v1", "vmafxnodes"), ("", "v1", "pods")
CONTROLLER = os.environ["VMAFX_CONTROLLER_HTTP_ADDR"]
JOB_LABEL, NODE_LABEL = "vmafx.dev/job", "vmafx.dev/node"
VENDORS = {"cpu": "cpu", "cuda": "nvidia", "hip": "amd", "sycl": "intel"}
DEVICES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "gpu.intel.com/i915"}
FINISHED = ("Succeeded", "Failed")
MERGE = {"Content-Type": "application/merge-patch+json"}

Name = tuple[str, str]  # namespace and name


class Place(NamedTuple):
    """A healthy node."""

    vendor: str
    capacity: int
    image: str


class State:
    """What this operator knows."""

    session: aiohttp.ClientSession
    server: str
    counting: "asyncio.Task[None]"
    expected: int | None = None
    answers: "asyncio.Task[bool] | None" = None

    def __init__(self) -> None:
        self.phases: dict[Name, str] = {}
        self.places: dict[Name, Place] = {}
        self.waiting: dict[Name, dict[str, Any]] = {}  # jobs that found no place
        self.node_of: dict[Name, Name] = {}  # also of jobs placed a moment ago
        self.used: Counter[Name] = Counter()
        self.running: dict[Name, asyncio.Event] = {}  # set once "Running" is written: no result may overtake it


state = State()


@kopf.on.login()
async def login(**arguments: Any) -> kopf.AiohttpSession:
    info = kopf.login_with_kubeconfig(**arguments)
    connector = aiohttp.TCPConnector(limit=64, ssl=info.as_ssl_context(), keepalive_timeout=60)
    state.session = aiohttp.ClientSession(connector=connector, headers=info.as_http_headers())
    state.server = info.server
    state.counting = asyncio.create_task(count_jobs())
    return kopf.AiohttpSession(
        aiohttp_session=state.session, server=info.server, default_namespace=info.default_namespace
    )


async def count_jobs() -> None:
    """How many there are: kopf does not tell when its first list is worked off, so readiness counts."""
    async with state.session.get(f"{state.server}/apis/vmafx.dev/v1/vmafxjobs?limit=1") as answer:
        page = await answer.json()
    state.expected = len(page["items"]) + page["metadata"].get("remainingItemCount", 0)


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.watching.label_selectors[PODS] = JOB_LABEL
    app = web.Application()
    app.router.add_get("/readyz", readyz)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    host, _, port = os.environ["PROBE_ADDR"].rpartition(":")
    await web.TCPSite(runner, host, int(port)).start()


async def readyz(_request: web.Request) -> web.Response:
    ready = state.expected is not None and len(state.phases) >= state.expected
    return web.Response(status=200 if ready else 503)


@kopf.on.event(*NODES)
async def node(event: dict[str, Any], body: dict[str, Any], **_: Any) -> None:
    meta, spec = body["metadata"], body["spec"]
    name = meta["namespace"], meta["name"]
    known = body.get("status", {}).get("healthy", False)
    if known and event["type"] != "DELETED":
        state.places[name] = Place(spec["gpuVendor"], spec.get("capacity", 1), spec.get("image", ""))
        await asyncio.gather(*(start(job, state.waiting[job]) for job in tuple(state.waiting)))
    else:
        state.places.pop(name, None)
    if event["type"] == "DELETED":
        return
    if state.answers is None:  # one probe for all nodes
        state.answers = asyncio.create_task(probe())
    healthy = await state.answers
    if known != healthy:
        await patch_status("vmafxnodes", name, {"healthy": healthy})


async def probe() -> bool:
    async with aiohttp.ClientSession() as session, session.get(f"{CONTROLLER}/healthz") as answer:
        return 200 <= answer.status < 300


@kopf.on.event(*JOBS)
async def job(event: dict[str, Any], body: dict[str, Any], **_: Any) -> None:
    meta, status = body["metadata"], body.get("status", {})
    name, phase = (meta["namespace"], meta["name"]), status.get("phase", "Pending")
    if event["type"] == "DELETED":
        state.phases.pop(name, None)
        release(name)
        return
    state.phases[name] = phase
    if phase in FINISHED:
        release(name)
    elif phase == "Running":
        hold(name, (name[0], status["assignedNode"]))
        state.running.setdefault(name, asyncio.Event()).set()
    elif name not in state.node_of and name not in state.waiting:
        await start(name, {"uid": meta["uid"], "spec": dict(body["spec"])})


def hold(job: Name, node: Name) -> None:
    if state.node_of.get(job) != node:
        release(job)
        state.node_of[job] = node
        state.used[node] += 1


def release(job: Name) -> None:
    state.waiting.pop(job, None)
    state.running.pop(job, None)
    node = state.node_of.pop(job, None)
    if node is not None:
        state.used[node] -= 1


def choose(namespace: str, vendor: str) -> Name | None:
    """The emptiest healthy node of the vendor."""
    free = {
        node: place.capacity - state.used[node]
        for node, place in state.places.items()
        if node[0] == namespace and place.vendor == vendor
    }
    best = max(free, key=free.__getitem__, default=None)
    return best if best is not None and free[best] > 0 else None


async def start(name: Name, known: dict[str, Any]) -> None:
    """Take a place, make the Pod and say that it runs; or wait for a place."""
    vendor = VENDORS[known["spec"].get("backend", "cpu")]
    node = choose(name[0], vendor)
    if node is None:
        state.waiting[name] = known
        return
    state.waiting.pop(name, None)
    hold(name, node)
    written = state.running[name] = asyncio.Event()
    async with state.session.post(
        f"{state.server}/api/v1/namespaces/{name[0]}/pods", json=worker_pod(name, known, node)
    ) as answer:
        await answer.read()
        if answer.status != 409:
            answer.raise_for_status()
    await patch_status("vmafxjobs", name, {"phase": "Running", "assignedNode": node[1], "startedAt": now()})
    written.set()


def worker_pod(name: Name, known: dict[str, Any], node: Name) -> dict[str, Any]:
    place, spec = state.places[node], known["spec"]
    resources: dict[str, Any] = {"requests": {"cpu": "1", "memory": "512Mi"}}
    if device := DEVICES.get(place.vendor):
        resources["limits"] = {device: "1"}
    owner = {"apiVersion": "vmafx.dev/v1", "kind": "VmafxJob", "name": name[1], "uid": known["uid"]}
    told = {name: spec.get(name, "") for name in ("reference", "distorted", "model", "backend")}
    container = {
        "name": "worker",
        "image": place.image,
        "env": [{"name": f"VMAFX_{key.upper()}", "value": value} for key, value in told.items()],
        "resources": resources,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name[1]}-0",
            "labels": {JOB_LABEL: name[1], NODE_LABEL: node[1]},
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]},
    }


@kopf.on.event(*PODS, field="status.phase", value="Succeeded")
async def pod_ended(event: dict[str, Any], body: dict[str, Any], **_: Any) -> None:
    name = body["metadata"]["namespace"], body["metadata"]["labels"][JOB_LABEL]
    if event["type"] == "DELETED" or state.phases.get(name) in FINISHED:
        return
    await state.running.setdefault(name, asyncio.Event()).wait()
    message = body["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    result = {"phase": "Succeeded", "score": json.loads(message)["score"], "finishedAt": now()}
    await patch_status("vmafxjobs", name, result)


async def patch_status(plural: str, name: Name, status: dict[str, Any]) -> None:
    url = f"{state.server}/apis/vmafx.dev/v1/namespaces/{name[0]}/{plural}/{name[1]}/status"
    async with state.session.patch(url, data=json.dumps({"status": status}), headers=MERGE) as answer:
        await answer.read()
        answer.raise_for_status()


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(kopf.operator(clusterwide=True))
