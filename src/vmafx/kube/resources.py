"""Which resource a call speaks of, and which type its objects have."""

from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from vmafx.api import VmafxJob, VmafxModelTraining, VmafxNode, ZerfooInferenceService
from vmafx.api.meta import GROUP, VERSION, CustomObject

T = TypeVar("T")
V = TypeVar("V")
K = TypeVar("K", bound=CustomObject)
Untyped = dict[str, Any]


class Key(NamedTuple):
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

    def path(self, key: Key, subresource: str = "") -> str:
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
