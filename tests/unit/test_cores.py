"""The cores that a process may use: its affinity mask, and the CPU limits of its cgroups."""

import os
from pathlib import Path

import pytest

from vmafx.cores import cpu_limit, share_of_cores, usable_cores

AVAILABLE = len(os.sched_getaffinity(0))
SLICE = "sys/fs/cgroup/system.slice"
V1 = "sys/fs/cgroup/cpu"


def machine(folder: Path, cgroup: str, files: dict[str, str]) -> Path:
    """A folder with the /proc and /sys of a machine."""
    for path, content in {"proc/self/cgroup": cgroup, **files}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"{content}\n")
    return folder


@pytest.mark.parametrize(
    ("cgroup", "files", "limit"),
    [
        ("0::/", {"sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        ("0::/", {"sys/fs/cgroup/cpu.max": "max 100000"}, None),
        ("0::/", {}, None),
        ("0::/system.slice/a.service", {f"{SLICE}/a.service/cpu.max": "400000 100000"}, 4.0),
        (
            "0::/system.slice/a.service",
            {f"{SLICE}/a.service/cpu.max": "400000 100000", f"{SLICE}/cpu.max": "50000 100000"},
            0.5,
        ),
        ("0::/system.slice/a.service", {f"{SLICE}/other.service/cpu.max": "50000 100000"}, None),
        ("0::/kubepods/pod1/c1", {"sys/fs/cgroup/cpu.max": "200000 100000"}, 2.0),
        ("0::/../pod1", {"sys/fs/cgroup/cpu.max": "200000 100000"}, None),
        ("4:pids:/\n3:cpu,cpuacct:/\n0::/", {f"{V1}/cpu.cfs_quota_us": "2500", f"{V1}/cpu.cfs_period_us": "1000"}, 2.5),
        ("3:cpuacct,cpu:/pod1", {f"{V1}/pod1/cpu.cfs_quota_us": "1000", f"{V1}/pod1/cpu.cfs_period_us": "2000"}, 0.5),
        ("3:cpu:/", {f"{V1}/cpu.cfs_quota_us": "-1", f"{V1}/cpu.cfs_period_us": "100000"}, None),
        ("3:cpu:/", {f"{V1}/cpu.cfs_quota_us": "1000", f"{V1}/cpu.cfs_period_us": "0"}, None),
        ("3:cpuset:/", {f"{V1}/cpu.cfs_quota_us": "1000", f"{V1}/cpu.cfs_period_us": "2000"}, None),
    ],
)  # fmt: skip
def test_the_lowest_limit_of_the_cgroups_counts(
    tmp_path: Path, cgroup: str, files: dict[str, str], limit: float | None
) -> None:
    assert cpu_limit(machine(tmp_path, cgroup, files)) == limit


@pytest.mark.parametrize(
    ("quota", "cores"), [(1, 1), (100_000, 1), (100_001, min(2, AVAILABLE)), (10**12, AVAILABLE), ("max", AVAILABLE)]
)
def test_a_limit_is_rounded_up_to_whole_cores(tmp_path: Path, quota: int | str, cores: int) -> None:
    assert usable_cores(machine(tmp_path, "0::/", {"sys/fs/cgroup/cpu.max": f"{quota} 100000"})) == cores


def test_without_cgroups_the_affinity_mask_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == AVAILABLE


def test_a_share_of_the_cores_is_for_a_process_without_a_limit(tmp_path: Path) -> None:
    shared = machine(tmp_path / "shared", "0::/", {"sys/fs/cgroup/cpu.max": "max 100000"})
    assert [share_of_cores(share, shared) for share in (1, AVAILABLE, AVAILABLE + 1)] == [1, AVAILABLE, AVAILABLE]
    limited = machine(tmp_path / "limited", "0::/", {"sys/fs/cgroup/cpu.max": f"{AVAILABLE}00000 100000"})
    assert share_of_cores(1, limited) == AVAILABLE
