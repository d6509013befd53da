"""Our kinds on a cluster: applied, and waited for until the server serves them."""

import asyncio
import time
from typing import Any

from vmafx.api import KINDS
from vmafx.api.crd import definition
from vmafx.devcluster.errors import StartFailed
from vmafx.kube import CRDS, Client, Key

MANAGER = "vmafx-crd"
ESTABLISHED_WITHIN = 30.0


async def install(client: Client) -> list[str]:
    """Apply the CRDs of all kinds and wait until each is established; returns their names."""
    names = []
    for kind in KINDS:
        body = definition(kind)
        name = body["metadata"]["name"]
        await client.apply(CRDS, Key("", name), body, manager=MANAGER, force=True)
        names.append(name)
    deadline = time.monotonic() + ESTABLISHED_WITHIN
    waiting = list(names)
    while waiting:
        waiting = [name for name in waiting if not _established(await client.get(CRDS, Key("", name)))]
        if waiting and time.monotonic() > deadline:
            raise StartFailed(f"{', '.join(waiting)} not established within {ESTABLISHED_WITHIN:.0f} s")
        if waiting:
            await asyncio.sleep(0.05)
    return names


def _established(crd: dict[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions", ())
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
