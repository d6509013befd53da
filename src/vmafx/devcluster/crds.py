"""Installs the CRDs of vmafx on a cluster."""

import asyncio
import time
from collections.abc import Sequence

import msgspec

from vmafx.api.crd import definition
from vmafx.api.kinds import KINDS
from vmafx.api.meta import GROUP
from vmafx.api.rbac import Permission
from vmafx.devcluster.errors import ComponentFailed
from vmafx.kube import CRDS, Client, ObjectKey
from vmafx.kube.resources import UntypedObject

FIELD_MANAGER = "vmafx-crd"
PERMISSIONS = (
    Permission(group="apiextensions.k8s.io", resources=("customresourcedefinitions",), verbs=("create",)),
    Permission(
        group="apiextensions.k8s.io",
        resources=("customresourcedefinitions",),
        verbs=("get", "patch"),
        names=tuple(f"{kind.names.plural}.{GROUP}" for kind in KINDS),
    ),
)
ESTABLISHED_TIMEOUT = 30.0  # seconds


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None  # null until the API server has processed the CRD


class _Crd(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def install_crds(client: Client) -> list[str]:
    """Apply the CRDs of all kinds and wait until each is established; returns their names."""
    return await apply_crds(client, [definition(kind) for kind in KINDS])


async def apply_crds(client: Client, definitions: Sequence[UntypedObject]) -> list[str]:
    """Apply CRDs and wait until each is established; returns their names."""
    names = []
    for body in definitions:
        name = body["metadata"]["name"]
        await client.apply(CRDS, ObjectKey("", name), body, manager=FIELD_MANAGER, force=True)
        names.append(name)
    deadline = time.monotonic() + ESTABLISHED_TIMEOUT
    waiting = list(names)
    while waiting:
        waiting = [
            name for name in waiting if not _established(await client.get(CRDS.decoded_as(_Crd), ObjectKey("", name)))
        ]
        if waiting and time.monotonic() > deadline:
            raise ComponentFailed(f"{', '.join(waiting)} were not established within {ESTABLISHED_TIMEOUT:.0f} s")
        if waiting:
            await asyncio.sleep(0.05)
    return names


def _established(crd: _Crd) -> bool:
    return any(cond.type == "Established" and cond.status == "True" for cond in crd.status.conditions or ())
