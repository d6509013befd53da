"""A namespace that enforces the restricted Pod Security Standard."""

import pytest

from tests.conftest import Kubectl

LEVELS = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn", "audit")]


@pytest.fixture
def restricted(kubectl: Kubectl, namespace: str) -> str:
    done = kubectl("label", "namespace", namespace, *LEVELS)
    assert done.returncode == 0, done.stderr
    return namespace
