"""The Pod fields that a VmafxNode may set: an allow-list.

securityContext, containers, serviceAccountName and hostPath volumes are excluded on purpose.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from vmafx.api.fields import FileMode, Labels, Message, ObjectName, Quantity, Seconds, VolumeName, doc, schema
from vmafx.api.meta import ApiModel, LocalSecretRef, Rule

Text = Annotated[str, Meta(max_length=1024)]
Path = Annotated[str, Meta(min_length=1, max_length=1024)]
ConfigKey = Annotated[str, Meta(min_length=1, max_length=253)]
Resources = Annotated[dict[Annotated[str, Meta(max_length=317)], Quantity], Meta(max_length=16)]


class KeyRef(ApiModel):
    """A key of a ConfigMap or Secret."""

    name: ObjectName
    key: ConfigKey
    optional: bool | None = None


class FieldRef(ApiModel):
    """A field of the Pod."""

    fieldPath: Text
    apiVersion: Text | None = None


class ResourceFieldRef(ApiModel):
    """A resource of the container."""

    resource: Text
    containerName: Text | None = None
    divisor: Quantity | None = None


class EnvSource(ApiModel):
    """Source of the value of an environment variable."""

    configMapKeyRef: KeyRef | None = None
    secretKeyRef: KeyRef | None = None
    fieldRef: FieldRef | None = None
    resourceFieldRef: ResourceFieldRef | None = None

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            check="[has(self.configMapKeyRef), has(self.secretKeyRef), has(self.fieldRef), has(self.resourceFieldRef)]"
            ".filter(given, given).size() == 1",
            message="valueFrom must have exactly one of configMapKeyRef, secretKeyRef, fieldRef and resourceFieldRef",
        ),
    )


class EnvVar(ApiModel):
    """An environment variable of the worker."""

    name: Annotated[str, Meta(min_length=1, max_length=253), doc("Name of the variable.")]
    value: Annotated[Message | None, doc("Value of the variable.")] = None
    valueFrom: Annotated[EnvSource | None, doc("Source of the value. Cannot be used if value is set.")] = None


class OptionalRef(ApiModel):
    """A ConfigMap or Secret; with optional, it may be missing."""

    name: ObjectName
    optional: bool | None = None


class EnvFrom(ApiModel):
    """A ConfigMap or Secret whose keys become environment variables."""

    prefix: Text | None = None
    configMapRef: OptionalRef | None = None
    secretRef: OptionalRef | None = None


class KeyToPath(ApiModel):
    """A key, and the path of its file in the volume."""

    key: ConfigKey
    path: Path
    mode: FileMode | None = None


class ConfigMapVolume(ApiModel):
    """A ConfigMap whose keys become files."""

    name: ObjectName
    items: Annotated[tuple[KeyToPath, ...], Meta(max_length=64)] = ()
    defaultMode: FileMode | None = None
    optional: bool | None = None


class SecretVolume(ApiModel):
    """A Secret whose keys become files."""

    secretName: ObjectName
    items: Annotated[tuple[KeyToPath, ...], Meta(max_length=64)] = ()
    defaultMode: FileMode | None = None
    optional: bool | None = None


class EmptyDirVolume(ApiModel):
    """An empty directory that is deleted with the Pod."""

    medium: Literal["", "Memory"] | None = None
    sizeLimit: Quantity | None = None


class ClaimVolume(ApiModel):
    """A PersistentVolumeClaim in the same namespace."""

    claimName: ObjectName
    readOnly: bool | None = None


class NfsVolume(ApiModel):
    """A directory exported by an NFS server."""

    server: Text
    path: Path
    readOnly: bool | None = None


class CsiVolume(ApiModel):
    """An ephemeral volume of a CSI driver."""

    driver: Text
    readOnly: bool | None = None
    fsType: Text | None = None
    volumeAttributes: Annotated[dict[Text, Text], Meta(max_length=64)] = {}
    nodePublishSecretRef: LocalSecretRef | None = None


class Volume(ApiModel):
    """A volume of the worker Pod. hostPath is not supported."""

    name: Annotated[VolumeName, doc("Name of the volume, to which volumeMounts refer.")]
    configMap: Annotated[ConfigMapVolume | None, doc("ConfigMap whose keys become files.")] = None
    secret: Annotated[SecretVolume | None, doc("Secret whose keys become files.")] = None
    emptyDir: Annotated[EmptyDirVolume | None, doc("Empty directory that is deleted with the Pod.")] = None
    persistentVolumeClaim: Annotated[ClaimVolume | None, doc("PersistentVolumeClaim in the same namespace.")] = None
    nfs: Annotated[NfsVolume | None, doc("Directory exported by an NFS server.")] = None
    csi: Annotated[CsiVolume | None, doc("Ephemeral volume of a CSI driver.")] = None


VOLUME_SOURCES = tuple(name for name in Volume.__struct_fields__ if name != "name")


class VolumeMount(ApiModel):
    """A volume mounted into the worker container."""

    name: Annotated[VolumeName, doc("Name of the volume.")]
    mountPath: Annotated[Path, doc("Absolute path in the container.")]
    readOnly: bool | None = None
    subPath: Text | None = None


class Toleration(ApiModel):
    """A taint of Kubernetes nodes that the worker Pod tolerates."""

    key: Text | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: Text | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    tolerationSeconds: Seconds | None = None


class Expression(ApiModel):
    """A requirement on the labels or fields of Kubernetes nodes."""

    key: Text
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()


Expressions = Annotated[tuple[Expression, ...], Meta(max_length=32)]


class NodeTerm(ApiModel):
    """Requirements on a Kubernetes node, all of which must be met."""

    matchExpressions: Expressions = ()
    matchFields: Expressions = ()


class NodeTerms(ApiModel):
    """Alternatives, one of which a Kubernetes node must meet."""

    nodeSelectorTerms: Annotated[tuple[NodeTerm, ...], Meta(min_length=1, max_length=32)]


Weight = Annotated[int, Meta(ge=1, le=100), schema(format="int32")]


class PreferredNodeTerm(ApiModel):
    """A preferred term and its weight."""

    weight: Weight
    preference: NodeTerm


class NodeAffinity(ApiModel):
    """Affinity to Kubernetes nodes."""

    requiredDuringSchedulingIgnoredDuringExecution: NodeTerms | None = None
    preferredDuringSchedulingIgnoredDuringExecution: Annotated[tuple[PreferredNodeTerm, ...], Meta(max_length=32)] = ()


class LabelExpression(ApiModel):
    """A requirement on the labels of Pods or namespaces."""

    key: Text
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()


class LabelSelector(ApiModel):
    """A label selector; all of its requirements must be met."""

    matchLabels: Labels = {}
    matchExpressions: Annotated[tuple[LabelExpression, ...], Meta(max_length=32)] = ()


class PodTerm(ApiModel):
    """Pods to be placed with, or apart from, in the topology given by topologyKey."""

    topologyKey: Annotated[str, Meta(min_length=1, max_length=317)]
    labelSelector: LabelSelector | None = None
    namespaceSelector: LabelSelector | None = None
    namespaces: Annotated[tuple[ObjectName, ...], Meta(max_length=32)] = ()


class PreferredPodTerm(ApiModel):
    """A preferred term and its weight."""

    weight: Weight
    podAffinityTerm: PodTerm


class PodAffinity(ApiModel):
    """Affinity or anti-affinity to other Pods."""

    requiredDuringSchedulingIgnoredDuringExecution: Annotated[tuple[PodTerm, ...], Meta(max_length=32)] = ()
    preferredDuringSchedulingIgnoredDuringExecution: Annotated[tuple[PreferredPodTerm, ...], Meta(max_length=32)] = ()


class Affinity(ApiModel):
    """Scheduling constraints of the worker Pod."""

    nodeAffinity: NodeAffinity | None = None
    podAffinity: PodAffinity | None = None
    podAntiAffinity: PodAffinity | None = None


class ResourceRequirements(ApiModel):
    """Resource requests and limits of the worker container."""

    requests: Resources = {}
    limits: Resources = {}


class PodOverlay(ApiModel):
    """Fields that are merged into each worker Pod of a VmafxNode."""

    volumes: Annotated[
        tuple[Volume, ...],
        Meta(max_length=16),
        schema(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["name"]),
        doc("Volumes of the Pod. hostPath is not supported."),
    ] = ()
    volumeMounts: Annotated[
        tuple[VolumeMount, ...],
        Meta(max_length=16),
        schema(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["mountPath"]),
        doc("Volumes mounted into the worker container."),
    ] = ()
    env: Annotated[tuple[EnvVar, ...], Meta(max_length=64), doc("Environment variables of the worker container.")] = ()
    envFrom: Annotated[
        tuple[EnvFrom, ...],
        Meta(max_length=16),
        doc("ConfigMaps and Secrets whose keys become environment variables."),
    ] = ()
    imagePullSecrets: Annotated[
        tuple[LocalSecretRef, ...], Meta(max_length=8), doc("Secrets for pulling the image.")
    ] = ()
    tolerations: Annotated[
        tuple[Toleration, ...], Meta(max_length=16), doc("Taints of Kubernetes nodes that the Pod tolerates.")
    ] = ()
    nodeSelector: Annotated[Labels, doc("Labels that a Kubernetes node must have to run the Pod.")] = {}
    affinity: Annotated[Affinity | None, doc("Scheduling constraints of the Pod.")] = None
    runtimeClassName: Annotated[
        ObjectName | None, doc("Name of the RuntimeClass, such as nvidia. If unset, the cluster's default.")
    ] = None
    priorityClassName: Annotated[
        ObjectName | None, doc("Name of the PriorityClass. If unset, the cluster's default.")
    ] = None
    resources: Annotated[ResourceRequirements | None, doc("Resource requests and limits of the worker container.")] = (
        None
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            check="!has(self.volumes) || self.volumes.all(v, ["
            + ", ".join(f"has(v.{source})" for source in VOLUME_SOURCES)
            + "].filter(given, given).size() == 1)",
            message=f"each volume must have exactly one of {', '.join(VOLUME_SOURCES)}; hostPath is not allowed",
        ),
        Rule(
            check="!has(self.volumeMounts) || self.volumeMounts.all(m, has(self.volumes) && "
            "self.volumes.exists(v, v.name == m.name))",
            message="volumeMounts must refer to volumes of the podTemplate",
        ),
    )
