"""Chooses how kernels run, before Triton is imported."""

import os

import pytest
import torch

ON_DEVICE = torch.cuda.is_available()
if not ON_DEVICE:
    os.environ["TRITON_INTERPRET"] = "1"
os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # as in a device process
torch.set_num_threads(1)  # each process of the tests


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if ON_DEVICE else "cpu")
