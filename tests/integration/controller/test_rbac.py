"""The generated roles of the controller and its callers on a real API server: sufficient, and no more than needed."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from tests.conftest import Kubectl
from tests.integration.kube.test_client import make
from tests.integration.operator.test_operator import create_node
from tests.support.project import ROOT
from tests.support.tokens import bearing, create_account, service_account_token
from tests.support.waiting import eventually
from vmafx.auth import access
from vmafx.auth.access import TokenAccess
from vmafx.auth.credentials import CallerCredentials
from vmafx.auth.reviews import AUDIENCE
from vmafx.controller import rbac
from vmafx.controller.jobs import JobStreams
from vmafx.generate.files import CALLER_ROLES, CONTROLLER_ROLES
from vmafx.http.errors import StatusError
from vmafx.jobs.sample_keys import SAMPLES_SECRET, SampleKeys
from vmafx.kube import JOBS, NAMESPACES, NODES, TRAININGS, Client, ObjectKey, Resource
from vmafx.kube.errors import Forbidden
from vmafx.kube.resources import UntypedObject
from vmafx.runtime.events import EventRecorder, EventSubject

SECRETS: Resource[UntypedObject] = Resource("", "v1", "secrets", "Secret", dict)


def secret(name: str) -> UntypedObject:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"key": "x"}}


@pytest.fixture
async def controller(client: Client, namespace: str, kubectl: Kubectl) -> AsyncIterator[Client]:
    """A client with exactly the permissions of the controller's roles."""
    for path in (CONTROLLER_ROLES, CALLER_ROLES):
        assert kubectl("apply", "-f", str(ROOT / path)).returncode == 0
    await create_account(client, ObjectKey(namespace, "controller"))
    subject = f"--serviceaccount={namespace}:controller"
    kubectl("create", "clusterrolebinding", f"{namespace}-controller", "--clusterrole=vmafx-controller", subject)
    kubectl("create", "rolebinding", "session", "--role=vmafx-controller-session", subject)
    token = await service_account_token(client, ObjectKey(namespace, "controller"))
    async with Client(bearing(token, client.config)) as controller:

        async def bound() -> bool:
            try:
                await controller.list(JOBS)
                await controller.create(SECRETS, secret("probe"), namespace, dry_run=True)
            except Forbidden:
                return False
            return True

        await eventually(bound, "the server has seen the bindings")
        yield controller


async def test_the_controller_can_create_jobs_and_write_their_status(controller: Client, namespace: str) -> None:
    key, _ = await make(controller, namespace)
    await controller.merge_patch(JOBS, key, {"spec": {"cancel": True}})
    await controller.patch_status(JOBS, key, {"phase": "Running"})
    assert [job.metadata.name for job in (await controller.list(JOBS, namespace)).items] == [key.name]


async def test_the_controller_can_register_nodes_and_record_events(controller: Client, namespace: str) -> None:
    node = await create_node(controller, namespace, "n")
    await controller.patch_status(NODES, node, {"agentSession": "s"})
    subject = EventSubject("vmafx.dev/v1", "VmafxNode", namespace, "n", "uid")
    await EventRecorder(controller, "vmafx-controller", "me")._write(subject, "Normal", "Registered", "Register", "")


async def test_the_controller_can_read_its_signing_key_and_no_other_secret(
    controller: Client, client: Client, namespace: str
) -> None:
    await controller.create(SECRETS, secret(rbac.SESSION_SECRET), namespace)
    await controller.get(SECRETS, ObjectKey(namespace, rbac.SESSION_SECRET))
    await client.create(SECRETS, secret("other"), namespace)
    for call in (
        controller.get(SECRETS, ObjectKey(namespace, "other")),
        controller.list(SECRETS, namespace),
        controller.create(SECRETS, secret(rbac.SESSION_SECRET), "default"),
        controller.get(SECRETS, ObjectKey("default", rbac.SESSION_SECRET)),
    ):
        with pytest.raises(Forbidden):
            await call


