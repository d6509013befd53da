"""The agents' VmafxNodes: registration, and heartbeats written to their status."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

import msgspec

from vmafx.api.hardware import Vendor
from vmafx.api.meta import ObjectMeta
from vmafx.api.node import AGENT_NAME, BY_AGENT, REGISTERED_BY, NodeView, VmafxNode, VmafxNodeSpec
from vmafx.clock import loop_time, utc_now
from vmafx.controller.caches import ControllerCaches
from vmafx.controller.errors import invalid, no_namespace
from vmafx.controller.sessions import Session, Sessions
from vmafx.http.errors import CallRefused
from vmafx.kube import NODES, Client, ObjectKey
from vmafx.kube.errors import AlreadyExists, BadRequest, Conflict, Invalid, KubeError, NotFound
from vmafx.text import one_line

NODE_VIEW = NODES.seen_as(NodeView)
HEARTBEAT_WRITE_INTERVAL = 20.0  # seconds between two writes of a node's heartbeat, at least
HEARTBEAT_TIMEOUT = 8.0  # seconds for all that a heartbeat needs of the API server; its agent waits for 10
TROUBLE_TTL = 30.0  # seconds after a write that failed; agents that are there bring the next one sooner
MAX_TRIES = 5
MAX_CAPACITY, MAX_LABELS = 1024, 64
SessionState = Literal["speaks", "superseded", "unknown"]


class AgentDescription(msgspec.Struct, frozen=True):
    """What an agent says of where it runs."""

    vendor: str = "cpu"
    capacity: int = 1
    device: str = ""
    fps: float = 0.0
    labels: Mapping[str, str] = {}


class AgentRegistry:
    """The one writer of what agents say of themselves."""

    def __init__(
        self, client: Client, caches: ControllerCaches, sessions: Sessions, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._client, self._caches, self._sessions, self._now = client, caches, sessions, now
        self._trouble: tuple[str, float] | None = None  # with a write of a heartbeat, and when
        self._beaten: dict[str, float] = {}  # sessions, and when we last wrote that they live
        caches.nodes.on_change(lambda change: self._forget(change.old, change.new))

    def _forget(self, old: NodeView | None, new: NodeView | None) -> None:
        before = old.status.agentSession if old else None
        if before and (new is None or new.status.agentSession != before):
            self._beaten.pop(before, None)

    async def register(self, node: ObjectKey, machine: AgentDescription) -> tuple[Session, int]:
        """From now on this agent speaks for the node, and no other; with how many jobs the node takes at once."""
        _check(node, machine)
        session = self._sessions.begin(node)
        for _ in range(MAX_TRIES):
            there = await self._make(node, machine)
            status: dict[str, Any] = {"agentSession": session.id, "lastHeartbeat": self._now(), "draining": None}
            if machine.device:
                status["detectedDevice"] = one_line(machine.device)
            if machine.fps > 0:
                status["throughput"] = round(machine.fps, 2)
            try:
                # Guarded: a registration that comes late, since its call was given up, must not undo the next one.
                await self._client.patch_status(NODE_VIEW, node, status, there.metadata.resourceVersion)
            except (Conflict, NotFound):
                continue
            self._beaten[session.id] = loop_time()
            return session, there.spec.capacity
        raise CallRefused("ABORTED", f"the VmafxNode {node} is being written by others; register again")

    async def _make(self, node: ObjectKey, machine: AgentDescription) -> NodeView:
        """Its VmafxNode, made if there is none; one that is there stays as people made it."""
        there = await self._live(node)
        if there is None:
            spec = VmafxNodeSpec(gpuVendor=_vendor(machine), capacity=machine.capacity, runtime="Agent")
            labels = {**machine.labels, REGISTERED_BY: BY_AGENT}
            made = VmafxNode(metadata=ObjectMeta(name=node.name, labels=labels), spec=spec)
            try:
                await self._client.create(NODES, made, node.namespace)
            except AlreadyExists:
                pass
            except (Invalid, BadRequest) as error:
                raise invalid(error) from error
            except NotFound as error:
                raise no_namespace(node.namespace) from error
            there = await self._client.get(NODE_VIEW, node)
        _fit(there, node, machine)
        return there

    async def _live(self, node: ObjectKey) -> NodeView | None:
        try:
            return await self._client.get(NODE_VIEW, node)
        except NotFound:
            return None

    async def standing(self, session: Session) -> SessionState:
        """Whether it is this agent that speaks for its node: the last one to register does."""
        node = self._caches.nodes.store.get(session.node)
        if node is None or node.status.agentSession != session.id:
            node = await self._live(session.node)  # it may have registered with another replica, a moment ago
        if node is None or node.status.agentSession is None:
            return "unknown"
        return "speaks" if node.status.agentSession == session.id else "superseded"

    def capacity(self, node: ObjectKey) -> int:
        """How many jobs it is given at once; 0 if that is not known."""
        known = self._caches.nodes.store.get(node)
        return known.spec.capacity if known is not None else 0

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """For all of a heartbeat: that the API server says nothing must not pass for the silence of an agent."""
        try:
            async with asyncio.timeout(HEARTBEAT_TIMEOUT):
                yield
        except TimeoutError as error:
            why = f"the Kubernetes API gave no answer within {HEARTBEAT_TIMEOUT:.0f} s"
            self._trouble = why, loop_time()
            raise CallRefused("UNAVAILABLE", why) from error

    async def beat(self, session: Session, *, draining: bool) -> None:
        """It lives. All replicas together write that every WRITE_EVERY seconds at most, each looking at the others'."""
        now, node = self._now(), self._caches.nodes.store.get(session.node)
        if node is not None and draining == node.status.draining and self._is_recent(session, node, now):
            return
        self._beaten[session.id] = loop_time()
        try:
            await self._client.patch_status(
                NODE_VIEW, session.node, {"lastHeartbeat": now, "draining": draining or None}
            )
        except BaseException as error:
            self._beaten.pop(session.id, None)
            if isinstance(error, KubeError) and not isinstance(error, NotFound):
                self._trouble = str(error), loop_time()
            raise
        self._trouble = None

    def _is_recent(self, session: Session, node: NodeView, now: datetime) -> bool:
        written, mine = node.status.lastHeartbeat, self._beaten.get(session.id)
        if written is not None and timedelta(0) <= now - written < timedelta(seconds=HEARTBEAT_WRITE_INTERVAL):
            return True
        return mine is not None and loop_time() - mine < HEARTBEAT_WRITE_INTERVAL

    def trouble(self) -> str | None:
        """Why heartbeats are not written at present: then silence is not the agents', and nobody may take it so."""
        if self._trouble is None or loop_time() - self._trouble[1] > TROUBLE_TTL:
            return None
        return f"heartbeats cannot be written: {self._trouble[0]}"


