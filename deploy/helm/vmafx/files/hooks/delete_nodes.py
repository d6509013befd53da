"""After an uninstallation: deletes the VmafxNodes with these labels, which agents of the release have registered."""

import asyncio
import sys

from vmafx.kube import NODES, Client, key_of, load_config
from vmafx.kube.errors import NotFound


async def main(namespace, labels):
    async with Client(load_config()) as client:
        for node in (await client.list(NODES, namespace, labels=labels)).items:
            try:
                await client.delete(NODES, key_of(node))
            except NotFound:
                continue
            print(f"deleted the VmafxNode {node.metadata.name}")


asyncio.run(main(sys.argv[1], sys.argv[2]))
