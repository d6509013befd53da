"""How many jobs each node has, told in its status: not at every change, but soon after."""

import asyncio

from vmafx.api.node import NodeView
from vmafx.kube import NODES, Client, Key
from vmafx.kube.errors import KubeError
from vmafx.logs import log
from vmafx.runtime.informer import Informer
from vmafx.scheduling.scheduler import Scheduler
from vmafx.scheduling.terms import Name

EVERY = 5.0  # seconds
VIEW = NODES.seen_as(NodeView)


class Counting:
    def __init__(self, client: Client, nodes: Informer[NodeView], scheduler: Scheduler) -> None:
        self._client, self._nodes, self._scheduler = client, nodes, scheduler

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            for node in tuple(self._nodes.store.values()):
                name = Name(node.metadata.namespace, node.metadata.name)
                used = self._scheduler.used(name)
                if used != node.status.assignedJobs:
                    try:
                        await self._client.patch_status(VIEW, Key(*name), {"assignedJobs": used})
                    except KubeError as error:  # it is told again in a moment
                        log.debug("a node's jobs were not told", node=str(Key(*name)), error=str(error))