def _check(node: ObjectKey, machine: AgentDescription) -> None:
    if not AGENT_NAME.fullmatch(node.name):
        raise CallRefused(
            "INVALID_ARGUMENT",
            f"name {node.name[:100]!r} is not a valid node name: use 1 to 63 lower-case letters, digits and '-'",
        )
    if machine.vendor not in get_args(Vendor):
        raise CallRefused(
            "INVALID_ARGUMENT",
            f"capability.gpu_vendor {machine.vendor[:100]!r} is unknown; use one of {', '.join(get_args(Vendor))}",
        )
    if not 1 <= machine.capacity <= MAX_CAPACITY:
        raise CallRefused(
            "INVALID_ARGUMENT", f"capability.concurrency is {machine.capacity}; it must be 1 to {MAX_CAPACITY}"
        )
    if len(machine.labels) > MAX_LABELS:
        raise CallRefused(
            "INVALID_ARGUMENT", f"there are {len(machine.labels)} labels; at most {MAX_LABELS} are accepted"
        )
    if not 0 <= machine.fps < 1e9:
        raise CallRefused(
            "INVALID_ARGUMENT", f"fps is {machine.fps}; it must be 0 (not measured) or positive, and below 1e9"
        )


def _fit(there: NodeView, node: ObjectKey, machine: AgentDescription) -> None:
    if there.spec.runtime != "Agent":
        raise CallRefused(
            "FAILED_PRECONDITION", f"the VmafxNode {node} runs its jobs as Pods (spec.runtime); take another name"
        )
    if there.spec.gpuVendor != machine.vendor:
        raise CallRefused(
            "FAILED_PRECONDITION",
            f"the VmafxNode {node} is for {there.spec.gpuVendor} (spec.gpuVendor), and this machine has "
            f"{machine.vendor}; take another name, or delete the VmafxNode",
        )


def _vendor(machine: AgentDescription) -> Vendor:
    vendor: Vendor = msgspec.convert(machine.vendor, Vendor)
    return vendor
