"""The files that are generated from declarations, and where they belong."""

from pathlib import Path

from vmafx.api import KINDS
from vmafx.api.crd import definition, file_name, to_yaml
from vmafx.api.roles import EVENTS
from vmafx.operator import rbac
from vmafx.operator.kinds import KINDS as RECONCILED

CRD_FOLDERS = (Path("config/crd/bases"), Path("deploy/helm/vmafx/crds"))
ROLES = Path("config/rbac/role.yaml")


def files() -> dict[Path, str]:
    """Every generated file, by its path in the project. The chart carries the same CRDs, byte for byte."""
    crds = {file_name(kind): to_yaml(definition(kind)) for kind in KINDS}
    permissions = tuple(permission for kind in RECONCILED for permission in kind.permissions)
    roles = to_yaml(rbac.operator_role((*permissions, *EVENTS)), rbac.leader_role(), *rbac.people_roles())
    return {folder / name: content for folder in CRD_FOLDERS for name, content in crds.items()} | {ROLES: roles}


def crds_as_one() -> str:
    """All CRDs in one stream, for kubectl."""
    return to_yaml(*(definition(kind) for kind in KINDS))
