"""The kernels compile ahead of time for GPUs of NVIDIA and AMD, with what Triton brings along."""

import os
import subprocess
import sys

import pytest

from tests.support.project import ROOT

KERNELS = {
    "smooth_columns", "smooth_rows", "filter_columns", "vif_reference", "vif_distorted", "wavelets", "adm_reference",
    "adm_impairment", "adm_kept", "absolute_differences", "add_up",
}  # fmt: skip
TARGETS = [
    ("cuda", "80", "32"),
    ("cuda", "90", "32"),
    ("hip", "gfx90a", "64"),
    ("hip", "gfx942", "64"),
    ("hip", "gfx1100", "32"),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: "-".join(target[:2]))
def test_all_kernels_compile(target: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "tests.gpu.compile_kernels", *target]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    sizes = [line.split() for line in done.stdout.splitlines()]
    assert {name for name, _ in sizes} == KERNELS
    assert all(int(size) > 1000 for _, size in sizes)
