"""The kinds of Kubernetes itself that vmafx uses, in one place; each is added where it is first needed.

Untyped where we only make them or hand them on; typed, and no further than we read them, where we do.
"""

import msgspec

from vmafx.api.meta import ObjectMeta
from vmafx.kube.resources import Resource, Untyped


class LeaseSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    holderIdentity: str | None = None
    leaseDurationSeconds: int | None = None
    acquireTime: str | None = None
    renewTime: str | None = None
    leaseTransitions: int = 0


class Lease(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


CRDS: Resource[Untyped] = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", dict, namespaced=False
)
EVENTS: Resource[Untyped] = Resource("events.k8s.io", "v1", "events", "Event", dict)
LEASES: Resource[Lease] = Resource("coordination.k8s.io", "v1", "leases", "Lease", Lease)
NAMESPACES: Resource[Untyped] = Resource("", "v1", "namespaces", "Namespace", dict, namespaced=False)
PODS: Resource[Untyped] = Resource("", "v1", "pods", "Pod", dict)
SECRETS: Resource[Untyped] = Resource("", "v1", "secrets", "Secret", dict)
