"""How many CPU cores this process may use: its affinity mask, and the CPU limits of its cgroups."""

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def usable_cores(root: Path = Path("/")) -> int:
    """Cores that this process can keep busy, at least 1. `root` holds the machine's /proc and /sys."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS has no affinity masks
        cores = os.cpu_count() or 1
    limit = cpu_limit(root)
    return cores if limit is None else max(1, min(cores, math.ceil(limit)))


def share_of_cores(share: int, root: Path = Path("/")) -> int:
    """Cores for a process beside others: as many as its CPU limit allows, or without a limit at most `share`."""
    cores = usable_cores(root)
    return min(cores, share) if cpu_limit(root) is None else cores


def cpu_limit(root: Path = Path("/")) -> float | None:
    """The CPU limit in cores, such as a Pod's `limits.cpu` or systemd's CPUQuota=; None without one.

    The cgroups above the process's own limit it too: the lowest limit counts.
    """
    limits = (limit for folder in _cgroups(root) if (limit := _limit_of(folder)) is not None)
    return min(limits, default=None)


def _cgroups(root: Path) -> Iterator[Path]:
    """The folders of the process's CPU cgroup and those above it, in version 2 or 1; some may not exist.

    A container may see its path on the host, while its own cgroup is mounted at the top.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount = root / "sys/fs/cgroup"
        elif "cpu" in controllers.split(","):
            mount = root / "sys/fs/cgroup/cpu"  # where cpu is mounted with others, a symbolic link to it
        else:
            continue
        cgroup = PurePosixPath(path.lstrip("/"))
        if ".." not in cgroup.parts:  # outside of this process's cgroup namespace
            yield from (mount / folder for folder in (cgroup, *cgroup.parents))


def _limit_of(cgroup: Path) -> float | None:
    quota, _, period = _read(cgroup / "cpu.max").strip().partition(" ")  # "max 100000" without a limit
    if not quota:
        quota, period = _read(cgroup / "cpu.cfs_quota_us").strip(), _read(cgroup / "cpu.cfs_period_us").strip()
    if not (quota.isdecimal() and period.isdecimal() and int(period)):  # -1: no limit, in version 1
        return None
    return int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
