"""The verbs of the client, against a real API server."""

import asyncio

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from tests.support.proxy import FaultyProxy, Refuse
from vmafx.api.job import JobView, VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.kube import JOBS, Client, ObjectKey
from vmafx.kube.decoding import UnreadableObject
from vmafx.kube.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Expired,
    Invalid,
    NotFound,
    UnknownKind,
    UnreadableResponse,
)
from vmafx.kube.watch import Added, Deleted, Event, Modified, Watch

SPEC = VmafxJobSpec(reference="file:///a.mp4", distorted="file:///b.mp4")
SLIM = JOBS.decoded_as(JobView)


class PickySpec(msgspec.Struct):
    nodeSelector: dict[str, str]


class Picky(msgspec.Struct):
    """A type that jobs without a nodeSelector do not match."""

    metadata: ObjectMeta
    spec: PickySpec


async def make(client: Client, namespace: str, name: str = "", **spec: object) -> tuple[ObjectKey, VmafxJob]:
    metadata = ObjectMeta(name=name) if name else ObjectMeta(generateName="job-")
    job = VmafxJob(metadata=metadata, spec=msgspec.structs.replace(SPEC, **spec))
    made = await client.create(JOBS, job, namespace)
    return ObjectKey(namespace, made.metadata.name), made


async def test_a_created_object_can_be_read(client: Client, namespace: str) -> None:
    key, made = await make(client, namespace, "one", priority=3)
    assert made.status.phase == "Pending"
    assert made.metadata.creationTimestamp is not None
    assert await client.get(JOBS, key) == made
    assert msgspec.to_builtins((await client.get(SLIM, key)).spec) == msgspec.to_builtins(made.spec)
    with pytest.raises(AlreadyExists, match='"one" already exists'):
        await make(client, namespace, "one")
    with pytest.raises(NotFound, match='"two" not found'):
        await client.get(JOBS, ObjectKey(namespace, "two"))


async def test_a_list_is_read_at_once_or_in_pages(client: Client, namespace: str) -> None:
    made = sorted([(await make(client, namespace))[0].name for _ in range(7)])
    listed = await client.list(JOBS, namespace)
    assert [job.metadata.name for job in listed.items] == made
    assert listed.metadata.resourceVersion
    assert [len(page.items) async for page in client.pages(JOBS, namespace, page=3)] == [3, 3, 1]
    paged = await client.list(JOBS, namespace, page=3)
    assert [job.metadata.name for job in paged.items] == made
    first = await anext(client.pages(JOBS, namespace, page=3))
    rest = [page.items async for page in client.pages(JOBS, namespace, page=3, token=first.metadata.continue_)]
    assert [job.metadata.name for items in rest for job in items] == made[3:]


async def test_a_list_is_limited_by_field_and_label_selectors(client: Client, namespace: str) -> None:
    key, _ = await make(client, namespace, backend="cuda")
    await make(client, namespace)
    await client.patch_status(JOBS, key, {"phase": "Running", "assignedNode": "n1"})
    await client.merge_patch(JOBS, key, {"metadata": {"labels": {"team": "a"}}})
    for selector in ("status.phase=Running", "status.assignedNode=n1", "spec.backend=cuda"):
        assert [job.metadata.name for job in (await client.list(JOBS, namespace, fields=selector)).items] == [key.name]
    assert len((await client.list(JOBS, namespace, fields="status.phase=Pending")).items) == 1
    assert len((await client.list(JOBS, namespace, labels="team=a")).items) == 1
    assert (await client.list(JOBS, namespace, labels="team=b")).items == []


async def test_a_list_of_metadata_has_nothing_else(client: Client, namespace: str) -> None:
    assert [page.items async for page in client.pages(JOBS, namespace, metadata_only=True)] == [[]]
    made = sorted([(await make(client, namespace))[0].name for _ in range(3)])
    untyped = JOBS.decoded_as(dict)
    items = [item async for page in client.pages(untyped, namespace, page=2, metadata_only=True) for item in page.items]
    assert [item["metadata"]["name"] for item in items] == made
    assert {key for item in items for key in item} == {"apiVersion", "kind", "metadata"}


async def test_a_list_starts_again_if_its_continue_token_expires(client: Client, namespace: str) -> None:
    made = sorted([(await make(client, namespace))[0].name for _ in range(3)])
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        pages = through.pages(JOBS, namespace, page=2)
        await anext(pages)
        proxy.faults.append(Refuse(410, body='{"reason": "Expired", "message": "too old", "code": 410}'))
        with pytest.raises(Expired, match="too old"):
            await anext(pages)

        proxy.seen.clear()
        proxy.faults.extend([None, Refuse(410, body="{}")])
        assert [job.metadata.name for job in (await through.list(JOBS, namespace, page=2)).items] == made
        assert len(proxy.seen) == 3


