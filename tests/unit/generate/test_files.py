"""Generated files, as committed."""

from pathlib import Path

import pytest
import yaml

from tests.support.project import ROOT
from vmafx.controller.rbac import SESSION_SECRET
from vmafx.generate.files import CONTROLLER_ROLES, CRD_FOLDERS, OPERATOR_ROLES, files

WANTED = files()
ROLES = [path for path in WANTED if path.parent == OPERATOR_ROLES.parent]


@pytest.mark.parametrize("path", WANTED, ids=str)
def test_what_is_committed_is_what_is_declared(path: Path) -> None:
    assert (ROOT / path).read_text() == WANTED[path]


def test_everything_in_these_folders_is_generated() -> None:
    for folder in (*CRD_FOLDERS, OPERATOR_ROLES.parent):
        assert {ROOT / path for path in WANTED if path.parent == folder} == set((ROOT / folder).iterdir())


def test_the_chart_carries_the_same_crds() -> None:
    bases, chart = (sorted((ROOT / folder).iterdir()) for folder in CRD_FOLDERS)
    assert [path.name for path in bases] == [path.name for path in chart]
    assert [path.read_bytes() for path in bases] == [path.read_bytes() for path in chart]


@pytest.mark.parametrize("path", ROLES, ids=str)
def test_nobody_is_given_everything(path: Path) -> None:
    roles = list(yaml.safe_load_all((ROOT / path).read_text()))
    granted = [rule for role in roles for rule in role["rules"]]
    assert granted
    for rule in granted:
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
    secrets = [(role["kind"], rule) for role in roles for rule in role["rules"] if "secrets" in rule["resources"]]
    assert secrets == ([] if path != CONTROLLER_ROLES else SECRETS)


# In its own namespace: the one that it makes, and no other that it can read.
SECRETS = [
    ("Role", {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}),
    ("Role", {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": [SESSION_SECRET]}),
]
