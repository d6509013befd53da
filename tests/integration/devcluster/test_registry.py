"""The OCI registry: its binary, and the process."""

from pathlib import Path

import pytest
import requests

from tests.support.registry import running_registry
from vmafx.devcluster import paths
from vmafx.devcluster.errors import ComponentFailed
from vmafx.devcluster.progress import PlainProgress
from vmafx.devcluster.registry import OciRegistry, find_registry


def test_only_a_registry_of_distribution_is_taken_from_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "registry"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    program.write_text("#!/bin/sh\necho another program\n")
    program.chmod(0o755)
    assert find_registry(PlainProgress()).is_relative_to(paths.cache())
    program.write_text("#!/bin/sh\necho registry github.com/distribution/distribution/v3 v3.0.0\n")
    assert find_registry(PlainProgress()) == program


def test_content_survives_a_restart_at_the_same_address(tmp_path: Path) -> None:
    with running_registry(tmp_path) as registry:
        upload = requests.post(f"http://{registry.address}/v2/a/blobs/uploads/", timeout=10)
        assert upload.status_code == 202
        registry.stop()
        registry.start()
        assert requests.get(f"http://{registry.address}/v2/", timeout=10).status_code == 200
    with pytest.raises(requests.ConnectionError):
        requests.get(f"http://{registry.address}/v2/", timeout=10)


def test_a_registry_that_cannot_start_is_an_error_with_its_reason(tmp_path: Path) -> None:
    registry = OciRegistry(find_registry(PlainProgress()), tmp_path, {"htpasswd": {"realm": "x"}})
    with pytest.raises(ComponentFailed, match="registry ended"):
        registry.start()
