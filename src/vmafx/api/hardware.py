"""The hardware vendors that jobs can run on, with their backends and Pod resources. Pure."""

from typing import Literal, get_args

from vmafx.api.meta import ApiModel

Vendor = Literal["nvidia", "amd", "intel", "apple", "cpu"]
Backend = Literal["cpu", "cuda", "hip", "sycl", "metal"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
BACKEND_VARIABLE = "VMAFX_BACKEND"
# What tells drivers, torch and Triton which devices a process may use, and with what to compile for them.
DEVICE_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
    "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION",
    "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR",
    "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CC", "TRITON_CACHE_DIR", "TRITON_LIBCUDA_PATH",
)  # fmt: skip
AUTO = "auto"  # as text, for no backend: the best engine of the machine


class Hardware(ApiModel):
    """The backend of a vendor's devices, and the resource that a Pod requests to get one."""

    backend: Backend
    device: str  # for people
    resource: str | None = None  # in a Pod's limits; None if no resource is needed or none exists
    cpu_rank: int = 0  # CPU jobs prefer nodes with a lower rank, to leave GPUs to other jobs


# A job without a backend prefers the vendors in this order.
HARDWARE: dict[Vendor, Hardware] = {
    "nvidia": Hardware("cuda", "an NVIDIA GPU", "nvidia.com/gpu", 3),
    "amd": Hardware("hip", "an AMD GPU", "amd.com/gpu", 2),
    "intel": Hardware("sycl", "an Intel GPU", "gpu.intel.com/i915", 1),
    "apple": Hardware("metal", "an Apple GPU", None, 4),
    "cpu": Hardware("cpu", "a CPU"),
}
DEVICES: dict[str, str] = {hardware.backend: hardware.device for hardware in HARDWARE.values()}
INTEL_DEVICE = HARDWARE["intel"].resource or ""  # of the i915 driver; gpu.intel.com/xe for the xe driver


def parse_backend(text: str) -> Backend | None:
    """A backend as people write it; None for `auto` and for an empty text. Raises ValueError."""
    if text in {"", AUTO}:
        return None
    for backend in BACKENDS:
        if text == backend:
            return backend
    raise ValueError(f"{text!r} is not one of {', '.join((AUTO, *BACKENDS))}")


def gpu_resource(vendor: Vendor, intel_device: str) -> str | None:
    """The resource that a Pod requests to get a GPU of this vendor; `intel_device` depends on the driver."""
    return intel_device if vendor == "intel" else HARDWARE[vendor].resource
