"""The informer: its store and its handlers agree with the API server, through faults of all kinds."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conftest import Kubectl
from tests.integration.devcluster.test_cluster import QUICK
from tests.integration.kube.test_client import SLIM, Picky, make
from tests.support.faults import compact_etcd, kill, start
from tests.support.proxy import CutStream, Delay, FaultyProxy, LoseRequest, Refuse, Stall
from tests.support.tokens import bearing, service_account_token
from tests.support.waiting import eventually
from tests.support.widgets import DEFINITION
from vmafx.api.job import JobSpecView, JobView
from vmafx.api.meta import MetaView, ObjectMeta
from vmafx.devcluster import DevCluster, crds
from vmafx.jobs.cache import UNFINISHED, jobs_informer
from vmafx.kube import JOBS, Client, ObjectKey, Resource, load_config
from vmafx.kube.core import CRDS
from vmafx.kube.errors import Forbidden, KubeError, NotFound
from vmafx.kube.resources import UntypedObject
from vmafx.kube.watch import Added, Bookmark, Deleted, Modified
from vmafx.runtime import informer as informer_module
from vmafx.runtime.informer import Informer, OptionalInformer, StoreFilter
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.reconcile import ReconcileLoop, ReconcileResult
from vmafx.runtime.store import ObjectChange


class Gadget(msgspec.Struct, frozen=True):
    """A kind that no server has at first."""

    metadata: MetaView


class Listener:
    """A handler that builds its objects from the changes alone."""

    def __init__(self, informer: Informer[JobView]) -> None:
        self.known: dict[ObjectKey, JobView] = {}
        self._changed = asyncio.Event()
        informer.on_change(self._on_change)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for changes until the condition is true."""
        async with asyncio.timeout(60):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def _on_change(self, change: ObjectChange[JobView]) -> None:
        self._changed.set()
        if change.new is None:
            self.known.pop(change.key, None)
        else:
            self.known[change.key] = change.new


@asynccontextmanager
async def running(informer: Informer[JobView]) -> AsyncIterator[Listener]:
    listener = Listener(informer)
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(60):
            await informer.synced.wait()
        yield listener
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settled(informer: Informer[JobView], listener: Listener, client: Client, namespace: str = "") -> None:
    """Wait until the store and the listener agree with the API server; fail if they never do."""
    for _ in range(600):
        live = {
            ObjectKey(job.metadata.namespace, job.metadata.name): job
            for job in (await client.list(SLIM, namespace)).items
        }
        cached = dict(zip(informer.store, informer.store.values(), strict=True))
        if live == cached == listener.known:
            return
        await asyncio.sleep(0.05)
    assert cached == live
    assert listener.known == live


paged_and_streamed = pytest.mark.parametrize("streaming", [False, True])


@paged_and_streamed
async def test_an_informer_follows_changes(client: Client, namespace: str, streaming: bool) -> None:
    key, _ = await make(client, namespace, "before")
    informer = Informer(client, SLIM, namespace=namespace, streaming=streaming)
    async with running(informer) as listener:
        assert list(informer.store) == [key]
        await make(client, namespace, "after")
        await client.patch_status(JOBS, key, {"phase": "Running"})
        await client.delete(JOBS, ObjectKey(namespace, "after"))
        await settled(informer, listener, client, namespace)


@paged_and_streamed
async def test_handlers_get_objects_that_the_store_does_not_keep(
    client: Client, namespace: str, streaming: bool
) -> None:
    finished, _ = await make(client, namespace, "finished")
    await client.patch_status(JOBS, finished, {"phase": "Succeeded"})
    pending, _ = await make(client, namespace, "pending")
    informer = Informer(client, SLIM, namespace=namespace, keep=StoreFilter(UNFINISHED.keeps), streaming=streaming)
    async with running(informer) as listener:
        assert list(informer.store) == [pending]
        assert listener.known.keys() == {finished, pending}
        await client.patch_status(JOBS, pending, {"phase": "Succeeded"})
        await listener.until(lambda: not len(informer.store))
        assert listener.known[pending].status.phase == "Succeeded"


