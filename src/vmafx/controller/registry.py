"""The VmafxNodes of agents: registration, sessions, and heartbeats written to their status."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from vmafx.api.hardware import Vendor
from vmafx.api.meta import ObjectMeta
from vmafx.api.node import AGENT_NAME, BY_AGENT, REGISTERED_BY, NodeView, VmafxNode, VmafxNodeSpec
from vmafx.auth.cache import ExpiringCache
from vmafx.clock import loop_time, utc_now
from vmafx.controller.caches import ControllerCaches
from vmafx.controller.errors import invalid_object, namespace_not_found
from vmafx.controller.sessions import Session, Sessions
from vmafx.http.errors import Overload, StatusError
from vmafx.kube import NODES, Client, ObjectKey
from vmafx.kube.errors import AlreadyExists, BadRequest, Conflict, Invalid, KubeError, NotFound
from vmafx.text import one_line

NODE_VIEW = NODES.decoded_as(NodeView)
HEARTBEAT_WRITE_INTERVAL = 20.0  # seconds, at least, between two writes of a node's heartbeat
MAX_WRITTEN = 100_000  # sessions whose last write of a heartbeat is remembered
HEARTBEAT_TIMEOUT = 8.0  # seconds for all requests of a heartbeat to the API server; the agent's timeout is 10
OWN_FAULTS = {"UNAVAILABLE", "INTERNAL"}  # codes of refusals that are not the agent's fault
PROBLEM_TTL = 30.0  # seconds that a failed write is reported; connected agents cause the next write sooner
MAX_TRIES = 5
MAX_LABELS = 64
SessionState = Literal["current", "superseded", "unknown"]


class AgentDescription(msgspec.Struct, frozen=True):
    """The machine of an agent, as it registers."""

    vendor: str = "cpu"
    capacity: int = 1
    device: str = ""
    fps: float = 0.0
    labels: Mapping[str, str] = {}


class Registered(NamedTuple):
    session: Session
    capacity: int  # of the node
    message: str = ""  # for the agent's log


class AgentRegistry:
    """The only writer of the agents' part of a node's status. `max_capacity` limits nodes that agents create."""

    def __init__(
        self,
        client: Client,
        caches: ControllerCaches,
        sessions: Sessions,
        max_capacity: int,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client, self._caches, self._sessions, self._now = client, caches, sessions, now
        self._max_capacity = max_capacity
        # By session: why its last heartbeat failed, and when; the oldest first.
        self._problems: dict[str, tuple[str, float]] = {}
        # By session: this replica has written a heartbeat within HEARTBEAT_WRITE_INTERVAL.
        self._written: ExpiringCache[str, bool] = ExpiringCache(MAX_WRITTEN, loop_time)

    async def register(
        self, name: ObjectKey, machine: AgentDescription, authorize_creation: Callable[[], Awaitable[None]]
    ) -> Registered:
        """Start a session, which supersedes the node's previous one.

        `authorize_creation` is called before a node is created: the labels and the capacity of a node decide which jobs
        it gets, and their clips may be secret. An existing node is used as it is.
        """
        _validate(name, machine)
        session = self._sessions.start(name)
        for _ in range(MAX_TRIES):
            node = await self._get(name) or await self._create(name, machine, authorize_creation)
            _check_spec(node, name, machine)
            status: dict[str, Any] = {"agentSession": session.id, "lastHeartbeat": self._now(), "draining": None}
            if machine.device:
                status["detectedDevice"] = one_line(machine.device)
            if machine.fps > 0:
                status["throughput"] = round(machine.fps, 2)
            try:
                # With the version: a delayed registration must not replace a later one.
                await self._client.patch_status(NODE_VIEW, name, status, node.metadata.resourceVersion)
            except (Conflict, NotFound):
                continue
            self._written.put(session.id, True, loop_time() + HEARTBEAT_WRITE_INTERVAL)
            return Registered(session, node.spec.capacity, self._limit_message(machine, node))
        raise StatusError("ABORTED", f"the VmafxNode {name} is being changed by others; register again")

    async def _create(
        self, name: ObjectKey, machine: AgentDescription, authorize_creation: Callable[[], Awaitable[None]]
    ) -> NodeView:
        await authorize_creation()
        spec = VmafxNodeSpec(
            gpuVendor=msgspec.convert(machine.vendor, Vendor),
            capacity=min(machine.capacity, self._max_capacity),
            runtime="Agent",
        )
        labels = {**machine.labels, REGISTERED_BY: BY_AGENT}
        new = VmafxNode(metadata=ObjectMeta(name=name.name, labels=labels), spec=spec)
        try:
            await self._client.create(NODES, new, name.namespace)
        except AlreadyExists:
            pass
        except (Invalid, BadRequest) as error:
            raise invalid_object(error) from error
        except NotFound as error:
            raise namespace_not_found(name.namespace) from error
        return await self._client.get(NODE_VIEW, name)

    def _limit_message(self, machine: AgentDescription, node: NodeView) -> str:
        """For an agent that asked for more than it may; not if an administrator chose the capacity of the node."""
        if machine.capacity <= self._max_capacity or node.spec.capacity != self._max_capacity:
            return ""
        return (
            f"capability.concurrency is {machine.capacity}, and the controller limits it to {self._max_capacity}; "
            "an administrator can raise spec.capacity of the VmafxNode, or --max-agent-capacity of the controller"
        )

    async def _get(self, name: ObjectKey) -> NodeView | None:
        try:
            return await self._client.get(NODE_VIEW, name)
        except NotFound:
            return None

    async def session_state(self, session: Session) -> SessionState:
        """The latest registration of a node is its current session."""
        node = self._caches.nodes.store.get(session.node)
        if node is None or node.status.agentSession != session.id:
            node = await self._get(session.node)  # it may have just registered with another replica
        if node is None or node.status.agentSession is None:
            return "unknown"
        return "current" if node.status.agentSession == session.id else "superseded"

    def verified_session(self, node_id: str, token: str) -> Session | None:
        """The session of a token that was signed for this node; it may have been superseded since."""
        session = self._sessions.verify(token)
        return session if session is not None and str(session.node) == node_id else None

    def is_current(self, session: Session) -> bool:
        """Whether the cache has this session as that of its node."""
        node = self._caches.nodes.store.get(session.node)
        return node is not None and node.status.agentSession == session.id

    def _is_superseded(self, session: Session) -> bool:
        """Whether the cache has a later session of the node; without one, the cache may be stale.

        A registration writes a heartbeat, so a session that was started after the last heartbeat is the later one.
        """
        node = self._caches.nodes.store.get(session.node)
        if node is None or node.status.agentSession in {None, session.id}:
            return False
        heartbeat = node.status.lastHeartbeat
        return heartbeat is None or session.started <= heartbeat.timestamp()

    def capacity(self, name: ObjectKey) -> int:
        """The node's capacity; 0 if the cache does not have the node."""
        node = self._caches.nodes.store.get(name)
        return node.spec.capacity if node is not None else 0

    @asynccontextmanager
    async def heartbeat(self, session: Session | None) -> AsyncIterator[None]:
        """Around a whole heartbeat, limits included.

        If it fails for reasons of the cluster or because of other callers, /healthz fails: the agent is not silent.
        Only a session of this cluster that has not been superseded counts: others, even with an old token, must not
        make the controller unhealthy.
        """
        try:
            async with asyncio.timeout(HEARTBEAT_TIMEOUT):
                yield
        except TimeoutError as error:
            message = f"the Kubernetes API did not answer within {HEARTBEAT_TIMEOUT:.0f} s"
            self._note_problem(session, message)
            raise StatusError("UNAVAILABLE", message) from error
        except StatusError as error:
            if error.code in OWN_FAULTS or isinstance(error, Overload):
                self._note_problem(session, error.message)
            raise
        except KubeError as error:
            if not isinstance(error, NotFound):
                self._note_problem(session, str(error))
            raise
        except Exception:
            self._note_problem(session, "an unexpected error; the controller's log has the details")
            raise
        if session is not None:
            self._problems.pop(session.id, None)

    def _note_problem(self, session: Session | None, message: str) -> None:
        if session is not None and not self._is_superseded(session):
            self._problems.pop(session.id, None)  # so that the oldest problem is the first
            self._problems[session.id] = message, loop_time()
            self._forget_old_problems()

    def _forget_old_problems(self) -> None:
        expired = loop_time() - PROBLEM_TTL
        while self._problems:
            session, (_, noted) = next(iter(self._problems.items()))
            if noted > expired:
                return
            del self._problems[session]

    async def record_heartbeat(self, session: Session, *, draining: bool) -> None:
        """Write the heartbeat, unless this or another replica wrote one within HEARTBEAT_WRITE_INTERVAL."""
        now, node = self._now(), self._caches.nodes.store.get(session.node)
        if node is not None and draining == node.status.draining and self._is_recent(session, node, now):
            return
        self._written.put(session.id, True, loop_time() + HEARTBEAT_WRITE_INTERVAL)
        try:
            await self._client.patch_status(
                NODE_VIEW, session.node, {"lastHeartbeat": now, "draining": draining or None}
            )
        except BaseException:
            self._written.put(session.id, True, until=0.0)
            raise

    def _is_recent(self, session: Session, node: NodeView, now: datetime) -> bool:
        in_cache = node.status.lastHeartbeat
        if in_cache is not None and timedelta(0) <= now - in_cache < timedelta(seconds=HEARTBEAT_WRITE_INTERVAL):
            return True
        return self._written.get(session.id) is not None

    def heartbeat_problem(self) -> str | None:
        """Why heartbeats fail; the operator then does not take old ones for dead agents."""
        self._forget_old_problems()
        message = next((message for message, _ in self._problems.values()), None)
        return message and f"heartbeats cannot be written: {message}"


