"""The kopf anchor: what bench/sync.py asks of an operator, on kopf and as lean as kopf gets.

Keeps the phase of every VmafxJob and writes the health of every VmafxNode. Raw event handlers, so that kopf keeps no
state on the objects; no posted events, no peering; one bounded pool of connections, since kopf's own has no limit.
"""

import asyncio
import logging
import os
from typing import Any

import aiohttp
import kopf
import uvloop
from aiohttp import web

JOBS, NODES = ("vmafx.dev", "v1", "vmafxjobs"), ("vmafx.dev", "v1", "vmafxnodes")
CONTROLLER = os.environ["VMAFX_CONTROLLER_HTTP_ADDR"]


class State:
    """What this operator knows."""

    session: aiohttp.ClientSession
    server: str
    phases: dict[str, str]
    counting: "asyncio.Task[None]"
    expected: int | None = None
    answers: "asyncio.Task[bool] | None" = None


state = State()
state.phases = {}


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
    app = web.Application()
    app.router.add_get("/readyz", readyz)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    host, _, port = os.environ["PROBE_ADDR"].rpartition(":")
    await web.TCPSite(runner, host, int(port)).start()


async def readyz(_request: web.Request) -> web.Response:
    ready = state.expected is not None and len(state.phases) >= state.expected
    return web.Response(status=200 if ready else 503)


@kopf.on.event(*JOBS)
async def job(event: dict[str, Any], body: dict[str, Any], **_: Any) -> None:
    uid = body["metadata"]["uid"]
    if event["type"] == "DELETED":
        state.phases.pop(uid, None)
    else:
        state.phases[uid] = body.get("status", {}).get("phase", "Pending")


@kopf.on.event(*NODES)
async def node(event: dict[str, Any], body: dict[str, Any], **_: Any) -> None:
    if event["type"] == "DELETED":
        return
    if state.answers is None:  # one probe for all nodes
        state.answers = asyncio.create_task(probe())
    healthy = await state.answers
    if body.get("status", {}).get("healthy") != healthy:
        meta = body["metadata"]
        url = f"{state.server}/apis/vmafx.dev/v1/namespaces/{meta['namespace']}/vmafxnodes/{meta['name']}/status"
        headers = {"Content-Type": "application/merge-patch+json"}
        async with state.session.patch(url, json={"status": {"healthy": healthy}}, headers=headers) as answer:
            answer.raise_for_status()


async def probe() -> bool:
    async with aiohttp.ClientSession() as session, session.get(f"{CONTROLLER}/healthz") as answer:
        return 200 <= answer.status < 300


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(kopf.operator(clusterwide=True))