async def test_a_merge_patch_with_a_stale_resource_version_conflicts(client: Client, namespace: str) -> None:
    key, made = await make(client, namespace)
    changed = await client.merge_patch(JOBS, key, {"spec": {"priority": 5}})
    assert changed.spec.priority == 5
    stale = {"metadata": {"resourceVersion": made.metadata.resourceVersion}, "spec": {"priority": 6}}
    with pytest.raises(Conflict, match="has been modified"):
        await client.merge_patch(JOBS, key, stale)


async def test_patch_status_changes_only_the_status(client: Client, namespace: str) -> None:
    key, made = await make(client, namespace)
    done = await client.patch_status(JOBS, key, {"phase": "Running"}, version=made.metadata.resourceVersion)
    assert (done.status.phase, done.spec) == ("Running", made.spec)
    assert done.metadata.generation == made.metadata.generation
    with pytest.raises(Conflict):
        await client.patch_status(JOBS, key, {"message": "late"}, version=made.metadata.resourceVersion)
    with pytest.raises(Invalid, match=r"status\.score"):
        await client.patch_status(JOBS, key, {"score": "good"})


async def test_a_json_patch_is_rejected_if_its_test_fails(client: Client, namespace: str) -> None:
    key, made = await make(client, namespace)
    guard = {"op": "test", "path": "/metadata/uid", "value": made.metadata.uid}
    write = {"op": "add", "path": "/status/progress", "value": {"frames": 10}}
    done = await client.json_patch(JOBS, key, [guard, write], "status")
    assert done.status.progress is not None
    assert done.status.progress.frames == 10
    with pytest.raises(Invalid):
        await client.json_patch(JOBS, key, [{**guard, "value": "another"}, write], "status")


async def test_apply_conflicts_with_another_field_manager_unless_forced(client: Client, namespace: str) -> None:
    key = ObjectKey(namespace, "applied")
    body = {"apiVersion": "vmafx.dev/v1", "kind": "VmafxJob", "metadata": {"name": key.name}}
    spec = {"reference": "file:///a.mp4", "distorted": "file:///b.mp4", "priority": 1}
    first = await client.apply(JOBS, key, {**body, "spec": spec}, manager="alice")
    assert first.spec.priority == 1
    with pytest.raises(Conflict, match="alice"):
        await client.apply(JOBS, key, {**body, "spec": {**spec, "priority": 2}}, manager="bob")
    taken = await client.apply(JOBS, key, {**body, "spec": {**spec, "priority": 2}}, manager="bob", force=True)
    assert taken.spec.priority == 2


async def test_delete_checks_uid_and_resource_version(client: Client, namespace: str) -> None:
    key, made = await make(client, namespace)
    with pytest.raises(Conflict, match="does not match the UID"):
        await client.delete(JOBS, key, uid="another")
    with pytest.raises(Conflict, match="does not match the ResourceVersion"):
        await client.delete(JOBS, key, version="1")
    await client.delete(JOBS, key, uid=made.metadata.uid, version=made.metadata.resourceVersion)
    with pytest.raises(NotFound):
        await client.delete(JOBS, key)


