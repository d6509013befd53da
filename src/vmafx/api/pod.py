"""The parts of a Pod that a VmafxNode may shape: an allow-list, typed, so that nothing else slips through.

Left out on purpose: securityContext, containers, serviceAccountName and hostPath volumes.
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
    """One key of a ConfigMap or Secret."""

    name: ObjectName
    key: ConfigKey
    optional: bool | None = None


class FieldRef(ApiModel):
    """A field of the Pod itself."""

    fieldPath: Text
    apiVersion: Text | None = None


class ResourceFieldRef(ApiModel):
    """A resource of the container itself."""

    resource: Text
    containerName: Text | None = None
    divisor: Quantity | None = None


class EnvSource(ApiModel):
    """Where a variable's value comes from."""

    configMapKeyRef: KeyRef | None = None
    secretKeyRef: KeyRef | None = None
    fieldRef: FieldRef | None = None
    resourceFieldRef: ResourceFieldRef | None = None

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            check="[has(self.configMapKeyRef), has(self.secretKeyRef), has(self.fieldRef), has(self.resourceFieldRef)]"
            ".filter(given, given).size() == 1",
            message="valueFrom needs exactly one of configMapKeyRef, secretKeyRef, fieldRef and resourceFieldRef",
        ),
    )


class EnvVar(ApiModel):
    """One environment variable of the worker."""

    name: Annotated[str, Meta(min_length=1, max_length=253), doc("Name of the variable.")]
    value: Annotated[Message | None, doc("Its value.")] = None
    valueFrom: Annotated[EnvSource | None, doc("Where its value comes from, if not given here.")] = None


class OptionalRef(ApiModel):
    """A ConfigMap or Secret that may be missing."""

    name: ObjectName
    optional: bool | None = None


class EnvFrom(ApiModel):
    """All keys of a ConfigMap or Secret as variables."""

    prefix: Text | None = None
    configMapRef: OptionalRef | None = None
    secretRef: OptionalRef | None = None


class KeyToPath(ApiModel):
    key: ConfigKey
    path: Path
    mode: FileMode | None = None


class ConfigMapVolume(ApiModel):
    name: ObjectName
    items: Annotated[tuple[KeyToPath, ...], Meta(max_length=64)] = ()
    defaultMode: FileMode | None = None
    optional: bool | None = None


class SecretVolume(ApiModel):
    secretName: ObjectName
    items: Annotated[tuple[KeyToPath, ...], Meta(max_length=64)] = ()
    defaultMode: FileMode | None = None
    optional: bool | None = None


class EmptyDirVolume(ApiModel):
    medium: Literal["", "Memory"] | None = None
    sizeLimit: Quantity | None = None


class ClaimVolume(ApiModel):
    claimName: ObjectName
    readOnly: bool | None = None


class NfsVolume(ApiModel):
    server: Text
    path: Path
    readOnly: bool | None = None


class CsiVolume(ApiModel):
    driver: Text
    readOnly: bool | None = None
    fsType: Text | None = None
    volumeAttributes: Annotated[dict[Text, Text], Meta(max_length=64)] = {}
    nodePublishSecretRef: LocalSecretRef | None = None


class Volume(ApiModel):
    """A volume of the worker Pod; a hostPath is not to be had."""

    name: Annotated[VolumeName, doc("Name by which volumeMounts refer to it.")]
    configMap: Annotated[ConfigMapVolume | None, doc("The keys of a ConfigMap as files.")] = None
    secret: Annotated[SecretVolume | None, doc("The keys of a Secret as files.")] = None
    emptyDir: Annotated[EmptyDirVolume | None, doc("An empty folder that goes with the Pod.")] = None
    persistentVolumeClaim: Annotated[ClaimVolume | None, doc("A claim of this namespace.")] = None
    nfs: Annotated[NfsVolume | None, doc("A folder of an NFS server.")] = None
    csi: Annotated[CsiVolume | None, doc("A volume of a CSI driver.")] = None


VOLUME_SOURCES = tuple(name for name in Volume.__struct_fields__ if name != "name")


class VolumeMount(ApiModel):
    """Where the worker sees a volume."""

    name: Annotated[VolumeName, doc("Name of the volume.")]
    mountPath: Annotated[Path, doc("Absolute path in the container.")]
    readOnly: bool | None = None
    subPath: Text | None = None


class Toleration(ApiModel):
    """A taint of Kubernetes nodes that the worker Pod puts up with."""

    key: Text | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: Text | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    tolerationSeconds: Seconds | None = None


