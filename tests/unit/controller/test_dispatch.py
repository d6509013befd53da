"""Attempts that an agent reports and the cache does not have: how often they are looked up in the Kubernetes API."""

import asyncio
from itertools import count
from typing import Any, cast

from tests.support.virtual import run
from vmafx.clock import loop_time
from vmafx.controller.caches import make_caches
from vmafx.controller.dispatch import LOOKUP_BURST, LOOKUP_INTERVAL, MAX_LOOKUPS, WorkDispatcher
from vmafx.kube import Client, ObjectKey
from vmafx.kube.errors import NotFound, Status

NODE, OTHER = ObjectKey("video", "box"), ObjectKey("video", "other")


class NoJobs:
    """Stands for the client of the Kubernetes API, without any job."""

    gets = 0

    async def get(self, *_: Any) -> Any:
        self.gets += 1
        raise NotFound(Status(code=404))


def test_unknown_attempts_of_a_node_are_looked_up_at_a_limited_rate() -> None:
    async def scene() -> None:
        api, numbers = NoJobs(), count()
        client = cast("Client", api)
        dispatcher = WorkDispatcher(client, make_caches(client, NODE.namespace))

        async def beat(node: ObjectKey) -> tuple[str, ...]:
            return await dispatcher.attempts_to_stop(node, {f"unknown-{next(numbers)}": "none" for _ in range(100)})

        assert len(await beat(NODE)) == api.gets == MAX_LOOKUPS
        end = loop_time() + 30
        while loop_time() < end:
            await beat(NODE)
            await asyncio.sleep(0.01)
        assert LOOKUP_BURST < api.gets <= LOOKUP_BURST + 30 / LOOKUP_INTERVAL + 1
        await beat(NODE)
        assert await beat(NODE) == ()  # without a lookup, an attempt continues
        assert len(await beat(OTHER)) == MAX_LOOKUPS

    run(scene())
