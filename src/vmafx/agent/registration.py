"""Keeps the agent registered: registers it again whenever the controller rejects its session."""

import asyncio

from vmafx.agent.controller_link import (
    AgentSession,
    ControllerError,
    ControllerLink,
    ControllerRefused,
    InvalidRequest,
    SessionRejected,
    TokenUnavailable,
)
from vmafx.backoff import Backoff, Retries
from vmafx.clock import loop_time
from vmafx.logs import log
from vmafx.wire import controller_pb2 as wire

BACKOFF = Backoff(0.5, 52.0, spread=0.25)  # registers within a minute of the controller's return
ADVICE = {
    ControllerRefused: "correct the VmafxNode or the permissions of the agent, or use another --name",
    SessionRejected: "give the agent a valid token with --token-file",
}
STABLE_AFTER = 30.0  # seconds after which a session resets the backoff


class Registration:
    """Owns the session of the agent."""

    def __init__(self, link: ControllerLink, request: wire.RegisterNodeRequest) -> None:
        self._link, self._request = link, request
        self._session: AgentSession | None = None
        self._changed = asyncio.Event()

    async def session(self) -> AgentSession:
        """The session, once there is one."""
        while self._session is None:
            await self._changed.wait()
        return self._session

    def is_registered(self) -> bool:
        return self._session is not None

    def lose(self, session: AgentSession, why: object) -> None:
        """Give up a session that was rejected, unless it has been replaced since."""
        if session == self._session:
            log.warn("session rejected; registering again", error=str(why))
            self._session = None
            self._notify()

    async def run(self) -> None:
        """Run until cancelled. Raises InvalidRequest, after which no retry would succeed."""
        retries = Retries(BACKOFF)
        while True:
            if await self._register():
                since = loop_time()
                while self._session is not None:
                    await self._changed.wait()
                if loop_time() - since > STABLE_AFTER:
                    retries.reset()
                    continue
            await asyncio.sleep(retries.next())

    async def _register(self) -> bool:
        try:
            self._session = await self._link.register(self._request)
        except InvalidRequest:
            raise
        except (ControllerRefused, SessionRejected) as error:
            log.error(
                "registration refused; retrying",
                name=self._request.name, error=str(error), advice=ADVICE[type(error)],
            )  # fmt: skip
            return False
        except TokenUnavailable as error:
            log.error("no token to register with; retrying", error=str(error))
            return False
        except ControllerError as error:
            log.warn("controller unreachable; retrying", error=str(error))
            return False
        log.info("registered", node=self._session.node)
        self._notify()
        return True

    def _notify(self) -> None:
        """Wake all waiters; later ones wait for the next change."""
        self._changed.set()
        self._changed = asyncio.Event()
