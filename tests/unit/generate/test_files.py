"""The committed generated files are up to date and grant no more than needed."""

from pathlib import Path

import pytest
import yaml

from tests.support.project import ROOT
from vmafx.controller.rbac import SESSION_SECRET
from vmafx.generate.files import CONTROLLER_ROLES, CRD_FOLDERS, OPERATOR_ROLES, files
from vmafx.jobs.sample_keys import SAMPLES_SECRET

FILES = files(ROOT)
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


def secret_rule(*verbs: str, names: tuple[str, ...] = ()) -> dict[str, list[str]]:
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": list(verbs)}
    return {**rule, "resourceNames": list(names)} if names else rule


READ_SAMPLE_KEY = ("ClusterRole", secret_rule("get", names=(SAMPLES_SECRET,)))
SECRETS = {
    # The operator makes the key of samples in the namespaces of trainings; it reads no other Secret.
    OPERATOR_ROLES: [
        READ_SAMPLE_KEY,
        ("ClusterRole", secret_rule("create")),
        ("ClusterRole", secret_rule("patch", names=(SAMPLES_SECRET,))),
    ],
    # The controller reads it too, and has a Secret for sessions in its own namespace.
    CONTROLLER_ROLES: [
        READ_SAMPLE_KEY,
        ("Role", secret_rule("create")),
        ("Role", secret_rule("get", "patch", names=(SESSION_SECRET,))),
    ],
}


@pytest.mark.parametrize("path", ROLES, ids=str)
def test_no_role_has_wildcards_or_reads_any_secret_but_our_keys(path: Path) -> None:
    roles = list(yaml.safe_load_all((ROOT / path).read_text()))
    granted = [rule for role in roles for rule in role["rules"]]
    assert granted
    for rule in granted:
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
    secrets = [(role["kind"], rule) for role in roles for rule in role["rules"] if "secrets" in rule["resources"]]
    assert secrets == SECRETS.get(path, [])
