"""Any kind by its apiVersion and name, as the server itself describes it."""

import msgspec

from vmafx.kube.decoding import decode
from vmafx.kube.errors import NotFound, UnknownKind
from vmafx.kube.resources import Resource, Untyped
from vmafx.kube.transport import Request, Transport


class _Described(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool


class _Group(msgspec.Struct):
    resources: list[_Described]


async def find(transport: Transport, api_version: str, kind: str) -> Resource[Untyped]:
    """Ask the server which resource an apiVersion and kind stand for."""
    group, _, version = api_version.rpartition("/")
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        answer = await transport.call(Request("GET", path, idempotent=True))
    except NotFound as error:
        raise UnknownKind(f"the server has no apiVersion {api_version}; is its CRD installed?") from error
    there = [one for one in decode(answer, _Group).resources if "/" not in one.name]
    for one in there:
        if one.kind == kind:
            return Resource(group, version, one.name, kind, dict, one.namespaced)
    kinds = ", ".join(sorted({one.kind for one in there})) or "none"
    raise UnknownKind(f"the server has no kind {kind} in {api_version}; there is {kinds}")
