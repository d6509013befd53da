"""The generated roles, enforced by a real API server: enough for the operator and for users, and no more."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.conftest import Kubectl
from tests.integration.kube.test_client import make
from tests.integration.operator.test_operator import create_node
from tests.support.fleet import allow_pods
from tests.support.project import ROOT
from tests.support.scripted_trainer import ScriptedTrainers, checkpoint, running
from tests.support.serving import serving
from tests.support.serving_kubelet import ServingKubelet
from tests.support.tokens import bearing, service_account_token
from tests.support.trainings import Trainings, reconciling_trainings
from tests.support.waiting import eventually, until
from vmafx.generate.files import OPERATOR_ROLES
from vmafx.kube import JOBS, NODES, Client, ObjectKey, Resource
from vmafx.kube.core import EVENTS, HPAS, LEASES
from vmafx.kube.errors import Forbidden, NotFound
from vmafx.kube.resources import UntypedObject
from vmafx.operator.kinds import LEASE_NAME
from vmafx.runtime.events import EventRecorder, EventSubject
from vmafx.runtime.leader import LeaderElection
from vmafx.runtime.metrics import Metrics

PODS: Resource[UntypedObject] = Resource("", "v1", "pods", "Pod", dict)
SECRETS: Resource[UntypedObject] = Resource("", "v1", "secrets", "Secret", dict)
CANARY = {"modelRef": "model:2", "weight": 50}


@pytest.fixture
async def operator(client: Client, namespace: str, kubectl: Kubectl) -> AsyncIterator[Client]:
    """A client with the permissions of the operator's roles."""
    assert kubectl("apply", "-f", str(ROOT / OPERATOR_ROLES)).returncode == 0
    kubectl("create", "serviceaccount", "operator")
    subject = f"--serviceaccount={namespace}:operator"
    kubectl("create", "clusterrolebinding", f"{namespace}-operator", "--clusterrole=vmafx-operator", subject)
    kubectl("create", "rolebinding", "leader", "--role=vmafx-operator-leader-election", subject)
    token = await service_account_token(client, ObjectKey(namespace, "operator"))
    async with Client(bearing(token, client.config)) as operator:

        async def may() -> bool:
            try:
                await operator.list(JOBS)
                await operator.get(LEASES, ObjectKey(namespace, LEASE_NAME))
            except NotFound:
                return True
            except Forbidden:
                return False
            return True

        await eventually(may, "the server has read the roles and their bindings")
        yield operator