async def test_discovery_finds_any_kind(client: Client, namespace: str) -> None:
    maps = await client.discover("v1", "ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "b"}}
    await client.create(maps, body, namespace)
    assert (await client.get(maps, ObjectKey(namespace, "m")))["data"] == {"a": "b"}
    assert (await client.discover("rbac.authorization.k8s.io/v1", "ClusterRole")).namespaced is False
    with pytest.raises(UnknownKind, match=r"available: VmafxJob, VmafxModelTraining, VmafxNode"):
        await client.discover("vmafx.dev/v1", "VmafxJop")
    with pytest.raises(UnknownKind, match="is its CRD installed"):
        await client.discover("vmafx.dev/v9", "VmafxJob")


class Mismatch(msgspec.Struct):
    metadata: ObjectMeta
    spec: int


@pytest.mark.parametrize("key", [ObjectKey("default", ""), ObjectKey("", "name")])
async def test_an_incomplete_key_is_rejected_without_a_request(client: Client, key: ObjectKey) -> None:
    """The path of an object without a name is that of all objects."""
    for call in (client.get(JOBS, key), client.delete(JOBS, key), client.merge_patch(JOBS, key, {})):
        with pytest.raises(ValueError, match="not a valid key of a VmafxJob"):
            await call


async def test_a_name_cannot_change_the_url(client: Client, namespace: str) -> None:
    await make(client, namespace, "real")
    for name in ("real?x=", "real%2Fstatus", "real#", "re al"):
        with pytest.raises((NotFound, BadRequest)):
            await client.get(JOBS, ObjectKey(namespace, name))
    for name in ("real/status", "../vmafxjobs/real", ".."):
        with pytest.raises(ValueError, match="not a valid key of a VmafxJob"):
            await client.get(JOBS, ObjectKey(namespace, name))


async def test_an_unreadable_object_does_not_fail_a_list(client: Client, namespace: str) -> None:
    await make(client, namespace, "unreadable")
    await make(client, namespace, "readable", nodeSelector={"a": "b"})
    listed = await client.list(JOBS.decoded_as(Picky), namespace)
    assert [job.metadata.name for job in listed.items] == ["readable"]
    assert [(item.metadata.name, "nodeSelector" in item.error) for item in listed.unreadable] == [("unreadable", True)]


async def test_an_object_that_does_not_match_its_type_raises_where_and_why(client: Client, namespace: str) -> None:
    key, _ = await make(client, namespace)
    with pytest.raises(UnreadableResponse, match=r"not a Mismatch: Expected `int`, got `object` - at `\$.spec`"):
        await client.get(JOBS.decoded_as(Mismatch), key)


async def test_requests_are_counted_like_client_go_does(
    client: Client, namespace: str, registry: CollectorRegistry
) -> None:
    host = client.config.server.removeprefix("https://")

    def count(code: str, method: str) -> float:
        labels = {"code": code, "method": method, "host": host}
        return registry.get_sample_value("rest_client_requests_total", labels) or 0

    before = count("404", "GET")
    with pytest.raises(NotFound):
        await client.get(JOBS, ObjectKey(namespace, "none"))
    assert count("404", "GET") == before + 1
    assert count("201", "POST") > 0
    seconds = registry.get_sample_value("rest_client_request_duration_seconds_count", {"verb": "GET", "host": host})
    assert seconds is not None
    assert seconds > 0


async def take(watch: Watch[JobView], count: int) -> list[Event[JobView]]:
    """The first `count` events other than bookmarks."""
    taken: list[Event[JobView]] = []
    async with asyncio.timeout(60):
        async for batch in watch:
            taken += [event for event in batch if isinstance(event, Added | Modified | Deleted | UnreadableObject)]
            if len(taken) >= count:
                break
    return taken


async def test_a_watch_yields_each_change(client: Client, namespace: str) -> None:
    listed = await client.list(SLIM, namespace)
    watch = client.watch(SLIM, namespace, version=listed.metadata.resourceVersion)
    key, _ = await make(client, namespace)
    await client.patch_status(JOBS, key, {"phase": "Running"})
    await client.delete(JOBS, key)
    events = await take(watch, 3)
    assert [type(event) for event in events] == [Added, Modified, Deleted]
    last = events[-1]
    assert isinstance(last, Deleted)
    assert last.object.status.phase == "Running"
    assert watch.version == last.object.metadata.resourceVersion


async def test_a_watch_without_a_version_starts_with_existing_objects(client: Client, namespace: str) -> None:
    key, _ = await make(client, namespace)
    (event,) = await take(client.watch(SLIM, namespace), 1)
    assert isinstance(event, Added)
    assert event.object.metadata.name == key.name


async def test_a_watch_from_a_compacted_version_raises_expired(client: Client, namespace: str) -> None:
    await make(client, namespace)
    with pytest.raises(Expired, match="too old resource version"):
        await take(client.watch(SLIM, namespace, version="1"), 1)


async def test_an_unreadable_object_does_not_end_a_watch(client: Client, namespace: str) -> None:
    listed = await client.list(SLIM, namespace)
    key, _ = await make(client, namespace, "unreadable")
    await make(client, namespace, "readable", nodeSelector={"a": "b"})

    watch = client.watch(JOBS.decoded_as(Picky), namespace, version=listed.metadata.resourceVersion)
    unreadable, readable = await take(watch, 2)  # type: ignore[arg-type]
    assert isinstance(unreadable, UnreadableObject)
    assert unreadable.metadata.name == key.name
    assert "missing required field `nodeSelector`" in unreadable.error
    assert isinstance(readable, Added)
