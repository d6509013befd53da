"""Nothing of a cluster is left on this machine: after its end, when its process is killed, and in a start."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from tests.e2e.cluster import PROBE_IMAGE, Cluster, leftovers
from tests.e2e.cluster.errors import UNSUITABLE
from tests.e2e.cluster.leftovers import MAX_CREATION, PREFIX, RunFolder, hierarchies
from tests.e2e.cluster.node import SYSCTLS
from tests.support.agent_process import read
from tests.support.project import ROOT
from tests.support.waiting import until
from vmafx.devcluster.process import ComponentProcess

pytestmark = pytest.mark.cluster

FOLDERS = (
    "/etc/cni", "/run", "/run/containerd", "/run/netns", "/var/lib", "/var/lib/cni", "/var/lib/kubelet",
    "/var/lib/containerd", "/var/log/containers", "/var/log/pods", tempfile.gettempdir(),
)  # fmt: skip
OURS = re.compile(r"cni|containerd|kube|netns|pods|runc|vmafx-e2e")  # other programs change these folders as well
MOUNTS = re.compile(rf"{OURS.pattern}| /(etc|proc|run|sys|var/(lib|log))\b")
# Before any cluster of this run.
LIBEXEC = sorted(Path("/usr/libexec").glob("kubernetes"))
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "uts")


def machine_state(own: str = "") -> set[str]:
    """What a cluster could change for others, a line each. Of clusters, only that in the state folder `own` counts."""
    names = [*SYSCTLS, "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max"]
    sysctls = [path for path in (Path("/proc/sys", name) for name in names) if path.exists()]
    lines = {
        *(line for line in Path("/proc/self/mounts").read_text().splitlines() if MOUNTS.search(line)),
        *_shown("ip", "-oneline", "address").splitlines(),
        *_shown("nft", "list", "ruleset").splitlines(),
        *(f"{path} is {path.read_text()}" for path in sysctls),
        *(str(path) for folder in FOLDERS for path in _entries(folder)),
        *(str(path) for one in hierarchies() for path in one.glob(f"{PREFIX}*")),
    }
    return {line for line in lines if PREFIX not in line or (own and own in line)}


class Footprint(msgspec.Struct, frozen=True):
    """The processes below one, and the namespaces in which they are and it is not."""

    processes: list[ComponentProcess]
    namespaces: set[str]

    @classmethod
    def of(cls, pid: int) -> "Footprint":
        below = _descendants(pid)
        found = {one for descendant in below for one in _namespaces(descendant)} - set(_namespaces(pid))
        return cls([ComponentProcess.running(_command(one), one) for one in below], found)

    def left(self) -> list[str]:
        everywhere = {
            one for path in Path("/proc").iterdir() if path.name.isdecimal() for one in _namespaces(path.name)
        }
        alive = [f"process {one.pid}: {one.name}" for one in self.processes if one.alive()]
        return [*alive, *(self.namespaces & everywhere)]


@contextmanager
def running(until_line: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A process with a cluster, in which a Pod is started, as soon as it has printed a line; and its state folder."""
    script = (
        f"kubectl run probe --image={PROBE_IMAGE} -- wait"
        " && kubectl wait --for=condition=Ready --timeout=60s pod/probe >&2 && exec sleep infinity"
    )
    command = [sys.executable, "-m", "tests.e2e.cluster", "sh", "-c", script]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stderr is not None
            seen = ""
            for line in process.stderr:
                seen += line
                if until_line in line:
                    break
            else:
                pytest.fail(f"the cluster was not started:\n{seen}")
            (folder,) = re.findall(rf"{PREFIX}\w+", seen)
            yield process, folder
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("line", ["starting the nodes", "pod/probe condition met"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left(e2e_cluster: Cluster, line: str, number: signal.Signals) -> None:
    before = machine_state()
    with running(line) as (process, folder):
        footprint = Footprint.of(process.pid)
        assert len(footprint.processes) > 10
        assert len(footprint.namespaces) >= 1 + 3 * 3  # a pid namespace; mount, network and host name of each machine
        process.send_signal(number)
        process.wait(timeout=60)
    until(lambda: not footprint.left(), "its processes and namespaces are gone", 30)
    if number == signal.SIGKILL:
        assert all(folder in one for one in machine_state(folder) - before)
        RunFolder.create().remove()  # as the next start does
    assert machine_state(folder) ^ before == set()
    assert sorted(Path("/usr/libexec").glob("kubernetes")) == LIBEXEC  # where a kubelet creates a folder by default
    assert e2e_cluster.kubectl("get", "--raw", "/readyz").stdout == "ok"  # other clusters go on


def test_a_start_removes_folders_without_a_lock_once_they_are_old() -> None:
    new, old = (Path(tempfile.mkdtemp(prefix=f".{PREFIX}")) for _ in range(2))
    try:
        os.utime(old, (0, time.time() - MAX_CREATION - 1))
        RunFolder.create().remove()
        assert (new.exists(), old.exists()) == (True, False)
    finally:
        new.rmdir()


def test_a_removal_that_takes_long_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tens of thousands of files of images, on a busy disk: only files that come again are an error."""
    folder = RunFolder.create()
    monkeypatch.setattr(leftovers, "END_TIMEOUT", 0.0)
    folder.remove()
    assert not folder.path.exists()


@pytest.mark.parametrize(
    ("prefix", "missing"),
    [
        (["unshare", "--user"], "root: run it as root"),  # no longer root, but may read what root owns
        (["setpriv", "--bounding-set=-sys_admin"], "namespaces (unshare: unshare failed: Operation not permitted)"),
        (["unshare", "--mount", "sh", "-c", 'umount -R /sys/fs/cgroup; exec "$@"', "-"], "cgroup controllers cpu"),
        (["env", "TMPDIR=/var/lib"], "/var/lib cannot hold the state of a cluster"),
    ],
    ids=["not root", "no capabilities", "no cgroups", "unusable TMPDIR"],
)
def test_missing_requirements_are_named(prefix: list[str], missing: str) -> None:
    command = [*prefix, sys.executable, "-m", "tests.e2e"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == UNSUITABLE, done.stderr
    assert missing in done.stderr


def _shown(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def _entries(folder: str) -> list[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return [path for path in Path(folder).iterdir() if OURS.search(str(path))]
    return []


def _descendants(pid: int) -> list[int]:
    children = [int(one) for task in _tasks(pid) for one in task.read_text().split()]
    return [one for child in children for one in (child, *_descendants(child))]


def _tasks(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").glob("*/children"))


def _namespaces(pid: int | str) -> list[str]:
    found = []
    for name in NAMESPACES:
        with suppress(OSError):
            found.append(str(Path(f"/proc/{pid}/ns/{name}").readlink()))
    return found


def _command(pid: int) -> str:
    return read(pid, "cmdline").replace("\0", " ")[:200]
