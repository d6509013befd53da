"""Folders of binaries and clusters, and the environment variables of `vmafx dev`."""

import fcntl
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Annotated

from vmafx.devcluster.errors import DevClusterError, InsufficientDisk
from vmafx.settings import Setting, Settings, from_environ

ENVTEST_INDEX = "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"
RELEASES = "https://dl.k8s.io/release"


class DevSettings(Settings):
    """The sources and the cache of binaries, and the folder of clusters."""

    # fmt: off
    assets: Annotated[str, Setting(
        "Folder with binaries of etcd, kube-apiserver and the other components; used first.",
        variable="KUBEBUILDER_ASSETS",
    )]
    fetch: Annotated[bool, Setting(
        "`0`: build binaries from source instead of downloading them.", default="1",
        variable="VMAFX_DEV_FETCH", parse=lambda text: text != "0",
    )]
    index: Annotated[str, Setting(
        "URL (https) of another index of envtest archives.",
        variable="VMAFX_DEV_ENVTEST_INDEX", parse=lambda text: text or ENVTEST_INDEX,
    )]
    releases: Annotated[str, Setting(
        "URL (https) of another source of Kubernetes release binaries.",
        variable="VMAFX_DEV_RELEASES", parse=lambda text: text or RELEASES,
    )]
    cache: Annotated[str, Setting(
        "Base folder of the cache; binaries are kept in `vmafx/`.", default="~/.cache", variable="XDG_CACHE_HOME",
    )]
    state: Annotated[str, Setting(
        "Base folder of state; clusters are kept in `vmafx/dev/`.", default="~/.local/state", variable="XDG_STATE_HOME",
    )]
    # fmt: on


SOURCES = Path(str(resources.files("vmafx.devcluster")))  # holds go.mod and go.sum


def kubernetes_version() -> str:
    """The version of Kubernetes, which go.mod declares."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise DevClusterError(f"{SOURCES / 'go.mod'} does not require k8s.io/kubernetes")
    return found[1]


def platform_name() -> str:
    """The platform as Go names it, such as linux-amd64."""
    processor = platform.machine().lower()
    return f"{platform.system().lower()}-{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(processor, processor) }"


def cache() -> Path:
    return Path(from_environ(DevSettings).cache).expanduser() / "vmafx"


def binaries() -> Path:
    return cache() / f"kubernetes-{kubernetes_version()}-{platform_name()}"


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a cache folder: one process fills it while others wait."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise InsufficientDisk(f"cannot write {error.filename or folder}: {error.strerror}") from error


def clusters() -> Path:
    return Path(from_environ(DevSettings).state).expanduser() / "vmafx" / "dev"


def cluster_folder(name: str) -> Path:
    """The state folder of a cluster. Names that could lead to another folder are refused."""
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", name):
        raise DevClusterError(
            f"{name!r} is not a valid cluster name: use lower-case letters, digits and '-', at most 40"
        )
    return clusters() / name
