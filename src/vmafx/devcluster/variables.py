"""The variables that `vmafx dev` heeds."""

from typing import Annotated

from vmafx.settings import Setting, Settings

ENVTEST_INDEX = "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"
RELEASES = "https://dl.k8s.io/release"


class DevSettings(Settings):
    """Where binaries come from and are kept, and where clusters live."""

    # fmt: off
    assets: Annotated[str, Setting(
        "A folder with binaries of etcd, kube-apiserver and so on, to be used before any other.",
        variable="KUBEBUILDER_ASSETS",
    )]
    fetch: Annotated[bool, Setting(
        "`0`: fetch no ready-made binaries, build them.", default="1",
        variable="VMAFX_DEV_FETCH", parse=lambda text: text != "0",
    )]
    index: Annotated[str, Setting(
        "Another address (https) for the index of envtest archives.",
        variable="VMAFX_DEV_ENVTEST_INDEX", parse=lambda text: text or ENVTEST_INDEX,
    )]
    releases: Annotated[str, Setting(
        "Another address (https) for Kubernetes' release binaries.",
        variable="VMAFX_DEV_RELEASES", parse=lambda text: text or RELEASES,
    )]
    cache: Annotated[str, Setting(
        "Where binaries are kept, below `vmafx/`.", default="~/.cache", variable="XDG_CACHE_HOME",
    )]
    state: Annotated[str, Setting(
        "Where clusters live, below `vmafx/dev/`.", default="~/.local/state", variable="XDG_STATE_HOME",
    )]
    # fmt: on
