"""Jobs whose VmafxNode is cordoned, unhealthy, changed or deleted, as described in docs/nodes.md."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Kubectl
from tests.support.fleet import (
    ScoringFleet,
    add_node,
    allow_pods,
    condition,
    has_seen,
    operating,
    phase,
    reaches,
    submit,
)
from tests.support.kubelet import Kubelet
from tests.support.waiting import eventually
from vmafx.kube import JOBS, NODES, Client, ObjectKey

Change = Callable[[Client, ObjectKey], Awaitable[object]]


def spec(**changes: Any) -> Change:
    return lambda client, node: client.merge_patch(NODES, node, {"spec": changes})


CHANGES: dict[str, tuple[Change, str]] = {
    "cordoned": (spec(unschedulable=True), "NoHealthyNode"),
    "unhealthy": (lambda client, node: client.patch_status(NODES, node, {"healthy": False}), "NoHealthyNode"),
    "smaller": (spec(capacity=1), "InsufficientCapacity"),
    "of other labels": (
        lambda client, node: client.merge_patch(NODES, node, {"metadata": {"labels": {"rack": "b"}}}),
        "NoNodes",
    ),
    "deleted": (lambda client, node: client.delete(NODES, node), "NoNodes"),
}


@pytest.fixture
async def labelled_fleet(client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[ScoringFleet]:
    """A node of two slots with a label, the operator, and a kubelet."""
    await allow_pods(client, namespace)
    await add_node(client, namespace, "pool", capacity=2)
    await client.merge_patch(NODES, ObjectKey(namespace, "pool"), {"metadata": {"labels": {"rack": "a"}}})
    async with Kubelet(client, namespace, tmp_path) as kubelet, operating(client, namespace) as operator:
        yield ScoringFleet(kubelet, operator)


@pytest.mark.parametrize("change", CHANGES)
async def test_a_running_job_continues_and_a_waiting_one_says_why(
    change: str, labelled_fleet: ScoringFleet, client: Client, namespace: str, clips: Path
) -> None:
    node, (apply, reason) = ObjectKey(namespace, "pool"), CHANGES[change]
    labelled_fleet.kubelet.hold.clear()
    first = await submit(client, namespace, "first", clips, nodeSelector={"rack": "a"})
    await reaches(client, first, phase("Running"), "it is placed")
    await eventually(lambda: len(labelled_fleet.operator.pods.store) == 1, "the operator has seen its Pod")
    await apply(client, node)
    await has_seen(labelled_fleet.operator, client, node)
    second = await submit(client, namespace, "second", clips, nodeSelector={"rack": "a"})
    job = await reaches(client, second, lambda one: bool(one.status.conditions), "the next one says why it waits")
    assert condition(job, "Scheduled") == ("False", reason)
    labelled_fleet.kubelet.hold.set()
    job = await reaches(client, first, phase("Succeeded"), "the running job is scored")
    assert (job.status.assignedNode, job.status.attempts, job.status.failures) == ("pool", 1, 0)
    if change == "smaller":
        await reaches(client, second, phase("Succeeded"), "the next one has its turn")
    else:
        await add_node(client, namespace, "spare")
        await client.merge_patch(NODES, ObjectKey(namespace, "spare"), {"metadata": {"labels": {"rack": "a"}}})
        job = await reaches(client, second, phase("Succeeded"), "the next one runs on the other node")
        assert job.status.assignedNode == "spare"


async def test_a_job_without_a_pod_leaves_a_deleted_node(
    client: Client, namespace: str, clips: Path, tmp_path: Path
) -> None:
    """The operator was stopped after it wrote the placement, before it created the Pod."""
    await allow_pods(client, namespace)
    await add_node(client, namespace, "pool")
    key = await submit(client, namespace, "left", clips)
    uid = (await client.get(JOBS, key)).metadata.uid
    placed = {"phase": "Running", "assignedNode": "removed", "controllerJobID": f"{uid}-0", "attempts": 1}
    await client.patch_status(JOBS, key, placed)
    async with Kubelet(client, namespace, tmp_path) as kubelet, operating(client, namespace):
        job = await reaches(client, key, phase("Succeeded"), "it is scored on another node")
    assert (job.status.assignedNode, job.status.attempts, job.status.failures) == ("pool", 2, 0)
    assert job.status.excludedNodes == ()
    assert kubelet.started == ["left-1"]


async def test_a_placement_by_another_scheduler_is_used_even_on_a_full_unhealthy_cordoned_node(
    labelled_fleet: ScoringFleet, client: Client, namespace: str, clips: Path
) -> None:
    node = ObjectKey(namespace, "pool")
    await client.merge_patch(NODES, node, {"spec": {"unschedulable": True, "capacity": 1}})
    await client.patch_status(NODES, node, {"healthy": False})
    await has_seen(labelled_fleet.operator, client, node)
    keys = [await submit(client, namespace, f"job-{number}", clips, schedulerName="mine") for number in range(2)]
    for key in keys:
        await client.patch_status(JOBS, key, {"assignedNode": "pool"})
    for key in keys:
        job = await reaches(client, key, phase("Succeeded"), "it is scored")
        assert job.status.assignedNode == "pool"


@pytest.mark.parametrize(
    ("overlay", "field"),
    [
        ("securityContext: {runAsUser: 0}", "securityContext"),
        ("containers: []", "containers"),
        ("initContainers: []", "initContainers"),
        ("serviceAccountName: admin", "serviceAccountName"),
        ("hostNetwork: true", "hostNetwork"),
        ("volumes: [{name: root, hostPath: {path: /}}]", "volumes[0].hostPath"),
    ],
)
def test_a_pod_template_rejects_privileged_fields(kubectl: Kubectl, overlay: str, field: str) -> None:
    node = f"""
apiVersion: vmafx.dev/v1
kind: VmafxNode
metadata: {{name: pool}}
spec:
  gpuVendor: cpu
  podTemplate:
    {overlay}
"""
    refused = kubectl("apply", "-f", "-", stdin=node)
    assert refused.returncode != 0
    assert f'unknown field "spec.podTemplate.{field}"' in refused.stderr
    kubectl("apply", "--validate=false", "-f", "-", stdin=node)  # without validation the field is dropped
    assert field.rpartition(".")[2] not in kubectl("get", "vmnode", "-o", "jsonpath={.items[*].spec}").stdout
