"""Generated files, as committed."""

from pathlib import Path

import pytest
import yaml

from vmafx.cli import crd
from vmafx.operator import manifests

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", crd.files(), ids=str)
def test_what_is_committed_is_what_is_declared(path: Path) -> None:
    assert (ROOT / path).read_text() == crd.files()[path]


def test_the_chart_carries_the_same_crds() -> None:
    bases, chart = (sorted((ROOT / folder).iterdir()) for folder in manifests.CRD_FOLDERS)
    assert [path.name for path in bases] == [path.name for path in chart]
    assert [path.read_bytes() for path in bases] == [path.read_bytes() for path in chart]


def test_nobody_is_given_everything() -> None:
    roles = yaml.safe_load_all((ROOT / manifests.ROLES).read_text())
    granted = [rule for role in roles for rule in role["rules"]]
    assert granted
    for rule in granted:
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
        assert "secrets" not in rule["resources"]
