"""The state folder of a run and its cgroups: all that the kernel does not remove with the run's processes."""

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from tests.e2e.cluster.errors import E2EError, MachineUnsuitable

PREFIX = "vmafx-e2e-"
MAX_CREATION = 60.0  # seconds from the creation of a folder to its lock and name
MAX_FOLDER = 40  # characters: the path of a Unix socket in it has at most 107
END_TIMEOUT = 30.0  # seconds for killed processes to end
UNIFIED = Path("/sys/fs/cgroup")  # where cgroup v2 is mounted, unless v1 is in use too
CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "io", "hugetlb")  # of cgroup v2, for Pods
_COVERED = ("/run", "/var/lib", "/var/log")  # nodes have their own


class RunFolder:
    """A locked state folder; cgroups with its name. `remove` is safe at any time, also for a run that was killed."""

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls) -> "RunFolder":
        """Remove what runs that are dead have left, and make a new folder."""
        base = state_base()
        for path in base.glob(f"{PREFIX}*"):
            if left := cls._adopt(path):
                left.remove()
        for path in base.glob(f".{PREFIX}*"):  # of runs that were killed before they had a lock
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > MAX_CREATION:
                    shutil.rmtree(path, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=base))
        lock = (part / "lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return cls(part.rename(part.with_name(part.name[1:])), lock)  # locked from the first moment on

    @classmethod
    def _adopt(cls, path: Path) -> "RunFolder | None":
        """The folder of another run, if that run is dead."""
        with suppress(OSError):
            lock = (path / "lock").open("a")
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return cls(path, lock)
            lock.close()
        return None

    def make_cgroup(self, name: str) -> str:
        """A cgroup in every hierarchy; its path, as the kubelet wants it."""
        for hierarchy in hierarchies():
            for path in (hierarchy / self.path.name, hierarchy / self.path.name / name):
                path.mkdir(exist_ok=True)
                if (hierarchy / "cgroup.controllers").exists():
                    if hierarchy == UNIFIED:
                        _delegate(path.parent)
                        _delegate(path)
                    continue
                for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new cgroup, which then can have no process
                    if (path / file).exists():
                        (path / file).write_text((path.parent / file).read_text())
        return f"/{self.path.name}/{name}"

    def remove(self) -> None:
        """Remove the cgroups, then the folder. The run's processes have been killed."""
        deadline = time.monotonic() + END_TIMEOUT
        while left := [path for path in map(self._cgroup, hierarchies()) if not _remove_tree(path)]:
            if time.monotonic() > deadline:
                raise E2EError(f"processes of {self.path.name} do not end: see cgroup.procs below {left[0]}")
            time.sleep(0.05)
        shutil.rmtree(self.path, ignore_errors=True)  # with the files of images, which takes long on a busy disk
        deadline = time.monotonic() + END_TIMEOUT
        while self.path.exists():  # a process that was about to end has written something
            if time.monotonic() > deadline:
                raise E2EError(f"cannot remove {self.path}")
            shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()

    def _cgroup(self, hierarchy: Path) -> Path:
        return hierarchy / self.path.name


def state_base() -> Path:
    """Where state folders are. Raises MachineUnsuitable."""
    base = Path(tempfile.gettempdir()).resolve()
    if len(str(base)) > MAX_FOLDER or any(base.is_relative_to(folder) for folder in _COVERED):
        raise MachineUnsuitable(f"{base} cannot hold the state of a cluster: set TMPDIR to a folder such as /tmp")
    return base


def hierarchies() -> list[Path]:
    """The mounted cgroup hierarchies."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(mount[1]) for mount in mounts if mount[2] in {"cgroup", "cgroup2"}]


def _delegate(cgroup: Path) -> None:
    """Let children of a cgroup (v2) have the controllers that Pods need, as far as they exist."""
    there = (cgroup / "cgroup.controllers").read_text().split()
    enabled = (cgroup / "cgroup.subtree_control").read_text().split()
    wanted = [name for name in CONTROLLERS if name in there and name not in enabled]
    if wanted:
        (cgroup / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in wanted))


def _remove_tree(cgroup: Path) -> bool:
    """Remove a cgroup and those below it; False if a process is still in one."""
    for folder, _, _ in os.walk(cgroup, topdown=False):
        try:
            Path(folder).rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            return False
    return True
