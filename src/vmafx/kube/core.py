"""The built-in Kubernetes kinds that vmafx uses.

A kind is typed only where vmafx reads its fields, and only those fields are declared.
"""

import msgspec

from vmafx.api.meta import ApiModel, ObjectMeta
from vmafx.kube.resources import Resource, UntypedObject


class LeaseSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """coordination.k8s.io/v1 LeaseSpec."""

    holderIdentity: str | None = None
    leaseDurationSeconds: int | None = None
    acquireTime: str | None = None
    renewTime: str | None = None
    leaseTransitions: int = 0


class Lease(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class UserInfo(ApiModel):
    """authentication.k8s.io/v1 UserInfo."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class TokenStatus(ApiModel):
    authenticated: bool = False
    user: UserInfo = UserInfo()
    audiences: tuple[str, ...] = ()


class TokenReview(ApiModel):
    status: TokenStatus = TokenStatus()


class AccessStatus(ApiModel):
    allowed: bool = False
    denied: bool = False


class AccessReview(ApiModel):
    status: AccessStatus = AccessStatus()


class EndpointConditions(ApiModel):
    ready: bool | None = None  # unknown counts as ready


class SliceEndpoint(ApiModel):
    conditions: EndpointConditions = EndpointConditions()


class EndpointSlice(ApiModel):
    """discovery.k8s.io/v1 EndpointSlice."""

    metadata: ObjectMeta
    endpoints: tuple[SliceEndpoint, ...] | None = None


CRDS: Resource[UntypedObject] = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", dict, namespaced=False
)
DEPLOYMENTS: Resource[UntypedObject] = Resource("apps", "v1", "deployments", "Deployment", dict)
ENDPOINT_SLICES: Resource[EndpointSlice] = Resource(
    "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", EndpointSlice
)
EVENTS: Resource[UntypedObject] = Resource("events.k8s.io", "v1", "events", "Event", dict)
GATEWAYS: Resource[UntypedObject] = Resource("gateway.networking.k8s.io", "v1", "gateways", "Gateway", dict)
HPAS: Resource[UntypedObject] = Resource(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", dict
)
HTTP_ROUTES: Resource[UntypedObject] = Resource("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute", dict)
LEASES: Resource[Lease] = Resource("coordination.k8s.io", "v1", "leases", "Lease", Lease)
NAMESPACES: Resource[UntypedObject] = Resource("", "v1", "namespaces", "Namespace", dict, namespaced=False)
KUBERNETES_NODES: Resource[UntypedObject] = Resource("", "v1", "nodes", "Node", dict, namespaced=False)
POD_DISRUPTION_BUDGETS: Resource[UntypedObject] = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", dict
)
PERSISTENT_VOLUME_CLAIMS: Resource[UntypedObject] = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", dict
)
PODS: Resource[UntypedObject] = Resource("", "v1", "pods", "Pod", dict)
SECRETS: Resource[UntypedObject] = Resource("", "v1", "secrets", "Secret", dict)
SERVICE_ACCOUNTS: Resource[UntypedObject] = Resource("", "v1", "serviceaccounts", "ServiceAccount", dict)
SERVICES: Resource[UntypedObject] = Resource("", "v1", "services", "Service", dict)
TOKEN_REVIEWS: Resource[TokenReview] = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", TokenReview, namespaced=False
)
ACCESS_REVIEWS: Resource[AccessReview] = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", AccessReview, namespaced=False
)
