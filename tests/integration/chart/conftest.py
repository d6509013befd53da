"""A namespace that enforces the restricted Pod Security Standard, and a cluster for whole releases."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Kubectl
from tests.support.chart_processes import Release
from vmafx.devcluster import ClusterOptions, DevCluster

_numbers = itertools.count()
LEVELS = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn", "audit")]


@pytest.fixture
def restricted(kubectl: Kubectl, namespace: str) -> str:
    done = kubectl("label", "namespace", namespace, *LEVELS)
    assert done.returncode == 0, done.stderr
    return namespace


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """A cluster for the tests of a module: Helm installs CRDs and ClusterRoles there, which other tests have too."""
    with DevCluster(tmp_path_factory.mktemp("state") / "chart", ClusterOptions(tethered=True)) as cluster:
        yield cluster


@pytest.fixture
def release(own_cluster: DevCluster, kubectl_path: Path, tmp_path: Path) -> Iterator[Release]:
    """A release that is not installed yet, in a namespace that enforces restricted Pods."""
    release = Release(own_cluster, f"chart-{next(_numbers)}", kubectl_path, tmp_path)
    release.kubectl("create", "namespace", release.namespace)
    release.kubectl("label", "namespace", release.namespace, *LEVELS)
    yield release
    release.close()
    if release.name in release.helm("list", "--short").stdout.split():
        release.helm("uninstall", release.name, "--no-hooks")  # no kubelet runs their Pods
