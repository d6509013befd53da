"""Settings of the operator for inference services."""

from typing import Annotated

from vmafx.api.hardware import Vendor
from vmafx.inference.gpu import GpuOptions, MemoryLabel
from vmafx.inference.manifests import ServingOptions
from vmafx.operator.inference.gateway import GatewayRef, parse_domain
from vmafx.operator.settings import PULL_SECRETS, WORKER_IMAGE
from vmafx.settings import Setting, Settings


class InferenceSettings(Settings):
    """Serving images, gateway, GPU labels."""

    # fmt: off
    worker_image: Annotated[str, WORKER_IMAGE]
    pull_secrets: Annotated[tuple[str, ...], PULL_SECRETS]
    serving_image: Annotated[str, Setting(
        "Image of inference services without spec.image. It must serve the model MODEL_REF over HTTP on the port PORT "
        "(default: the scoring server, `vmafx serve` in the image of VMAFX_WORKER_IMAGE).",
        variable="VMAFX_SERVING_IMAGE",
    )]
    gateway: Annotated[GatewayRef | None, Setting(
        "Gateway that routes requests to inference services and splits them by weight, as NAMESPACE/NAME or "
        "NAMESPACE/NAME/LISTENER (default: none; requests are split by the number of replicas).",
        variable="VMAFX_SERVING_GATEWAY", parse=GatewayRef.parse,
    )]
    domain: Annotated[str, Setting(
        "Domain of inference services at the gateway: the host of a service is NAME.NAMESPACE.DOMAIN.",
        default="inference.local", variable="VMAFX_SERVING_DOMAIN", parse=parse_domain,
    )]
    nvidia_memory: Annotated[MemoryLabel, Setting(
        "Label of Kubernetes nodes with the memory of an NVIDIA GPU, as LABEL=UNIT; the unit is 1 (bytes), Mi (MiB) "
        "or G (text such as 64G).",
        default="nvidia.com/gpu.memory=Mi", variable="VMAFX_NVIDIA_MEMORY_LABEL", parse=MemoryLabel.parse,
    )]
    amd_memory: Annotated[MemoryLabel, Setting(
        "The same for an AMD GPU.",
        default="amd.com/gpu.vram=G", variable="VMAFX_AMD_MEMORY_LABEL", parse=MemoryLabel.parse,
    )]
    intel_memory: Annotated[MemoryLabel, Setting(
        "The same for an Intel GPU.",
        default="gpu.intel.com/memory.max=1", variable="VMAFX_INTEL_MEMORY_LABEL", parse=MemoryLabel.parse,
    )]
    # fmt: on

    def options(self, intel_device: str) -> ServingOptions:
        memory: dict[Vendor, MemoryLabel] = {
            "nvidia": self.nvidia_memory,
            "amd": self.amd_memory,
            "intel": self.intel_memory,
        }
        return ServingOptions(
            image=self.serving_image,
            gpu=GpuOptions(intel_device, memory),
            vmafx_image=self.worker_image,
            domain=self.domain if self.gateway is not None else "",
            pull_secrets=self.pull_secrets,
        )
