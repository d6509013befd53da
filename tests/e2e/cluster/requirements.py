"""What the machine must have; missing Debian packages are installed if that is possible."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.cluster.errors import MachineUnsuitable
from tests.e2e.cluster.leftovers import UNIFIED, hierarchies, state_base
from tests.e2e.cluster.node import CNI_PLUGINS
from tests.e2e.cluster.process import SYSTEM_PATH
from vmafx.devcluster.progress import ProgressReporter

PROGRAMS = {  # by program: the Debian package
    "containerd": "containerd",
    "ctr": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "mount": "mount",
    "hostname": "hostname",
    **{str(CNI_PLUGINS / name): "containernetworking-plugins" for name in ("ptp", "host-local", "loopback")},
}
CONTROLLERS = {"cpu", "memory", "pids"}  # of cgroups, which the kubelet needs
DOWNLOAD_TIMEOUT = 300.0  # seconds
# Each line is tried in namespaces of its own, in which it changes nothing of the machine.
_TRIALS = {
    "network interfaces of kind veth": "ip link add one type veth peer name two",
    "network bridges": "ip link add one type bridge",
    "nftables with connection tracking": "nft 'add table ip t; add chain ip t c {{ type nat hook output priority 0; }};"
    " add rule ip t c ct state new counter'",
    "overlayfs in {folder}": "cd {folder} && mkdir a b c d && mount -t overlay -o lowerdir=a,upperdir=b,workdir=c o d",
}


def check_machine() -> None:
    """Raise MachineUnsuitable with all that is missing. Changes nothing."""
    missing: list[str] = []
    if sys.platform != "linux":
        raise MachineUnsuitable("missing: Linux; the cluster runs containers")
    if os.geteuid() != 0:
        missing.append("root: run it as root")
    try:
        state_base()
    except MachineUnsuitable as error:
        missing.append(str(error))
    if packages := missing_packages():
        missing.append(f"programs: on Debian, apt-get install {' '.join(packages)}")
    if not missing:
        missing += _missing_cgroups() + _missing_in_kernel()
    if missing:
        raise MachineUnsuitable(f"this machine cannot run the cluster; missing: {'; '.join(missing)}")


def install_packages(progress: ProgressReporter, more: Mapping[str, str] = {}) -> None:
    """Install the missing Debian packages, if this is root on Debian; otherwise `check_machine` names them.

    `more` are other programs, as in PROGRAMS.
    """
    packages = missing_packages({**PROGRAMS, **more})
    if not packages or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    progress.step(f"installing {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["install", "--yes", "--no-install-recommends", *packages]
    # What uses the network has a time limit; dpkg, which follows, must not be killed in the middle.
    steps = [(["update"], DOWNLOAD_TIMEOUT), ([*install, "--download-only"], DOWNLOAD_TIMEOUT), (install, None)]
    for command, timeout in steps:
        try:
            done = subprocess.run(
                ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=60", *command],
                env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            progress.step(f"  apt-get {command[0]} took longer than {DOWNLOAD_TIMEOUT:.0f} s")
            return
        if done.returncode != 0:
            progress.step(f"  apt-get {command[0]} failed: {' '.join(done.stderr.split())[-500:]}")


def missing_packages(programs: Mapping[str, str] = PROGRAMS) -> list[str]:
    return sorted({package for program, package in programs.items() if not shutil.which(program, path=SYSTEM_PATH)})


def _missing_cgroups() -> list[str]:
    missing = []
    found = hierarchies()
    controllers: set[str] = set()
    for hierarchy in found:
        file = hierarchy / "cgroup.controllers"
        controllers |= set(file.read_text().split() if file.exists() else hierarchy.name.split(","))
        if not os.access(hierarchy, os.W_OK):
            missing.append(f"write access to {hierarchy}")
        elif hierarchy == UNIFIED and file.exists() and not _can_delegate(hierarchy):
            missing.append(f"controllers below {hierarchy}: move the processes of this container to a child cgroup")
    if lacking := sorted(CONTROLLERS - controllers):
        where = "no cgroups are mounted" if not found else "not among those mounted"
        missing.append(f"cgroup controllers {', '.join(lacking)} ({where})")
    return missing


def _can_delegate(cgroup: Path) -> bool:
    """Whether children of a cgroup (v2) can have controllers: only if it is the root, or holds no process."""
    enabled = set((cgroup / "cgroup.subtree_control").read_text().split())
    is_root = not (cgroup / "cgroup.type").exists()
    return enabled >= CONTROLLERS or is_root or not (cgroup / "cgroup.procs").read_text()


def _missing_in_kernel() -> list[str]:
    kinds = ["--pid", "--mount", "--net", "--uts"]
    if error := _try(["unshare", "--fork", *kinds, "true"]):
        return [f"pid, mount, network and host name namespaces ({error}): a container must be privileged"]
    missing = []
    for what, script in _TRIALS.items():
        with tempfile.TemporaryDirectory(prefix="vmafx-check-") as folder:
            if error := _try(["unshare", "--fork", *kinds, "sh", "-euc", script.format(folder=folder)]):
                missing.append(f"{what.format(folder=Path(folder).parent)} ({error})")
    return missing


def _try(command: list[str]) -> str:
    """What the command prints if it fails."""
    done = subprocess.run(
        command, env={**os.environ, "PATH": SYSTEM_PATH}, capture_output=True, text=True, timeout=30, check=False
    )
    return "" if done.returncode == 0 else " ".join(done.stderr.split())[:200] or f"status {done.returncode}"
