"""The committed generated files are up to date and grant no more than needed."""

from pathlib import Path

import pytest
import yaml

from tests.support.project import ROOT
from vmafx.controller.rbac import SESSION_SECRET
from vmafx.generate.files import CONTROLLER_ROLES, CRD_FOLDERS, OPERATOR_ROLES, files
from vmafx.jobs.sample_keys import SAMPLES_SECRET

FILES = files()
ROLES = [path for path in FILES if path.parent == OPERATOR_ROLES.parent]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_the_committed_file_is_up_to_date(path: Path) -> None:
    assert (ROOT / path).read_text() == FILES[path]


def test_the_folders_contain_only_generated_files() -> None:
    for folder in (*CRD_FOLDERS, OPERATOR_ROLES.parent):
        assert {ROOT / path for path in FILES if path.parent == folder} == set((ROOT / folder).iterdir())


def test_the_chart_has_the_same_crds() -> None:
    bases, chart = (sorted((ROOT / folder).iterdir()) for folder in CRD_FOLDERS)
    assert [path.name for path in bases] == [path.name for path in chart]
    assert [path.read_bytes() for path in bases] == [path.read_bytes() for path in chart]


@pytest.mark.parametrize("path", ROLES, ids=str)
def test_no_role_has_wildcards_and_only_named_secrets_are_read(path: Path) -> None:
    roles = list(yaml.safe_load_all((ROOT / path).read_text()))
    granted = [rule for role in roles for rule in role["rules"]]
    assert granted
    for rule in granted:
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
    secrets = [(role["kind"], rule) for role in roles for rule in role["rules"] if "secrets" in rule["resources"]]
    assert secrets == SECRETS.get(path, [])


SAMPLE_KEY = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": [SAMPLES_SECRET]}
# In the controller's own namespace: it creates its session Secret and reads no other.
SESSION_KEY = [
    ("Role", {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}),
    ("Role", {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": [SESSION_SECRET]}),
]
SECRETS = {CONTROLLER_ROLES: [("ClusterRole", SAMPLE_KEY), *SESSION_KEY], OPERATOR_ROLES: [("ClusterRole", SAMPLE_KEY)]}