def _validate(name: ObjectKey, machine: AgentDescription) -> None:
    if not AGENT_NAME.fullmatch(name.name):
        raise StatusError(
            "INVALID_ARGUMENT",
            f"name {name.name[:100]!r} is not a valid node name: use 1 to 63 lower-case letters, digits and '-'",
        )
    if machine.vendor not in get_args(Vendor):
        raise StatusError(
            "INVALID_ARGUMENT",
            f"capability.gpu_vendor {machine.vendor[:100]!r} is unknown; use one of {', '.join(get_args(Vendor))}",
        )
    if machine.capacity < 1:
        raise StatusError("INVALID_ARGUMENT", f"capability.concurrency is {machine.capacity}; it must be at least 1")
    if len(machine.labels) > MAX_LABELS:
        raise StatusError(
            "INVALID_ARGUMENT", f"there are {len(machine.labels)} labels; at most {MAX_LABELS} are accepted"
        )
    if not 0 <= machine.fps < 1e9:
        raise StatusError(
            "INVALID_ARGUMENT", f"fps is {machine.fps}; it must be 0 (not measured) or positive, and below 1e9"
        )


def _check_spec(node: NodeView, name: ObjectKey, machine: AgentDescription) -> None:
    if node.spec.runtime != "Agent":
        raise StatusError(
            "FAILED_PRECONDITION", f"the VmafxNode {name} runs its jobs as Pods (spec.runtime); use another name"
        )
    if node.spec.gpuVendor != machine.vendor:
        raise StatusError(
            "FAILED_PRECONDITION",
            f"the VmafxNode {name} is for {node.spec.gpuVendor} (spec.gpuVendor), and this machine has "
            f"{machine.vendor}; use another name, or delete the VmafxNode",
        )
