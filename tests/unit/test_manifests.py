"""Generated files, as committed."""

from pathlib import Path

import pytest
import yaml

from vmafx.cli import crd
from vmafx.controller import rbac
from vmafx.operator import manifests

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", crd.files(), ids=str)
def test_what_is_committed_is_what_is_declared(path: Path) -> None:
    assert (ROOT / path).read_text() == crd.files()[path]


def test_the_chart_carries_the_same_crds() -> None:
    bases, chart = (sorted((ROOT / folder).iterdir()) for folder in manifests.CRD_FOLDERS)
    assert [path.name for path in bases] == [path.name for path in chart]
    assert [path.read_bytes() for path in bases] == [path.read_bytes() for path in chart]


@pytest.mark.parametrize("path", [manifests.ROLES, *rbac.files()], ids=str)
def test_nobody_is_given_everything(path: Path) -> None:
    roles = list(yaml.safe_load_all((ROOT / path).read_text()))
    granted = [rule for role in roles for rule in role["rules"]]
    assert granted
    for rule in granted:
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
    secrets = [(role["kind"], rule) for role in roles for rule in role["rules"] if "secrets" in rule["resources"]]
    assert secrets == ([] if path != rbac.OWN else SECRETS)


# In its own namespace: the one that it makes, and no other that it can read.
SECRETS = [
    ("Role", {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}),
    ("Role", {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": [rbac.SESSION_SECRET]}),
]
