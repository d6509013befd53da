"""Which resource a call addresses and which type its objects have; kinds looked up by discovery."""

from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from vmafx.api import VmafxJob, VmafxModelTraining, VmafxNode, ZerfooInferenceService
from vmafx.api.meta import GROUP, VERSION, CustomObject
from vmafx.kube.decoding import decode
from vmafx.kube.errors import NotFound, UnknownKind
from vmafx.kube.transport import ApiRequest, Transport

T = TypeVar("T")
V = TypeVar("V")
K = TypeVar("K", bound=CustomObject)
UntypedObject = dict[str, Any]


class ObjectKey(NamedTuple):
    """Names an object; `namespace` is empty for one that lives in none."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """A kind of object on the server, decoded into `model`."""

    group: str
    version: str
    plural: str
    kind: str
    model: type[T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def collection(self, namespace: str = "") -> str:
        """The URL path of all objects, of one namespace or of the cluster."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        return "/" + "/".join([*parts, self.plural])

    def path(self, key: ObjectKey, subresource: str = "") -> str:
        """The URL path of one object. Without a name it would be that of all: better no path than that."""
        if not key.name or "/" in key.name or key.name in {".", ".."} or (self.namespaced and not key.namespace):
            raise ValueError(f"{key!r} names no {self.kind}")
        path = f"{self.collection(key.namespace)}/{quote(key.name, safe='')}"
        return f"{path}/{subresource}" if subresource else path

    def seen_as(self, view: type[V]) -> "Resource[V]":
        """The same resource, decoded into a slimmer type."""
        return Resource(self.group, self.version, self.plural, self.kind, view, self.namespaced)


def of_kind(kind: type[K]) -> Resource[K]:
    return Resource(GROUP, VERSION, kind.names.plural, kind.__name__, kind)


JOBS = of_kind(VmafxJob)
NODES = of_kind(VmafxNode)
TRAININGS = of_kind(VmafxModelTraining)
SERVICES = of_kind(ZerfooInferenceService)


class _Described(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool


class _Group(msgspec.Struct):
    resources: list[_Described]


async def discover_resource(transport: Transport, api_version: str, kind: str) -> Resource[UntypedObject]:
    """Ask the server which resource an apiVersion and kind stand for."""
    group, _, version = api_version.rpartition("/")
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        answer = await transport.call(ApiRequest("GET", path, idempotent=True))
    except NotFound as error:
        raise UnknownKind(f"the server has no apiVersion {api_version}; is its CRD installed?") from error
    there = [one for one in decode(answer, _Group).resources if "/" not in one.name]
    for one in there:
        if one.kind == kind:
            return Resource(group, version, one.name, kind, dict, one.namespaced)
    kinds = ", ".join(sorted({one.kind for one in there})) or "none"
    raise UnknownKind(f"the server has no kind {kind} in {api_version}; there is {kinds}")
