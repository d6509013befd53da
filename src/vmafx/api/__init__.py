"""The four kinds of vmafx.dev/v1, each declared once as msgspec Structs, and their CRDs.

A field exists because it stands here: decoding, validation, the CRD schema and `kubectl explain` all follow.
No I/O and no Kubernetes client in this package.
"""

from vmafx.api.inference import ZerfooInferenceService
from vmafx.api.job import VmafxJob
from vmafx.api.node import VmafxNode
from vmafx.api.training import VmafxModelTraining

KINDS = (VmafxJob, VmafxNode, VmafxModelTraining, ZerfooInferenceService)

__all__ = ["KINDS", "VmafxJob", "VmafxModelTraining", "VmafxNode", "ZerfooInferenceService"]
