"""The variables that `vmafx dev` heeds."""

from vmafx.settings import Setting

VARIABLES = (
    Setting("assets", "A folder with binaries of etcd, kube-apiserver and so on, to be used before any other.",
            variable="KUBEBUILDER_ASSETS"),
    Setting("fetch", "`0`: fetch no ready-made binaries, build them.", "1", variable="VMAFX_DEV_FETCH"),
    Setting("index", "Another address (https) for the index of envtest archives.", variable="VMAFX_DEV_ENVTEST_INDEX"),
    Setting("releases", "Another address (https) for Kubernetes' release binaries.", variable="VMAFX_DEV_RELEASES"),
    Setting("cache", "Where binaries are kept, below `vmafx/`.", "~/.cache", variable="XDG_CACHE_HOME"),
    Setting("state", "Where clusters live, below `vmafx/dev/`.", "~/.local/state", variable="XDG_STATE_HOME"),
)  # fmt: skip
