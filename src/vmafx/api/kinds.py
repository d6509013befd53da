"""The four kinds as a list. Importing a kind from here imports all of them."""

from vmafx.api.inference import ZerfooInferenceService
from vmafx.api.job import VmafxJob
from vmafx.api.node import VmafxNode
from vmafx.api.training import VmafxModelTraining

KINDS = (VmafxJob, VmafxNode, VmafxModelTraining, ZerfooInferenceService)

__all__ = ["KINDS", "VmafxJob", "VmafxModelTraining", "VmafxNode", "ZerfooInferenceService"]