async def test_finished_jobs_are_not_listed_but_their_changes_are_reported(client: Client, namespace: str) -> None:
    finished, _ = await make(client, namespace, "finished")
    await client.patch_status(JOBS, finished, {"phase": "Failed"})
    pending, _ = await make(client, namespace, "pending")
    informer = jobs_informer(client, namespace)
    async with running(informer) as listener:
        assert listener.known.keys() == set(informer.store) == {pending}
        new, _ = await make(client, namespace, "new")
        for key in (new, pending):
            await client.patch_status(JOBS, key, {"phase": "Succeeded"})
        await listener.until(lambda: not len(informer.store))
        assert {key: job.status.phase for key, job in listener.known.items()} == {
            new: "Succeeded",
            pending: "Succeeded",
        }


async def test_an_informer_uses_pages_if_the_server_does_not_stream_lists(client: Client, namespace: str) -> None:
    key, _ = await make(client, namespace)
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        proxy.faults.append(Refuse(422, body='{"reason": "Invalid", "message": "sendInitialEvents is forbidden"}'))
        informer = Informer(through, SLIM, namespace=namespace, streaming=True)
        async with running(informer) as listener:
            assert listener.known.keys() == {key}


async def test_an_index_follows_changes(client: Client, namespace: str) -> None:
    key, _ = await make(client, namespace)
    indexes = {"node": lambda job: filter(None, [job.status.assignedNode])}
    informer = Informer(client, SLIM, namespace=namespace, indexes=indexes)
    async with running(informer) as listener:
        await client.patch_status(JOBS, key, {"phase": "Running", "assignedNode": "n1"})
        await settled(informer, listener, client, namespace)
        assert [job.metadata.name for job in informer.store.by("node", "n1")] == [key.name]


@paged_and_streamed
@pytest.mark.parametrize("seed", range(3))
async def test_an_informer_recovers_from_faults_of_all_kinds(
    client: Client, namespace: str, seed: int, streaming: bool
) -> None:
    """Requests are lost, delayed, refused and cut at random while objects change."""
    rng = random.Random(seed)
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        informer = Informer(through, SLIM, namespace=namespace, streaming=streaming)
        async with running(informer) as listener:
            names: list[str] = []
            for _ in range(150):
                if rng.random() < 0.2:
                    busy, broken = Refuse(429, retry_after="0"), Refuse(500)
                    kinds = (CutStream(rng.randrange(5000)), LoseRequest(), Delay(0.2), busy, broken)
                    proxy.faults.append(rng.choice(kinds))
                    proxy.cut()
                match rng.choice(("create", "create", "patch", "delete")):
                    case "create":
                        names.append((await make(client, namespace))[0].name)
                    case "patch" if names:
                        key = ObjectKey(namespace, rng.choice(names))
                        await client.merge_patch(JOBS, key, {"spec": {"priority": rng.randrange(100)}})
                    case "delete" if names:
                        await client.delete(JOBS, ObjectKey(namespace, names.pop(rng.randrange(len(names)))))
            proxy.faults.clear()
            await settled(informer, listener, client, namespace)
    assert len(proxy.seen) > 2  # more than a list and a watch: it had to reconnect


async def test_a_job_that_finished_during_an_outage_is_reported_as_finished_and_not_as_deleted(
    client: Client, namespace: str
) -> None:
    finishing, _ = await make(client, namespace, "finishing")
    deleted, _ = await make(client, namespace, "deleted")
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        informer = jobs_informer(through, namespace)
        async with running(informer) as listener:
            expired = Refuse(410, body='{"reason": "Expired", "code": 410}')
            proxy.faults.extend([Refuse(503, retry_after="1"), expired])
            proxy.cut()
            await client.patch_status(JOBS, finishing, {"phase": "Succeeded"})
            await client.delete(JOBS, deleted)
            await listener.until(lambda: not len(informer.store))
            assert {key: job.status.phase for key, job in listener.known.items()} == {finishing: "Succeeded"}


@paged_and_streamed
async def test_a_refresh_reads_changes_that_a_stalled_watch_did_not_deliver(
    client: Client, namespace: str, streaming: bool
) -> None:
    before, _ = await make(client, namespace, "before")
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        if not streaming:
            proxy.faults.extend([None, Stall()])  # the list passes, the watch delivers nothing
        informer = Informer(through, SLIM, namespace=namespace, streaming=streaming)
        async with running(informer):
            await proxy.saw(1 if streaming else 2)
            after, _ = await make(client, namespace, "after")
            if not streaming:
                assert list(informer.store) == [before]
            await asyncio.gather(informer.refresh(), informer.refresh())
            assert set(informer.store) == {before, after}
            later, _ = await make(client, namespace, "later")
            await eventually(lambda: informer.store.get(later) is not None, "the watch goes on")


