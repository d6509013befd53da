"""Which resource a call speaks of, and which type its objects have."""

from typing import Any, Generic, NamedTuple, TypeVar

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

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of one object, or of the collection."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts += [self.plural, name, subresource]
        return "/" + "/".join(part for part in parts if part)

    def seen_as(self, view: type[V]) -> "Resource[V]":
        """The same resource, decoded into a slimmer type."""
        return Resource(self.group, self.version, self.plural, self.kind, view, self.namespaced)


def of_kind(kind: type[K]) -> Resource[K]:
    return Resource(GROUP, VERSION, kind.names.plural, kind.__name__, kind)


JOBS = of_kind(VmafxJob)
NODES = of_kind(VmafxNode)
TRAININGS = of_kind(VmafxModelTraining)
SERVICES = of_kind(ZerfooInferenceService)
NAMESPACES: Resource[Untyped] = Resource("", "v1", "namespaces", "Namespace", dict, namespaced=False)
CRDS: Resource[Untyped] = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", dict, namespaced=False
)
