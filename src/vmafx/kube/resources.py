"""Resources of the API server: their URL paths, the type of their objects, and discovery."""

from functools import lru_cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from vmafx.api.kinds import VmafxJob, VmafxModelTraining, VmafxNode, ZerfooInferenceService
from vmafx.api.meta import GROUP, VERSION, CustomObject
from vmafx.kube.decoding import decode
from vmafx.kube.errors import NotFound, UnknownKind
from vmafx.kube.transport import ApiRequest, Transport

T = TypeVar("T")
V = TypeVar("V")
K = TypeVar("K", bound=CustomObject)
UntypedObject = dict[str, Any]


class ObjectKey(NamedTuple):
    """Namespace and name of an object; the namespace of a cluster-scoped object is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Meta(Protocol):
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...


class HasMetadata(Protocol):
    """Any object, or view of one, with the metadata that identifies it."""

    @property
    def metadata(self) -> _Meta: ...


def key_of(item: HasMetadata) -> ObjectKey:
    """The key of an object."""
    return ObjectKey(item.metadata.namespace, item.metadata.name)


@lru_cache(4096)
def _quoted(text: str) -> str:
    return quote(text, safe="")


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """A resource of the API server, whose objects are decoded into `model`."""

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
        """The URL path of all objects in a namespace, or in the cluster."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", _quoted(namespace)]
        return "/" + "/".join([*parts, self.plural])

    def path(self, key: ObjectKey, subresource: str = "") -> str:
        """The URL path of one object. An incomplete key raises: its path would be that of the whole collection."""
        if not key.name or "/" in key.name or key.name in {".", ".."} or (self.namespaced and not key.namespace):
            raise ValueError(f"{key!r} is not a valid key of a {self.kind}")
        path = f"{self.collection(key.namespace)}/{_quoted(key.name)}"
        return f"{path}/{subresource}" if subresource else path

    def decoded_as(self, view: type[V]) -> "Resource[V]":
        """The same resource, decoded into another type, such as a view with fewer fields."""
        return Resource(self.group, self.version, self.plural, self.kind, view, self.namespaced)


def resource_for(kind: type[K]) -> Resource[K]:
    """The resource of a vmafx.dev kind."""
    return Resource(GROUP, VERSION, kind.names.plural, kind.__name__, kind)


JOBS = resource_for(VmafxJob)
NODES = resource_for(VmafxNode)
TRAININGS = resource_for(VmafxModelTraining)
INFERENCE_SERVICES = resource_for(ZerfooInferenceService)


class _APIResource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool


class _APIResourceList(msgspec.Struct):
    resources: list[_APIResource]


async def discover_resource(transport: Transport, api_version: str, kind: str) -> Resource[UntypedObject]:
    """Look up the resource of an apiVersion and kind on the server."""
    group, _, version = api_version.rpartition("/")
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        body = await transport.call(ApiRequest("GET", path, idempotent=True))
    except NotFound as error:
        raise UnknownKind(f"the server has no apiVersion {api_version}; is its CRD installed?") from error
    served = [entry for entry in decode(body, _APIResourceList).resources if "/" not in entry.name]
    for entry in served:
        if entry.kind == kind:
            return Resource(group, version, entry.name, kind, dict, entry.namespaced)
    kinds = ", ".join(sorted({entry.kind for entry in served})) or "none"
    raise UnknownKind(f"the server has no kind {kind} in {api_version}; available: {kinds}")
