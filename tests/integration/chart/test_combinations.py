"""Every combination of vendor, workload and operator is accepted where Pods have to be restricted."""

from collections.abc import Callable
from itertools import product

import pytest

from tests.conftest import Kubectl
from tests.support.chart import (
    CHART,
    VENDORS,
    WORKLOADS,
    Manifest,
    as_pods,
    as_yaml,
    combination,
    environment,
    helm,
    pod_templates,
    render,
)
from vmafx.api.hardware import HARDWARE

COMBINATIONS = list(product(VENDORS, WORKLOADS, (False, True)))
GPU_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "gpu.intel.com/i915"}
COMPONENTS = {"Deployment": "server", "Job": "batch", "StatefulSet": "mcp"}
BACKENDS = {"nvidia": "cuda", "amd": "hip", "intel": "sycl", "cpu": "cpu"}


def assert_accepted(
    kubectl: Kubectl, manifests: list[Manifest], namespace: str, wanted: Callable[[Manifest], bool] = lambda _: True
) -> None:
    """The server accepts all objects, and each Pod template as a Pod, without a warning."""
    accounts = [one for one in manifests if one["kind"] == "ServiceAccount"]
    done = kubectl("apply", "-f", "-", stdin=as_yaml(accounts))  # a Pod needs its account
    assert done.returncode == 0, done.stderr
    others = [one for one in manifests if one["kind"] != "ServiceAccount"]
    objects = [one for one in (*others, *as_pods(manifests, namespace)) if wanted(one)]
    command = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--warnings-as-errors", "-f", "-")
    done = kubectl(*command, stdin=as_yaml(objects))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("serverside-applied") == len(objects)


def assert_restricted(template: Manifest) -> None:
    pod = template["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    for container in [*pod["containers"], *pod.get("initContainers", ())]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert all("hostPath" not in volume for volume in pod["volumes"])


@pytest.mark.parametrize(("vendor", "workload", "operator"), COMBINATIONS)
def test_a_combination_is_accepted(
    client: object, kubectl: Kubectl, restricted: str, vendor: str, workload: str, operator: bool
) -> None:
    manifests = render(combination(vendor, workload, operator=operator), namespace=restricted)
    assert_accepted(kubectl, manifests, restricted)

    templates = dict(pod_templates(manifests))
    for template in templates.values():
        assert_restricted(template)
    labels = {name: one["metadata"]["labels"]["app.kubernetes.io/component"] for name, one in templates.items()}
    (main,) = [one for name, one in templates.items() if labels[name] == COMPONENTS[workload]]
    (container,) = main["spec"]["containers"]
    assert environment(container)["VMAFX_BACKEND"] == BACKENDS[vendor]
    limits = container["resources"].get("limits", {})
    assert limits == ({GPU_RESOURCES[vendor]: "1"} if vendor in GPU_RESOURCES else {})
    assert main["spec"]["automountServiceAccountToken"] is False
    assert set(labels.values()) - {"test"} == {COMPONENTS[workload], *(("operator", "controller") if operator else ())}


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_a_pod_that_is_not_restricted_fails_this_test(
    client: object, kubectl: Kubectl, restricted: str, kind: str
) -> None:
    """The checks above can fail: the server warns about such a Deployment, and refuses such a Pod."""
    manifests = render(combination("cpu", "Deployment", operator=False), namespace=restricted)
    for _, template in pod_templates(manifests):
        del template["spec"]["containers"][0]["securityContext"]["capabilities"]
    with pytest.raises(AssertionError, match="unrestricted capabilities"):
        assert_accepted(kubectl, manifests, restricted, lambda one: one["kind"] == kind)


@pytest.mark.parametrize(("vendor", "workload", "operator"), COMBINATIONS)
def test_a_combination_passes_the_strict_linter(vendor: str, workload: str, operator: bool) -> None:
    done = helm("lint", "--strict", str(CHART), values=combination(vendor, workload, operator=operator))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_vendors_are_those_of_the_code() -> None:
    assert {vendor: HARDWARE[vendor].backend for vendor in HARDWARE if vendor != "apple"} == BACKENDS
    assert {vendor: HARDWARE[vendor].resource for vendor in HARDWARE if HARDWARE[vendor].resource} == GPU_RESOURCES
