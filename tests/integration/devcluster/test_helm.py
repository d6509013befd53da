"""Helm: which one on PATH is taken."""

from pathlib import Path

import pytest

from vmafx.devcluster import paths
from vmafx.devcluster.helm import find_helm
from vmafx.devcluster.progress import PlainProgress


@pytest.mark.parametrize(
    ("version", "taken"), [("v3.18.0", True), ("v4.0.1", True), ("v3.17.4", False), ("v2.17.0", False), ("none", False)]
)
def test_an_old_helm_on_the_path_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, taken: bool
) -> None:
    program = tmp_path / "helm"
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = find_helm(PlainProgress())
    assert (found == program) == taken
    assert taken or found.is_relative_to(paths.cache())