async def test_the_operator_can_run_a_job_as_a_pod(operator: Client, client: Client, namespace: str) -> None:
    await allow_pods(client, namespace)
    key, job = await make(client, namespace)
    owner = {"apiVersion": "vmafx.dev/v1", "kind": "VmafxJob", "name": key.name, "uid": job.metadata.uid}
    metadata = {"name": f"{key.name}-0", "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}
    container = {"name": "worker", "image": "localhost/none:1"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    await operator.create(PODS, pod, namespace)
    await operator.patch_status(JOBS, key, {"phase": "Running"})
    assert len((await operator.list(JOBS)).items) >= 1
    await operator.delete(PODS, ObjectKey(namespace, f"{key.name}-0"))
    await operator.delete(JOBS, key)


async def test_the_operator_can_run_a_training(operator: Client, client: Client, namespace: str) -> None:
    """Everything that it creates and changes for one, its volume claim and the key of samples included."""
    async with ScriptedTrainers() as trainers:
        trainers.answers["t"] = running(checkpoints=(checkpoint(1),))
        kubelet = ServingKubelet(client, namespace)
        async with kubelet, reconciling_trainings(operator, namespace, trainers.address):
            trainings = Trainings(client, namespace)
            await trainings.create()
            await trainings.until("Ready")
            await trainings.until_event("Checkpoint")
            await trainings.change(retainPolicy="Delete", storage={"size": "2Gi"})
            assert "cannot grow" in await trainings.until("Ready", "False", "Refused")
            assert (await trainings.claim() or {})["metadata"]["ownerReferences"]


async def test_the_operator_can_run_a_service(operator: Client, client: Client, namespace: str) -> None:
    """Everything that it creates, changes, hands over and deletes for one."""
    async with serving(operator, namespace, kubelet_client=client) as services:
        services.client = client
        await services.create(replicas=2, resources={"cpu": "1"}, gpuVendor="nvidia", canary=CANARY)
        await services.until("CanaryHonoured")
        await services.until("Schedulable", "False")
        await services.change(minReplicas=2, maxReplicas=3)
        await services.until("Ready")
        await services.change(minReplicas=0, maxReplicas=0, canary=None)
        await services.until("Ready")
        assert await services.names(HPAS) == []


async def test_the_operator_cannot_do_more_than_it_needs(operator: Client, client: Client, namespace: str) -> None:
    key, _ = await make(client, namespace)
    for call in (
        operator.merge_patch(JOBS, key, {"spec": {"priority": 9}}),
        make(operator, namespace),
        operator.list(SECRETS, namespace),
        operator.merge_patch(NODES, ObjectKey(namespace, "n"), {"spec": {"capacity": 9}}),
    ):
        with pytest.raises(Forbidden, match="cannot"):
            await call


async def test_the_operator_can_lead_write_node_status_and_emit_events(
    operator: Client, client: Client, namespace: str
) -> None:
    election = LeaderElection(operator, ObjectKey(namespace, LEASE_NAME), "me", Metrics())
    async with asyncio.timeout(60):
        await election.acquire()
    await election.release()
    node = await create_node(client, namespace, "n")
    await operator.patch_status(NODES, node, {"healthy": True})
    assert (await operator.list(NODES, namespace)).items[0].status.healthy
    recorder = EventRecorder(operator, "vmafx-operator", "me")
    about = EventSubject("vmafx.dev/v1", "VmafxNode", namespace, "n", "uid")
    for _ in range(2):
        await recorder._write(about, "Normal", "Healthy", "Judge", "")
    assert len((await client.list(EVENTS, namespace)).items) == 1


async def test_the_operator_can_use_only_its_own_lease_in_its_own_namespace(operator: Client, namespace: str) -> None:
    leases: Resource[UntypedObject] = Resource("coordination.k8s.io", "v1", "leases", "Lease", dict)

    def lease(name: str) -> UntypedObject:
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}}

    await operator.create(leases, lease("vmafx-operator.vmafx.dev"), namespace)
    await operator.get(leases, ObjectKey(namespace, "vmafx-operator.vmafx.dev"))
    with pytest.raises(Forbidden):
        await operator.create(leases, lease("vmafx-operator.vmafx.dev"), "default")
    await operator.create(leases, lease("another"), namespace)
    with pytest.raises(Forbidden):
        await operator.get(leases, ObjectKey(namespace, "another"))


CAN = [
    ("view", "list", "vmafxjobs", "yes"),
    ("view", "watch", "vmafxnodes", "yes"),
    ("view", "create", "vmafxjobs", "no"),
    ("edit", "create", "vmafxjobs", "yes"),
    ("edit", "delete", "zerfooinferenceservices", "yes"),
    ("edit", "patch", "zerfooinferenceservices/scale", "yes"),
    ("edit", "list", "vmafxnodes", "yes"),
    ("edit", "create", "vmafxnodes", "no"),
    ("edit", "patch", "vmafxjobs/status", "no"),
]


@pytest.mark.parametrize(("role", "verb", "resource", "answer"), CAN)
def test_the_view_and_edit_roles_of_the_cluster_include_the_kinds(
    kubectl: Kubectl, role: str, verb: str, resource: str, answer: str
) -> None:
    assert kubectl("apply", "-f", str(ROOT / OPERATOR_ROLES)).returncode == 0
    kubectl("create", "rolebinding", "alice", f"--clusterrole={role}", "--user=alice")

    def may(verb: str, resource: str) -> str:
        name, _, subresource = resource.partition("/")
        which = [f"{name}.vmafx.dev", *([f"--subresource={subresource}"] if subresource else [])]
        return kubectl("auth", "can-i", verb, *which, "--as=alice").stdout.strip()

    # The controller-manager aggregates roles asynchronously: a `no` is meaningful only once it has done so.
    aggregated = {"view": "list", "edit": "create"}[role]
    until(lambda: may(aggregated, "vmafxjobs") == "yes", f"{role} gains {aggregated} on vmafxjobs")
    if answer == "yes":  # `edit` aggregates `view` in a second step
        until(lambda: may(verb, resource) == "yes", f"{role} gains {verb} on {resource}")
    assert may(verb, resource) == answer
