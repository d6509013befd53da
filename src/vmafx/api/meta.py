"""What every object has in common: metadata, conditions, and the declaration of a kind."""

from datetime import datetime
from typing import Annotated, ClassVar, Literal, dataclass_transform

from msgspec import Meta, Struct, field

from vmafx.api.fields import Generation, ObjectName, Time, doc, schema

GROUP = "vmafx.dev"
VERSION = "v1"
API_VERSION: Literal["vmafx.dev/v1"] = "vmafx.dev/v1"


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class ApiModel(Struct, frozen=True, omit_defaults=True, gc=False):
    """Base of every object: immutable, so that caches hand them out without a copy."""


class Rule(ApiModel):
    """A CEL rule of the schema: when `check` is false the object is refused with `message`."""

    check: str
    message: str
    keeps: str = ""  # the field that must stay as it was created, if that is the rule


class OwnerReference(ApiModel):
    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    blockOwnerDeletion: bool | None = None


class ObjectMeta(ApiModel):
    """The part of metav1.ObjectMeta that people and controllers use; managedFields are dropped on decoding."""

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
    """The metadata that a cache keeps of an object."""

    name: str
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    generation: int = 0
    creationTimestamp: datetime | None = None
    deletionTimestamp: datetime | None = None
    labels: dict[str, str] = {}


class Condition(ApiModel):
    """One aspect of the object's state, as `kubectl wait --for=condition=...` reads it."""

    type: Annotated[str, Meta(min_length=1, max_length=316), doc("What is being told, such as Scheduled.")]
    status: Annotated[Literal["True", "False", "Unknown"], doc("Whether it holds.")]
    lastTransitionTime: Annotated[Time, doc("When status last changed.")]
    reason: Annotated[str, Meta(min_length=1, max_length=1024), doc("Why, in one CamelCase word.")]
    message: Annotated[str, Meta(max_length=32768), doc("Why, in a sentence for people.")] = ""
    observedGeneration: Annotated[Generation, doc("The metadata.generation this was true for.")] = 0


Conditions = Annotated[
    tuple[Condition, ...],
    Meta(max_length=16),
    schema(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["type"]),
]


class LocalSecretRef(ApiModel):
    """A Secret in the object's own namespace."""

    name: Annotated[ObjectName, doc("Name of the Secret.")]


class Column(ApiModel):
    """A column of `kubectl get`; `wide` ones show with -o wide."""

    name: str
    path: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    wide: bool = False


AGE = Column(name="Age", path=".metadata.creationTimestamp", type="date")


class Scale(ApiModel):
    """Where `kubectl scale` and autoscalers find their numbers."""

    spec_replicas: str
    status_replicas: str
    selector: str


class Names(ApiModel):
    """What a kind is called and how `kubectl get` shows it."""

    plural: str
    short: str
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    scale: Scale | None = None


class CustomObject(ApiModel, kw_only=True):
    """Base of the four kinds; a subclass adds `spec` and `status`."""

    names: ClassVar[Names]
    rules: ClassVar[tuple[Rule, ...]] = ()

    # A factory, not a default: defaults are left out when encoding, and the server needs this one.
    apiVersion: Literal["vmafx.dev/v1"] = field(default_factory=lambda: API_VERSION)
    metadata: ObjectMeta


class ConditionReason(ApiModel):
    """A condition has this status for this reason."""

    condition: str
    status: Literal["True", "False"]
    reason: str
    text: str
