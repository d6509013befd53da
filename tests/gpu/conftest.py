"""Chooses how kernels run, before Triton is imported."""

import os

import pytest
import torch

from vmafx.api.hardware import Backend


def _find_backend() -> Backend:
    if torch.cuda.is_available():  # ROCm builds call their devices cuda, too
        return "hip" if torch.version.hip else "cuda"
    return "sycl" if torch.xpu.is_available() else "cpu"


BACKEND = _find_backend()
ON_DEVICE = BACKEND != "cpu"
if not ON_DEVICE:
    os.environ["TRITON_INTERPRET"] = "1"
os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # as in a device process
torch.set_num_threads(1)  # each process of the tests


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device({"sycl": "xpu", "cpu": "cpu"}.get(BACKEND, "cuda"))
