"""A fleet of agents that score every job at once, with the calls and the heartbeats of real ones."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from tests.support.inprocess_controller import Agent, controller_stub

SLOTS = 2
HEARTBEAT = 1.0  # seconds; a real agent waits for ten, but a short test needs many


class BusyAgent(Agent):
    """A call that is refused or fails ends it with the error; a real agent would try again."""

    heartbeats = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send_heartbeats())
            while True:
                pulled = await self.pull(wait=30)
                if pulled.HasField("job"):
                    group.create_task(self._score(pulled.job.id))

    async def _send_heartbeats(self) -> None:
        while True:
            assert (await self.beat()).ok, "the session is no longer valid"
            self.heartbeats += 1
            await asyncio.sleep(HEARTBEAT)

    async def _score(self, attempt: str) -> None:
        assert await self.report(attempt), "the claim was rejected"
        assert await self.scored(attempt), "the result was rejected"


@asynccontextmanager
async def busy_agents(port: int, names: Sequence[str], tokens: Sequence[str]) -> AsyncIterator[list[BusyAgent]]:
    """Registered agents that run during the `with`, which fails when one of them does."""
    async with AsyncExitStack() as stack:
        stubs = [await stack.enter_async_context(controller_stub(port)) for _ in names]
        agents = [
            BusyAgent(stub, name, SLOTS, token=token) for stub, name, token in zip(stubs, names, tokens, strict=True)
        ]
        for agent in agents:
            await agent.register()
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(agent.run()) for agent in agents]
            yield agents
            for task in running:
                task.cancel()
