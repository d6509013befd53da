"""The vendors of hardware that jobs run on: which there are, and what each is called elsewhere. Declared once, here."""

from typing import Literal

from vmafx.api.meta import ApiModel

Vendor = Literal["nvidia", "amd", "intel", "apple", "cpu"]
Backend = Literal["cpu", "cuda", "hip", "sycl", "metal"]


class Hardware(ApiModel):
    """What a vendor's devices are scored with, and what a Pod asks for to get one."""

    backend: Backend
    resource: str | None = None  # in a Pod's limits; None: none is needed, or no Pod can have one
    cpu_rank: int = 0  # among nodes for CPU jobs, the least first: GPUs are there for others


# The first that is there takes a job that does not ask for a backend.
HARDWARE: dict[Vendor, Hardware] = {
    "nvidia": Hardware("cuda", "nvidia.com/gpu", 3),
    "amd": Hardware("hip", "amd.com/gpu", 2),
    "intel": Hardware("sycl", "gpu.intel.com/i915", 1),
    "apple": Hardware("metal", None, 4),
    "cpu": Hardware("cpu"),
}
