"""The device of a backend, as torch finds it. Only device processes import this."""

import os
import shutil
from importlib.util import find_spec
from typing import Any

import torch

from vmafx.api.hardware import Backend
from vmafx.scoring.engines.gpu.messages import DeviceReady

OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation, and its namesake in HIP


class NoDevice(Exception):
    """The reason why there is no device to measure on."""


def find_device(backend: Backend) -> tuple[torch.device, DeviceReady]:
    """The device of a backend with the most free memory. Raises NoDevice."""
    if backend == "cpu":
        return torch.device("cpu"), DeviceReady("CPU", str(torch.__version__))
    if backend == "metal":
        if not torch.backends.mps.is_available():
            raise NoDevice("torch finds no Metal device")
        return torch.device("mps"), DeviceReady("Metal", str(torch.__version__))
    built = {"cuda": torch.version.cuda, "hip": torch.version.hip, "sycl": torch.version.xpu}[backend]
    name = {"cuda": "CUDA", "hip": "ROCm", "sycl": "XPU"}[backend]
    if built is None:
        raise NoDevice(f"torch {torch.__version__} is not a build for {name}: install one")
    module: Any = torch.xpu if backend == "sycl" else torch.cuda  # ROCm builds call their devices cuda, too
    if not module.is_available():
        raise NoDevice(f"torch {torch.__version__} finds no {name} device: check its driver and what this process sees")
    if find_spec("triton") is None:
        raise NoDevice("Triton is not installed, which compiles the kernels: pip install 'vmafx[gpu]'")
    if not any(map(shutil.which, (os.environ.get("CC") or "gcc", "clang"))):
        raise NoDevice("Triton needs a C compiler: install gcc, or set CC to one")
    try:
        index = _most_free(module)
    except RuntimeError as error:
        raise NoDevice(f"the {name} device cannot be used: {str(error).splitlines()[0]}") from error
    import triton  # noqa: PLC0415 - is not on every platform

    device = torch.device("xpu" if backend == "sycl" else "cuda", index)
    module.set_device(device)
    return device, DeviceReady(module.get_device_name(device), str(torch.__version__), triton.__version__)


def _most_free(module: Any) -> int:
    """The number of the device with the most free memory. To ask several, a context is made on each of them."""
    devices = range(module.device_count())
    return max(devices, key=lambda number: int(module.mem_get_info(number)[0])) if len(devices) > 1 else 0


def free_memory(device: torch.device) -> tuple[int, int]:
    """Free and total bytes of memory; zeros if the device does not tell."""
    if device.type not in {"cuda", "xpu"}:
        return 0, 0
    free, total = getattr(torch, device.type).mem_get_info(device)
    return int(free), int(total)


def release_memory(device: torch.device) -> None:
    """Gives memory that is not used any more back to the device, for other processes."""
    if device.type in {"cuda", "xpu", "mps"}:
        getattr(torch, device.type).empty_cache()


def is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed: by torch, the driver, or Triton, which has no type for it."""
    if isinstance(error, torch.OutOfMemoryError) or getattr(error, "error_code", None) == OUT_OF_MEMORY:
        return True
    return any(words in str(error) for words in ("out of memory", "can't allocate memory"))
