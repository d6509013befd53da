"""What every Pod of vmafx has in common: it meets the restricted Pod Security Standard. Pure."""

from typing import Any

POD_UID = 65532  # the user of the images
SCRATCH = "/scratch"  # an empty volume: the root filesystem is read-only
SCRATCH_VOLUME: dict[str, Any] = {"name": "scratch", "emptyDir": {}}
SCRATCH_MOUNT = {"name": "scratch", "mountPath": SCRATCH}
SCRATCH_ENVIRONMENT = {"HOME": SCRATCH, "TMPDIR": SCRATCH}

RESTRICTED_POD: dict[str, Any] = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": POD_UID,
        "runAsGroup": POD_UID,
        "fsGroup": POD_UID,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
RESTRICTED_CONTAINER: dict[str, Any] = {
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
}


def env_entries(environment: dict[str, str]) -> list[dict[str, str]]:
    """The `env` of a container. The kubelet expands $(NAME) in values; $$ stands for $."""
    return [{"name": name, "value": value.replace("$", "$$")} for name, value in environment.items()]