async def test_the_controller_can_read_trainings_and_the_key_of_samples(
    controller: Client, client: Client, namespace: str, other_namespace: str
) -> None:
    for name in (namespace, other_namespace):
        key = await SampleKeys(client).ensure(name)
        assert await SampleKeys(controller).get(name) == key
        assert (await controller.list(TRAININGS, name)).items == []
    with pytest.raises(Forbidden):  # only the operator creates it
        await controller.create(SECRETS, secret(SAMPLES_SECRET), "default")


async def test_the_controller_can_read_whether_a_namespace_exists(
    controller: Client, client: Client, namespace: str
) -> None:
    async with aclosing(JobStreams(controller).watch("nosuch")) as jobs:
        with pytest.raises(StatusError, match="'nosuch' does not exist"):
            await anext(jobs)
    with pytest.raises(Forbidden):
        await controller.list(NAMESPACES)


async def test_streams_work_without_permission_to_read_namespaces(
    client: Client, namespace: str, kubectl: Kubectl
) -> None:
    """As with a role of an older version, or one bound in a single namespace."""
    await create_account(client, ObjectKey(namespace, "older"))
    role = ["--verb=get,list,watch", "--resource=vmafxjobs.vmafx.dev"]
    assert kubectl("create", "role", "older", *role).returncode == 0
    assert (
        kubectl("create", "rolebinding", "older", "--role=older", f"--serviceaccount={namespace}:older").returncode == 0
    )
    key, _ = await make(client, namespace)
    async with Client(
        bearing(await service_account_token(client, ObjectKey(namespace, "older")), client.config)
    ) as older:

        async def bound() -> bool:
            try:
                await older.list(JOBS, namespace)
            except Forbidden:
                return False
            return True

        await eventually(bound, "the server has seen the binding")
        with pytest.raises(Forbidden):
            await older.get(NAMESPACES, ObjectKey("", namespace))
        async with aclosing(JobStreams(older).watch(namespace)) as jobs:
            assert (await anext(jobs)).metadata.name == key.name


async def test_the_controller_cannot_delete_objects_or_change_nodes(
    controller: Client, client: Client, namespace: str
) -> None:
    key, _ = await make(client, namespace)
    node = await create_node(client, namespace, "n")
    forbidden: tuple[Any, ...] = (
        controller.delete(JOBS, key),
        controller.delete(NODES, node),
        controller.merge_patch(NODES, node, {"spec": {"capacity": 9}}),
    )
    for call in forbidden:
        with pytest.raises(Forbidden):
            await call


async def test_the_roles_for_agents_and_clients_permit_their_calls(
    controller: Client, client: Client, namespace: str, kubectl: Kubectl
) -> None:
    credentials = {}
    for name in ("agent", "client"):
        await create_account(client, ObjectKey(namespace, name))
        subject = f"--serviceaccount={namespace}:{name}"
        assert kubectl("create", "rolebinding", name, f"--clusterrole=vmafx-{name}", subject).returncode == 0
        credentials[name] = CallerCredentials(await service_account_token(client, ObjectKey(namespace, name), AUDIENCE))
    at = 0.0
    control = TokenAccess(controller, lambda: at)

    async def may(role: str, verb: str, resource: str, subresource: str = "") -> bool:
        try:
            await control.authorize(credentials[role], verb, resource, namespace, "x", subresource)
        except StatusError as error:
            if error.code != "PERMISSION_DENIED":
                raise
            return False
        return True

    async def bound() -> bool:
        nonlocal at
        at += access.ALLOWED_TTL
        return await may("agent", "patch", "vmafxnodes", "status") and await may("client", "create", "vmafxjobs")

    await eventually(bound, "the server has seen the bindings")
    assert [await may("client", verb, "vmafxjobs") for verb in ("get", "list", "watch", "patch")] == [True] * 4
    assert not await may("agent", "create", "vmafxjobs")
    assert not await may("client", "patch", "vmafxnodes", "status")
    assert not await may("client", "delete", "vmafxjobs")
