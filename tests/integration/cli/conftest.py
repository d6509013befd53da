"""Fixtures for the tests of the commands."""

from pathlib import Path

import pytest

from tests.support.commands import Vmafx
from vmafx.devcluster import DevCluster
from vmafx.kube import Client


@pytest.fixture
def vmafx(client: Client, cluster: DevCluster, namespace: str, tmp_path: Path) -> Vmafx:
    """The `vmafx` command with a kubeconfig and a namespace."""
    return Vmafx(cluster.kubeconfig, namespace, tmp_path)
