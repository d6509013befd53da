"""What all kinds share: metadata, conditions, and the declaration of a kind."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, dataclass_transform

from msgspec import Meta, Struct, field

from vmafx.api.fields import Generation, ObjectName, Time, doc, schema

GROUP = "vmafx.dev"
VERSION = "v1"
API_VERSION: Literal["vmafx.dev/v1"] = "vmafx.dev/v1"


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class ApiModel(Struct, frozen=True, omit_defaults=True, gc=False):
    """Base of all Structs; immutable, so that caches need not copy them."""


class Rule(ApiModel):
    """A CEL rule of the schema: an object for which `check` is false is rejected with `message`.

    A rule about one field names it: `self` is then its value, and the rule runs only if the field is set. Rules run at
    every update, also of the status, and for each field that one reads of an object, the API server copies the schemas
    of all fields of that object.
    """

    check: str
    message: str
    field: str = ""
    holds: Callable[[Any], bool] | None = None  # the same check in Python, for kinds that validation.py validates


_SERVICE_NAME_MAX = 40  # leaves room for a suffix, such as -trainer and a hash
# Children are Services and Deployments, whose names must be DNS-1035 labels.
SERVICE_NAME_RULE = Rule(
    check=f"size(self) <= {_SERVICE_NAME_MAX} && self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    message="metadata.name must consist of lowercase letters, digits and '-', start with a letter, and have at most "
    f"{_SERVICE_NAME_MAX} characters, because Services are named after it",
)


class OwnerReference(ApiModel):
    """metav1.OwnerReference."""

    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    blockOwnerDeletion: bool | None = None


class ObjectMeta(ApiModel):
    """The fields of metav1.ObjectMeta that vmafx uses; others, such as managedFields, are not decoded."""

    name: str = ""
    generateName: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    generation: int = 0
    creationTimestamp: datetime | None = None
    deletionTimestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    ownerReferences: tuple[OwnerReference, ...] = ()


class MetaView(ApiModel):
    """The fields of metav1.ObjectMeta that caches keep."""

    name: str
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    generation: int = 0
    creationTimestamp: datetime | None = None
    deletionTimestamp: datetime | None = None
    labels: dict[str, str] = {}


class Condition(ApiModel):
    """One aspect of the current state of an object."""

    type: Annotated[str, Meta(min_length=1, max_length=316), doc("Type of the condition, such as Ready.")]
    status: Annotated[Literal["True", "False", "Unknown"], doc("Status of the condition: True, False or Unknown.")]
    lastTransitionTime: Annotated[Time, doc("Last time the status of the condition changed.")]
    reason: Annotated[
        str, Meta(min_length=1, max_length=1024), doc("Reason for the last transition, as a CamelCase word.")
    ]
    message: Annotated[str, Meta(max_length=32768), doc("Details of the last transition, in plain text.")] = ""
    observedGeneration: Annotated[Generation, doc("The metadata.generation that the condition is based on.")] = 0


Conditions = Annotated[
    tuple[Condition, ...],
    Meta(max_length=16),
    schema(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["type"]),
]


class LocalSecretRef(ApiModel):
    """A Secret in the same namespace."""

    name: Annotated[ObjectName, doc("Name of the Secret.")]


class Column(ApiModel):
    """A printer column of `kubectl get`; with `wide`, only of `-o wide`."""

    name: str
    path: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    wide: bool = False


AGE = Column(name="Age", path=".metadata.creationTimestamp", type="date")


class Scale(ApiModel):
    """JSON paths of the scale subresource, for `kubectl scale` and autoscalers."""

    spec_replicas: str
    status_replicas: str
    selector: str


class Names(ApiModel):
    """Names, printer columns and selectable fields of a kind."""

    plural: str
    short: str
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    scale: Scale | None = None


class CustomObject(ApiModel, kw_only=True):
    """Base of the four kinds; a subclass adds `spec` and `status`."""

    names: ClassVar[Names]
    name_rule: ClassVar[Rule | None] = None  # on metadata.name

    # A factory, because defaults are omitted when encoding, and the server requires this field.
    apiVersion: Literal["vmafx.dev/v1"] = field(default_factory=lambda: API_VERSION)
    metadata: ObjectMeta


class ConditionReason(ApiModel):
    """A status and reason that a condition can have, and what they mean."""

    condition: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    text: str
