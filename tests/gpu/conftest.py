"""Chooses how kernels run, before Triton is imported, and shares the device among the processes of the tests."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture(autouse=True)
def share_of_the_device(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test marked `whole_device` waits until no other test uses the device, and others wait for it."""
    whole = request.node.get_closest_marker("whole_device") is not None
    folder = _shared_folder(tmp_path_factory)
    with (folder / "queue.lock").open("w") as queue, (folder / "device.lock").open("w") as device_lock:
        fcntl.flock(queue, fcntl.LOCK_EX)  # while one test waits, none that comes later goes before it
        fcntl.flock(device_lock, fcntl.LOCK_EX if whole else fcntl.LOCK_SH)
        fcntl.flock(queue, fcntl.LOCK_UN)
        yield


def _shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the test run: the folder of a process of pytest-xdist is inside it."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
