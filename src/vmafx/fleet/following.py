"""One job, followed to its end, and its place in the queue until then."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from vmafx.api.job import FINISHED
from vmafx.fleet.errors import NoSuchJob
from vmafx.fleet.queue import QueueRow, read_queue, row_of
from vmafx.fleet.reading import Reader
from vmafx.fleet.views import SEEN_JOBS, SeenJob
from vmafx.kube import Client, Key
from vmafx.kube.errors import Expired, NotFound
from vmafx.kube.watch import Added, Deleted, Modified
from vmafx.times import utc_now

LOOK_AFTER, LOOK_EVERY = 1.0, 5.0  # seconds; most jobs are placed before the first look
REST = 20.0  # times as long as a look took: it reads the whole queue


async def follow(client: Client, key: Key, version: str) -> AsyncGenerator[SeenJob]:
    """Each state of a job from `version` on, the last of which is its end; NoSuchJob if it is deleted before."""
    gone = NoSuchJob(f"job {key.name} was deleted before it ended")
    while True:
        watch = client.watch(SEEN_JOBS, key.namespace, version=version, fields=f"metadata.name={key.name}")
        try:
            async with aclosing(aiter(watch)) as batches:
                async for batch in batches:
                    for event in batch:
                        if isinstance(event, Deleted):
                            raise gone
                        if isinstance(event, Added | Modified):
                            yield event.object
                            if event.object.status.phase in FINISHED:
                                return
        except Expired:  # it may have ended meanwhile
            try:
                job = await client.get(SEEN_JOBS, key)
            except NotFound:
                raise gone from None
            yield job
            if job.status.phase in FINISHED:
                return
            version = job.metadata.resourceVersion


async def places(client: Client, key: Key, waits: asyncio.Event) -> AsyncGenerator[QueueRow]:
    """Its place in the queue, now and again for as long as it waits."""
    await asyncio.sleep(LOOK_AFTER)
    while True:
        await waits.wait()
        began = time.monotonic()
        row = row_of(await read_queue(Reader(client, key.namespace), utc_now()), key)
        if row is not None and waits.is_set():
            yield row
        await asyncio.sleep(max(LOOK_EVERY, (time.monotonic() - began) * REST))
