"""Model serving with canaries, as a library: a ZerfooInferenceService reconciled through any Kubernetes client.

The operator uses the same decisions (operator/inference/); a program can embed the Reconciler instead. Nothing here
watches or keeps state.

    children.py        the children of a service, decided from its spec and what is live
    traffic.py         the split of requests between primary and canary
    status.py          the status and conditions of a service
    manifests.py       the children as Kubernetes manifests
    live.py            live objects read back
    gpu.py             GPU resources, node affinity, and whether a node fits
    reconciler.py      reconciles and deletes a service through a KubeClient, the calls that it needs of a cluster
    cluster_client.py  KubeClient over a real API server
    memory_client.py   KubeClient in memory
"""

from vmafx.api.inference import (
    CanarySpec,
    HealthCheckSpec,
    ResourceSpec,
    ZerfooInferenceServiceSpec,
    ZerfooInferenceServiceStatus,
)
from vmafx.api.kinds import ZerfooInferenceService
from vmafx.api.meta import ObjectMeta
from vmafx.api.validation import InvalidSpec
from vmafx.inference.children import HPA, Deployment, Service, ServiceRef, WeightedTarget, desired_children
from vmafx.inference.cluster_client import ClusterKubeClient
from vmafx.inference.manifests import ServingOptions
from vmafx.inference.memory_client import MemoryKubeClient
from vmafx.inference.reconciler import DeletingKubeClient, KubeClient, Reconciler
from vmafx.kube.errors import AlreadyExists, NotFound

__all__ = [
    "HPA",
    "AlreadyExists",
    "CanarySpec",
    "ClusterKubeClient",
    "DeletingKubeClient",
    "Deployment",
    "HealthCheckSpec",
    "InvalidSpec",
    "KubeClient",
    "MemoryKubeClient",
    "NotFound",
    "ObjectMeta",
    "Reconciler",
    "ResourceSpec",
    "Service",
    "ServiceRef",
    "ServingOptions",
    "WeightedTarget",
    "ZerfooInferenceService",
    "ZerfooInferenceServiceSpec",
    "ZerfooInferenceServiceStatus",
    "desired_children",
]
