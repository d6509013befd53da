"""What every Pod of vmafx has in common: it meets the restricted Pod Security Standard. Pure."""

from collections.abc import Sequence
from typing import Any

POD_UID = 65532  # the user of the images
SCRATCH_VOLUME, SCRATCH = "scratch", "/scratch"  # an empty volume: the root filesystem is read-only
SCRATCH_ENVIRONMENT = {"HOME": SCRATCH, "TMPDIR": SCRATCH}
SCRATCH_LIMIT_VARIABLE = "VMAFX_SCRATCH_LIMIT"


def scratch_volume(**fields: Any) -> dict[str, Any]:
    """The volume, with these fields of its emptyDir."""
    return {"name": SCRATCH_VOLUME, "emptyDir": fields}


def scratch_mount() -> dict[str, Any]:
    return {"name": SCRATCH_VOLUME, "mountPath": SCRATCH}


def restricted_pod(pull_secrets: Sequence[str] = ()) -> dict[str, Any]:
    """Fields of a Pod's spec; its images are pulled with these Secrets. A caller may change them: they are its own."""
    secrets = {"imagePullSecrets": [{"name": name} for name in pull_secrets]} if pull_secrets else {}
    return {
        **secrets,
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


def restricted_container() -> dict[str, Any]:
    """Fields of a container. A caller may change them: they are its own."""
    return {
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def env_entries(environment: dict[str, str]) -> list[dict[str, str]]:
    """The `env` of a container. The kubelet expands $(NAME) in values; $$ stands for $."""
    return [{"name": name, "value": value.replace("$", "$$")} for name, value in environment.items()]