class Expression(ApiModel):
    """One requirement on labels or fields."""

    key: Text
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()


Expressions = Annotated[tuple[Expression, ...], Meta(max_length=32)]


class NodeTerm(ApiModel):
    matchExpressions: Expressions = ()
    matchFields: Expressions = ()


class NodeTerms(ApiModel):
    nodeSelectorTerms: Annotated[tuple[NodeTerm, ...], Meta(min_length=1, max_length=32)]


Weight = Annotated[int, Meta(ge=1, le=100), schema(format="int32")]


class PreferredNodeTerm(ApiModel):
    weight: Weight
    preference: NodeTerm


class NodeAffinity(ApiModel):
    requiredDuringSchedulingIgnoredDuringExecution: NodeTerms | None = None
    preferredDuringSchedulingIgnoredDuringExecution: Annotated[tuple[PreferredNodeTerm, ...], Meta(max_length=32)] = ()


class LabelExpression(ApiModel):
    """One requirement on labels of Pods or namespaces."""

    key: Text
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()


class LabelSelector(ApiModel):
    matchLabels: Labels = {}
    matchExpressions: Annotated[tuple[LabelExpression, ...], Meta(max_length=32)] = ()


class PodTerm(ApiModel):
    topologyKey: Annotated[str, Meta(min_length=1, max_length=317)]
    labelSelector: LabelSelector | None = None
    namespaceSelector: LabelSelector | None = None
    namespaces: Annotated[tuple[ObjectName, ...], Meta(max_length=32)] = ()


class PreferredPodTerm(ApiModel):
    weight: Weight
    podAffinityTerm: PodTerm


class PodAffinity(ApiModel):
    requiredDuringSchedulingIgnoredDuringExecution: Annotated[tuple[PodTerm, ...], Meta(max_length=32)] = ()
    preferredDuringSchedulingIgnoredDuringExecution: Annotated[tuple[PreferredPodTerm, ...], Meta(max_length=32)] = ()


class Affinity(ApiModel):
    """Which Kubernetes nodes the worker Pod is drawn to or kept from."""

    nodeAffinity: NodeAffinity | None = None
    podAffinity: PodAffinity | None = None
    podAntiAffinity: PodAffinity | None = None


class ResourceRequirements(ApiModel):
    """What the worker asks for and may use at most."""

    requests: Resources = {}
    limits: Resources = {}


class PodOverlay(ApiModel):
    """What a VmafxNode adds to its worker Pods."""

    volumes: Annotated[
        tuple[Volume, ...],
        Meta(max_length=16),
        schema(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["name"]),
        doc("Volumes; no hostPath."),
    ] = ()
    volumeMounts: Annotated[
        tuple[VolumeMount, ...],
        Meta(max_length=16),
        schema(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["mountPath"]),
        doc("Where the worker sees them."),
    ] = ()
    env: Annotated[tuple[EnvVar, ...], Meta(max_length=64), doc("Variables of the worker.")] = ()
    envFrom: Annotated[tuple[EnvFrom, ...], Meta(max_length=16), doc("ConfigMaps and Secrets as variables.")] = ()
    imagePullSecrets: Annotated[
        tuple[LocalSecretRef, ...], Meta(max_length=8), doc("Secrets to pull the image with.")
    ] = ()
    tolerations: Annotated[tuple[Toleration, ...], Meta(max_length=16), doc("Taints to put up with.")] = ()
    nodeSelector: Annotated[Labels, doc("Labels a Kubernetes node must have.")] = {}
    affinity: Annotated[Affinity | None, doc("Which Kubernetes nodes to prefer or avoid.")] = None
    runtimeClassName: Annotated[ObjectName | None, doc("RuntimeClass of the Pod, such as nvidia.")] = None
    priorityClassName: Annotated[ObjectName | None, doc("PriorityClass of the Pod.")] = None
    resources: Annotated[ResourceRequirements | None, doc("Requests and limits of the worker.")] = None

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            check="!has(self.volumes) || self.volumes.all(v, ["
            + ", ".join(f"has(v.{source})" for source in VOLUME_SOURCES)
            + "].filter(given, given).size() == 1)",
            message=f"each volume needs exactly one of {', '.join(VOLUME_SOURCES)}; hostPath is not allowed",
        ),
        Rule(
            check="!has(self.volumeMounts) || self.volumeMounts.all(m, has(self.volumes) && "
            "self.volumes.exists(v, v.name == m.name))",
            message="each of volumeMounts must name one of volumes",
        ),
    )