async def test_a_refresh_works_while_the_informer_backs_off(client: Client, namespace: str) -> None:
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        proxy.faults.extend([None, Refuse(403), Refuse(403)])
        informer = Informer(through, SLIM, namespace=namespace)
        async with running(informer):
            await proxy.saw(2)  # it backs off before it lists again
            created, _ = await make(client, namespace)
            await informer.refresh()
            assert set(informer.store) == {created}


async def test_an_unreadable_object_does_not_block_a_relist(client: Client, namespace: str) -> None:
    """It was in the store, the next list cannot decode it, and neither can a read of the object alone."""
    unreadable = await make(client, namespace, "unreadable")
    readable = await make(client, namespace, "readable", nodeSelector={"a": "b"})
    keep: StoreFilter[Any] = StoreFilter(lambda _: True, "status.phase!=Failed")
    informer: Informer[Any] = Informer(client, JOBS.decoded_as(Picky), namespace=namespace, keep=keep)
    informer.store.put(*unreadable)
    async with running(informer) as listener:
        assert list(informer.store) == [readable[0]]
        assert listener.known.keys() == {readable[0]}


INITIAL_EVENTS_END = b"""{"type": "BOOKMARK", "object": {"metadata":
    {"resourceVersion": "6", "annotations": {"k8s.io/initial-events-end": "true"}}}}"""


def event(kind: type, name: str, version: str) -> Any:
    metadata = MetaView(name=name, namespace="n", resourceVersion=version)
    return kind(JobView(metadata=metadata, spec=JobSpecView("file:///a", "file:///b")))


async def test_changes_before_a_streamed_list_is_complete_are_applied(client: Client) -> None:
    informer = Informer(client, SLIM, streaming=True)
    listener = Listener(informer)
    for received in (
        event(Added, "x", "1"),
        event(Added, "y", "1"),
        event(Modified, "x", "5"),
        event(Deleted, "y", "6"),
        msgspec.json.decode(INITIAL_EVENTS_END, type=Bookmark),
    ):
        informer._apply(received)
    assert {key.name: job.metadata.resourceVersion for key, job in listener.known.items()} == {"x": "5"}
    assert [key.name for key in informer.store] == ["x"]


