"""Where things are kept: binaries in the cache, each cluster in a folder of its own."""

import fcntl
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from vmafx.devcluster.errors import DevClusterError, NoRoom
from vmafx.devcluster.variables import DevSettings
from vmafx.settings import from_environ

SOURCES = Path(str(resources.files("vmafx.devcluster")))  # holds go.mod and go.sum


def kubernetes_version() -> str:
    """The one place that says which Kubernetes this is: go.mod."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise DevClusterError(f"{SOURCES / 'go.mod'} does not require k8s.io/kubernetes")
    return found[1]


def machine() -> str:
    """This machine as Go names it, such as linux-amd64."""
    processor = platform.machine().lower()
    return f"{platform.system().lower()}-{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(processor, processor) }"


def cache() -> Path:
    return Path(from_environ(DevSettings).cache).expanduser() / "vmafx"


def binaries() -> Path:
    return cache() / f"kubernetes-{kubernetes_version()}-{machine()}"


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """One process at a time fills a folder of the cache: the next waits, and finds it filled."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise NoRoom(f"cannot write {error.filename or folder}: {error.strerror}") from error


def clusters() -> Path:
    return Path(from_environ(DevSettings).state).expanduser() / "vmafx" / "dev"


def cluster_folder(name: str) -> Path:
    """The state folder of a cluster; its name must not lead anywhere else."""
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", name):
        raise DevClusterError(f"{name!r} is no name for a cluster: use lower-case letters, digits and '-', at most 40")
    return clusters() / name
