"""Which Kubernetes nodes a GPU demand fits: resources, node affinity, and the labels that state a node's GPU memory.

    NVIDIA  nvidia.com/gpu.memory     number of MiB       GPU Feature Discovery
    AMD     amd.com/gpu.vram          text, such as 64G   node labeller
    Intel   gpu.intel.com/memory.max  number of bytes     Node Feature Discovery

The operator's settings can name other labels, as `key=unit`. Pure.
"""

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any, Literal

import msgspec

from vmafx.api.hardware import INTEL_DEVICE, Vendor, gpu_resource
from vmafx.api.units import quantity

Unit = Literal["1", "Mi", "G"]
DIVISORS: dict[Unit, int] = {"1": 1, "Mi": 1 << 20, "G": 1 << 30}
# Affinity cannot compare text such as 64G: every size that counts as enough is named.
SIZES = (4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 72, 80, 96, 128, 141, 144, 160, 180, 192, 256, 288,
         320, 384, 432, 512, 576, 768, 1024)  # fmt: skip
VENDOR_NAMES: dict[Vendor, str] = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel", "apple": "Apple"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class MemoryLabel(msgspec.Struct, frozen=True):
    """A node label that states the memory of a GPU: a number of bytes (1) or MiB (Mi), or text such as 64G (G)."""

    key: str
    unit: Unit

    @classmethod
    def parse(cls, text: str) -> "MemoryLabel":
        key, _, unit = text.partition("=")
        if not key or unit not in DIVISORS:
            raise ValueError(f"{text!r} is not LABEL=UNIT with a unit of 1, Mi or G, such as nvidia.com/gpu.memory=Mi")
        return cls(key, unit)

    def expression(self, memory: Decimal) -> dict[str, Any]:
        """The node selector requirement for at least `memory` bytes."""
        needed = int((memory / DIVISORS[self.unit]).to_integral_value(ROUND_CEILING))
        if self.unit == "G":
            sizes = [needed, *(size for size in SIZES if size > needed)]  # never none: the server refuses that
            return {"key": self.key, "operator": "In", "values": [f"{size}G" for size in sizes]}
        return {"key": self.key, "operator": "Gt", "values": [str(needed - 1)]}

    def has(self, labels: Mapping[str, str], memory: Decimal) -> bool:
        """Whether a node with these labels meets the requirement, as the scheduler decides it."""
        required, value = self.expression(memory), labels.get(self.key)
        if required["operator"] == "In":
            return value in required["values"]
        return value is not None and value.isdecimal() and int(value) > int(required["values"][0])


MEMORY_LABELS: dict[Vendor, MemoryLabel] = {
    "nvidia": MemoryLabel("nvidia.com/gpu.memory", "Mi"),
    "amd": MemoryLabel("amd.com/gpu.vram", "G"),
    "intel": MemoryLabel("gpu.intel.com/memory.max", "1"),
}


class GpuOptions(msgspec.Struct, frozen=True):
    """The names that device plugins and feature discovery use on this cluster."""

    intel_device: str = INTEL_DEVICE
    memory_labels: dict[Vendor, MemoryLabel] = msgspec.field(default_factory=lambda: dict(MEMORY_LABELS))

    def resource(self, vendor: Vendor | None) -> str | None:
        return gpu_resource(vendor, self.intel_device) if vendor is not None else None


class GpuDemand(msgspec.Struct, frozen=True):
    """What a replica needs of a node: a GPU of a vendor, an amount of GPU memory, or both."""

    vendor: Vendor | None
    memory: int | str

    @classmethod
    def of(cls, vendor: Vendor | None, memory: int | str | None) -> "GpuDemand | None":
        """None if no GPU is needed."""
        if vendor == "cpu" or (vendor is None and not memory):
            return None
        return cls(vendor, memory or 0)

    def __str__(self) -> str:
        parts = [
            f"an {VENDOR_NAMES[self.vendor]} GPU" if self.vendor else "a GPU",
            f"{self.memory} of memory" if self.memory else "",
        ]
        return " with ".join(part for part in parts if part)

    def devices(self, options: GpuOptions) -> list[str]:
        """The resources of the GPUs that meet the demand."""
        vendors = options.memory_labels if self.vendor is None else [self.vendor]
        return [device for vendor in vendors if (device := options.resource(vendor)) is not None]

    def affinity(self, options: GpuOptions) -> dict[str, Any]:
        """Memory is required, as far as labels state it. A vendor alone is preferred: its resource decides."""
        labels = self._labels(options)
        if self.vendor == "apple":
            return {REQUIRED: _terms([{"key": "kubernetes.io/os", "operator": "In", "values": ["darwin"]}])}
        if self.memory:
            amount = quantity(self.memory)
            return {REQUIRED: _terms(*([label.expression(amount)] for label in labels))}
        preferences = [{"matchExpressions": [{"key": label.key, "operator": "Exists"}]} for label in labels]
        return {PREFERRED: [{"weight": 100, "preference": preference} for preference in preferences]}

    def fits(self, labels: Mapping[str, str], allocatable: Mapping[str, str], options: GpuOptions) -> bool:
        """Whether a node could run a replica, if it were empty."""
        resource = options.resource(self.vendor)
        if self.vendor == "apple":
            return labels.get("kubernetes.io/os") == "darwin"
        if resource is not None and not quantity(allocatable.get(resource, "0")):
            return False
        return not self.memory or any(label.has(labels, quantity(self.memory)) for label in self._labels(options))

    def _labels(self, options: GpuOptions) -> list[MemoryLabel]:
        return [label for vendor, label in options.memory_labels.items() if self.vendor in {None, vendor}]


def _terms(*alternatives: list[dict[str, Any]]) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": expressions} for expressions in alternatives]}
