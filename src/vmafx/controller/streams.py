"""Jobs as they change, for whoever listens.

Each stream is a list and a watch of its own, so what a slow reader does not take stays with the API server: nothing
piles up here.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from vmafx.api.job import VmafxJob
from vmafx.controller.errors import no_namespace
from vmafx.http.errors import Refused
from vmafx.kube import JOBS, NAMESPACES, Client, Key
from vmafx.kube.errors import Expired, Forbidden, NotFound
from vmafx.kube.watch import Added, Modified

STREAMS_MOST = 100


class Streams:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._open = 0

    async def jobs(self, namespace: str) -> AsyncGenerator[VmafxJob]:
        """All jobs as they are, and then each as it becomes; after a break, all of them again."""
        if self._open >= STREAMS_MOST:
            raise Refused("RESOURCE_EXHAUSTED", f"{STREAMS_MOST} streams are open already; close one, or poll GetJob")
        self._open += 1
        try:
            if namespace and await self._is_missing(namespace):
                raise no_namespace(namespace)
            while True:
                try:
                    async with aclosing(self._follow(namespace)) as jobs:
                        async for job in jobs:
                            yield job
                except Expired:
                    await asyncio.sleep(1)
        finally:
            self._open -= 1

    async def _is_missing(self, namespace: str) -> bool:
        """For a namespace that does not exist, the server lists no jobs and no error. False if we may not ask."""
        try:
            await self._client.get(NAMESPACES, Key("", namespace))
        except NotFound:
            return True
        except Forbidden:
            return False
        return False

    async def _follow(self, namespace: str) -> AsyncGenerator[VmafxJob]:
        version = ""
        async with aclosing(self._client.pages(JOBS, namespace)) as pages:
            async for page in pages:
                version = page.metadata.resourceVersion
                for job in page.items:
                    yield job
        async with aclosing(aiter(self._client.watch(JOBS, namespace, version=version))) as batches:
            async for batch in batches:
                for event in batch:
                    if isinstance(event, Added | Modified):
                        yield event.object
