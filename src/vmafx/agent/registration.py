"""Keeps the agent registered: registers it again whenever the controller no longer knows its session."""

import asyncio

from vmafx.agent.controller_link import (
    AgentSession,
    ControllerError,
    ControllerLink,
    ControllerRefused,
    RegistrationInvalid,
    SessionRejected,
    TokenUnavailable,
)
from vmafx.backoff import Backoff, Retries
from vmafx.clock import loop_time
from vmafx.logs import log
from vmafx.wire import controller_pb2 as wire

BACKOFF = Backoff(0.5, 52.0, spread=0.25)  # so that a controller that is back is found within a minute
ADVICE = {
    ControllerRefused: "let it speak for the VmafxNode of this name, or give it another --name",
    SessionRejected: "give it a token of now, by --token-file",
}
STABLE_AFTER = 30.0  # seconds after which a session counts as one that worked


class Registration:
    """Has the session, or gets one."""

    def __init__(self, link: ControllerLink, request: wire.RegisterNodeRequest) -> None:
        self._link, self._request = link, request
        self._session: AgentSession | None = None
        self._changed = asyncio.Event()

    async def session(self) -> AgentSession:
        while self._session is None:
            await self._changed.wait()
        return self._session

    def is_known(self) -> bool:
        return self._session is not None

    def lose(self, session: AgentSession, why: object) -> None:
        """This one does not count any more; a newer one may be there already."""
        if session == self._session:
            log.warn("the controller does not know this agent any more; it registers again", why=str(why))
            self._session = None
            self._change()

    async def run(self) -> None:
        """For ever. Wrong is raised: no later try would go better."""
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
        except RegistrationInvalid:
            raise
        except (ControllerRefused, SessionRejected) as error:
            log.error(
                "the controller refuses this agent; it tries again",
                name=self._request.name, why=str(error), advice=ADVICE[type(error)],
            )  # fmt: skip
            return False
        except TokenUnavailable as error:
            log.error("there is no token to show the controller; the agent tries again", why=str(error))
            return False
        except ControllerError as error:
            log.warn("the controller cannot be reached; the agent tries again", error=str(error))
            return False
        log.info("registered", node=self._session.node)
        self._change()
        return True

    def _change(self) -> None:
        """Wakes all who wait, and lets the next wait."""
        self._changed.set()
        self._changed = asyncio.Event()