class Owned(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


async def test_a_loop_enqueues_owners_and_mapped_keys(client: Client, namespace: str) -> None:
    """An owned object enqueues its owner, a mapped one the keys it is mapped to; a predicate can veto."""
    maps: Resource[Owned] = Resource("", "v1", "configmaps", "ConfigMap", Owned)
    key, job = await make(client, namespace)
    informer = Informer(client, maps, namespace=namespace, labels="mine=yes")
    seen: list[ObjectKey] = []

    async def reconcile(reconciled: ObjectKey) -> ReconcileResult:
        seen.append(reconciled)
        return ReconcileResult.done()

    loop = ReconcileLoop("test", reconcile, Metrics())
    loop.owns(informer, "VmafxJob", when=lambda change: change.new is not None)
    loop.watches(informer, to=lambda owned: [ObjectKey("mapped", owned.metadata.name)])
    owner = {"apiVersion": "vmafx.dev/v1", "kind": "VmafxJob", "name": key.name, "uid": job.metadata.uid}
    metadata = {"name": "owned", "labels": {"mine": "yes"}, "ownerReferences": [{**owner, "controller": True}]}
    tasks = [asyncio.create_task(work) for work in (informer.run(), loop.run())]
    try:
        await informer.synced.wait()
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        await client.create(maps, body, namespace)
        await eventually(lambda: len(seen) == 2, "both keys are reconciled")
        assert set(seen) == {key, ObjectKey("mapped", "owned")}
        await client.delete(maps, ObjectKey(namespace, "owned"))
        await eventually(lambda: len(seen) == 3, "the mapped key is reconciled again")
        assert seen[2:] == [ObjectKey("mapped", "owned")]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[DevCluster]:
    """A cluster of its own, for tests that break it."""
    with DevCluster(tmp_path / "own", QUICK) as cluster:
        yield cluster


async def test_an_informer_recovers_when_the_api_server_is_killed(own_cluster: DevCluster) -> None:
    async with Client(load_config(own_cluster.kubeconfig)) as client:
        await crds.install_crds(client)
        informer = Informer(client, SLIM)
        await make(client, "default", "before")
        async with running(informer) as listener:
            command = kill(own_cluster, "kube-apiserver")
            with pytest.raises(KubeError):
                await make(client, "default", "meanwhile")
            start(own_cluster, "kube-apiserver", command)
            await client.delete(JOBS, ObjectKey("default", "before"))
            await make(client, "default", "after")
            await settled(informer, listener, client)
            assert [key.name for key in informer.store] == ["after"]


async def test_after_a_compaction_an_informer_relists_and_reports_deletions(own_cluster: DevCluster) -> None:
    async with Client(load_config(own_cluster.kubeconfig)) as client:
        await crds.install_crds(client)
        for name in ("kept", "deleted"):
            await make(client, "default", name)
        async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
            informer = Informer(through, SLIM)
            async with running(informer) as listener:
                # While the informer cannot watch, objects change and etcd is compacted.
                proxy.faults.extend([Refuse(503, retry_after="1")] * 50)
                proxy.cut()
                await client.delete(JOBS, ObjectKey("default", "deleted"))
                await make(client, "default", "new")
                await compact_etcd(own_cluster)
                start(own_cluster, "kube-apiserver", kill(own_cluster, "kube-apiserver"))
                proxy.faults.clear()
                await settled(informer, listener, client)
                assert {key.name for key in listener.known} == {"kept", "new"}


async def test_an_optional_resource_may_be_missing_appear_and_vanish(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(informer_module, "AVAILABILITY_CHECK_INTERVAL", 0.05)
    monkeypatch.setattr(informer_module, "VANISHED_AFTER", 0.2)
    group = f"{namespace}.example.com"
    gadgets: Resource[UntypedObject] = Resource(group, "v1", "gadgets", "Gadget", dict)
    names = {"kind": "Gadget", "listKind": "GadgetList", "plural": "gadgets", "singular": "gadget"}
    definition = {
        **DEFINITION, "metadata": {"name": f"gadgets.{group}"},
        "spec": {**DEFINITION["spec"], "group": group, "names": names},
    }  # fmt: skip
    informer = OptionalInformer(client, gadgets.decoded_as(Gadget), namespace=namespace)
    running = asyncio.create_task(informer.run())
    try:
        await asyncio.wait_for(informer.synced.wait(), 60)
        assert isinstance(informer.unavailable, NotFound)
        assert len(informer.store) == 0
        await client.create(CRDS, definition)
        await eventually(lambda: informer.unavailable is None, "the resource is available")
        body = {"apiVersion": f"{group}/v1", "kind": "Gadget", "metadata": {"name": "g"}}
        await client.create(gadgets, body, namespace)
        await eventually(lambda: informer.store.get(ObjectKey(namespace, "g")), "the object is in the store")
        await client.delete(CRDS, ObjectKey("", definition["metadata"]["name"]))
        await eventually(lambda: informer.unavailable is not None, "the resource has vanished")
        await eventually(lambda: not len(informer.store), "its objects are dropped")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_an_optional_resource_may_be_forbidden(client: Client, namespace: str, kubectl: Kubectl) -> None:
    kubectl("create", "serviceaccount", "nobody")
    token = await service_account_token(client, ObjectKey(namespace, "nobody"))
    async with Client(bearing(token, client.config)) as nobody:
        informer = OptionalInformer(nobody, JOBS.decoded_as(JobView), namespace=namespace)
        running = asyncio.create_task(informer.run())
        try:
            await asyncio.wait_for(informer.synced.wait(), 60)
            assert isinstance(informer.unavailable, Forbidden)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_an_optional_resource_keeps_its_objects_while_it_is_refused(
    client: Client, namespace: str, proxy: FaultyProxy
) -> None:
    """A 403 may pass, and what depends on the objects must not be deleted meanwhile."""
    key, _ = await make(client, namespace)
    async with Client(proxy.config) as through:
        informer = OptionalInformer(through, SLIM, namespace=namespace)
        async with running(informer):
            proxy.faults.extend([Refuse(403)] * 2)
            refreshed = asyncio.create_task(informer.refresh())
            await eventually(lambda: informer.unavailable, "the list is refused", every=0.01)
            assert informer.store.get(key) is not None
            await refreshed
            assert informer.unavailable is None
            assert informer.store.get(key) is not None
