"""A cache that stays equal to the server, whatever happens in between."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.devcluster.test_cluster import QUICK
from tests.integration.kube.test_client import SLIM, Picky, make
from tests.support.faults import compact_etcd, kill, start
from tests.support.proxy import CutStream, Delay, FaultyProxy, LoseRequest, Refuse, Stall
from tests.support.waiting import eventually
from vmafx.api.job import JobSpecView, JobView
from vmafx.api.meta import MetaView, ObjectMeta
from vmafx.devcluster import DevCluster, crds
from vmafx.jobs.cache import UNFINISHED, jobs_informer
from vmafx.kube import JOBS, Client, ObjectKey, Resource, load_config
from vmafx.kube.errors import KubeError
from vmafx.kube.watch import Added, Bookmark, Deleted, Modified
from vmafx.runtime.informer import Informer, StoreFilter
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.reconcile import ReconcileLoop, ReconcileResult
from vmafx.runtime.store import ObjectChange


class Listener:
    """Knows only what it is told."""

    def __init__(self, informer: Informer[JobView]) -> None:
        self.known: dict[ObjectKey, JobView] = {}
        self._news = asyncio.Event()
        informer.on_change(self._hear)

    async def heard(self, enough: Callable[[], bool]) -> None:
        """Wait until what was told is enough."""
        async with asyncio.timeout(60):
            while not enough():
                self._news.clear()
                await self._news.wait()

    def _hear(self, change: ObjectChange[JobView]) -> None:
        self._news.set()
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
    """Wait until cache and listener are what the server has, and fail if they do not become so."""
    for _ in range(600):
        there = {
            ObjectKey(job.metadata.namespace, job.metadata.name): job
            for job in (await client.list(SLIM, namespace)).items
        }
        cached = dict(zip(informer.store, informer.store.values(), strict=True))
        if there == cached == listener.known:
            return
        await asyncio.sleep(0.05)
    assert cached == there
    assert listener.known == there


both_ways = pytest.mark.parametrize("streaming", [False, True])


@both_ways
async def test_it_follows(client: Client, namespace: str, streaming: bool) -> None:
    key, _ = await make(client, namespace, "before")
    informer = Informer(client, SLIM, namespace=namespace, streaming=streaming)
    async with running(informer) as listener:
        assert list(informer.store) == [key]
        await make(client, namespace, "after")
        await client.patch_status(JOBS, key, {"phase": "Running"})
        await client.delete(JOBS, ObjectKey(namespace, "after"))
        await settled(informer, listener, client, namespace)


@both_ways
async def test_what_is_not_kept_is_told_and_forgotten(client: Client, namespace: str, streaming: bool) -> None:
    ended, _ = await make(client, namespace, "ended")
    await client.patch_status(JOBS, ended, {"phase": "Succeeded"})
    going, _ = await make(client, namespace, "going")
    informer = Informer(client, SLIM, namespace=namespace, keep=StoreFilter(UNFINISHED.wanted), streaming=streaming)
    async with running(informer) as listener:
        assert list(informer.store) == [going]
        assert listener.known.keys() == {ended, going}
        await client.patch_status(JOBS, going, {"phase": "Succeeded"})
        await listener.heard(lambda: not len(informer.store))
        assert listener.known[going].status.phase == "Succeeded"


async def test_history_is_not_read_and_what_happens_is_told(client: Client, namespace: str) -> None:
    ended, _ = await make(client, namespace, "ended")
    await client.patch_status(JOBS, ended, {"phase": "Failed"})
    going, _ = await make(client, namespace, "going")
    informer = jobs_informer(client, namespace)
    async with running(informer) as listener:
        assert listener.known.keys() == set(informer.store) == {going}
        coming, _ = await make(client, namespace, "coming")
        for key in (coming, going):
            await client.patch_status(JOBS, key, {"phase": "Succeeded"})
        await listener.heard(lambda: not len(informer.store))
        assert {key: job.status.phase for key, job in listener.known.items()} == {
            coming: "Succeeded",
            going: "Succeeded",
        }


async def test_a_server_that_does_not_stream_is_read_in_pages(client: Client, namespace: str) -> None:
    key, _ = await make(client, namespace)
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        proxy.faults.append(Refuse(422, body='{"reason": "Invalid", "message": "sendInitialEvents is forbidden"}'))
        informer = Informer(through, SLIM, namespace=namespace, streaming=True)
        async with running(informer) as listener:
            assert listener.known.keys() == {key}


async def test_indexes(client: Client, namespace: str) -> None:
    key, _ = await make(client, namespace)
    indexes = {"node": lambda job: filter(None, [job.status.assignedNode])}
    informer = Informer(client, SLIM, namespace=namespace, indexes=indexes)
    async with running(informer) as listener:
        await client.patch_status(JOBS, key, {"phase": "Running", "assignedNode": "n1"})
        await settled(informer, listener, client, namespace)
        assert [job.metadata.name for job in informer.store.by("node", "n1")] == [key.name]


@both_ways
@pytest.mark.parametrize("seed", range(3))
async def test_it_stays_equal_through_faults_of_all_kinds(
    client: Client, namespace: str, seed: int, streaming: bool
) -> None:
    """Connections dropped, delayed, refused, and cut anywhere, in the middle of a busy time."""
    dice = random.Random(seed)
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        informer = Informer(through, SLIM, namespace=namespace, streaming=streaming)
        async with running(informer) as listener:
            names: list[str] = []
            for _ in range(150):
                if dice.random() < 0.2:
                    busy, broken = Refuse(429, retry_after="0"), Refuse(500)
                    kinds = (CutStream(dice.randrange(5000)), LoseRequest(), Delay(0.2), busy, broken)
                    proxy.faults.append(dice.choice(kinds))
                    proxy.cut()
                match dice.choice(("create", "create", "patch", "delete")):
                    case "create":
                        names.append((await make(client, namespace))[0].name)
                    case "patch" if names:
                        key = ObjectKey(namespace, dice.choice(names))
                        await client.merge_patch(JOBS, key, {"spec": {"priority": dice.randrange(100)}})
                    case "delete" if names:
                        await client.delete(JOBS, ObjectKey(namespace, names.pop(dice.randrange(len(names)))))
            proxy.faults.clear()
            await settled(informer, listener, client, namespace)
    assert len(proxy.seen) > 2  # more than a list and a watch: it was broken, and came back


async def test_what_ended_while_nobody_watched_is_told_as_ended_and_not_as_gone(client: Client, namespace: str) -> None:
    ends, goes = (await make(client, namespace, "ends"))[0], (await make(client, namespace, "goes"))[0]
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        informer = jobs_informer(through, namespace)
        async with running(informer) as listener:
            expired = Refuse(410, body='{"reason": "Expired", "code": 410}')
            proxy.faults.extend([Refuse(503, retry_after="1"), expired])
            proxy.cut()
            await client.patch_status(JOBS, ends, {"phase": "Succeeded"})
            await client.delete(JOBS, goes)
            await listener.heard(lambda: not len(informer.store))
            assert {key: job.status.phase for key, job in listener.known.items()} == {ends: "Succeeded"}


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_refreshed_cache_knows_what_its_silent_watch_did_not_tell(
    client: Client, namespace: str, streaming: bool
) -> None:
    before, _ = await make(client, namespace, "before")
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        if not streaming:
            proxy.faults.extend([None, Stall()])  # the list passes, the watch never says a word
        informer = Informer(through, SLIM, namespace=namespace, streaming=streaming)
        async with running(informer):
            await proxy.saw(1 if streaming else 2)
            after, _ = await make(client, namespace, "after")
            if not streaming:
                assert list(informer.store) == [before]
            await asyncio.gather(informer.refresh(), informer.refresh())
            assert set(informer.store) == {before, after}
            later, _ = await make(client, namespace, "later")
            await eventually(lambda: informer.store.get(later) is not None, "it goes on watching")


async def test_a_cache_is_refreshed_that_just_lost_its_watch(client: Client, namespace: str) -> None:
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        proxy.faults.extend([None, Refuse(403), Refuse(403)])
        informer = Informer(through, SLIM, namespace=namespace)
        async with running(informer):
            await proxy.saw(2)  # it pauses now, before it lists again
            made, _ = await make(client, namespace)
            await informer.refresh()
            assert set(informer.store) == {made}


async def test_one_that_can_no_longer_be_read_does_not_keep_the_others_from_being_listed_again(
    client: Client, namespace: str
) -> None:
    """It was in the store, is set aside by the next list, and asking after it does not help either."""
    odd, even = await make(client, namespace, "odd"), await make(client, namespace, "even", nodeSelector={"a": "b"})
    keep: StoreFilter[Any] = StoreFilter(lambda _: True, "status.phase!=Failed")
    informer: Informer[Any] = Informer(client, JOBS.seen_as(Picky), namespace=namespace, keep=keep)
    informer.store.put(odd[0], odd[1])
    async with running(informer) as listener:
        assert list(informer.store) == [even[0]]
        assert listener.known.keys() == {even[0]}


def event(kind: type, name: str, version: str) -> Any:
    metadata = MetaView(name=name, namespace="n", resourceVersion=version)
    return kind(JobView(metadata=metadata, spec=JobSpecView("file:///a", "file:///b")))


async def test_changes_that_come_before_a_streamed_list_is_complete_count(client: Client) -> None:
    informer = Informer(client, SLIM, streaming=True)
    listener = Listener(informer)
    for one in (
        event(Added, "x", "1"),
        event(Added, "y", "1"),
        event(Modified, "x", "5"),
        event(Deleted, "y", "6"),
        msgspec.json.decode(INITIAL_END_MARK, type=Bookmark),
    ):
        informer._apply(one)
    assert {key.name: job.metadata.resourceVersion for key, job in listener.known.items()} == {"x": "5"}
    assert [key.name for key in informer.store] == ["x"]


INITIAL_END_MARK = b"""{"type": "BOOKMARK", "object": {"metadata":
    {"resourceVersion": "6", "annotations": {"k8s.io/initial-events-end": "true"}}}}"""


class Owned(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


async def test_a_controller_is_woken_by_what_its_objects_own(client: Client, namespace: str) -> None:
    """Owned objects wake their owner, mapped ones whom they are mapped to, and a predicate has the say."""
    maps: Resource[Owned] = Resource("", "v1", "configmaps", "ConfigMap", Owned)
    key, job = await make(client, namespace)
    informer = Informer(client, maps, namespace=namespace, labels="mine=yes")
    seen: list[ObjectKey] = []

    async def reconcile(woken: ObjectKey) -> ReconcileResult:
        seen.append(woken)
        return ReconcileResult.done()

    controller = ReconcileLoop("test", reconcile, Metrics())
    controller.owns(informer, "VmafxJob", when=lambda change: change.new is not None)
    controller.watches(informer, to=lambda owned: [ObjectKey("mapped", owned.metadata.name)])
    owner = {"apiVersion": "vmafx.dev/v1", "kind": "VmafxJob", "name": key.name, "uid": job.metadata.uid}
    metadata = {"name": "owned", "labels": {"mine": "yes"}, "ownerReferences": [{**owner, "controller": True}]}
    tasks = [asyncio.create_task(work) for work in (informer.run(), controller.run())]
    try:
        await informer.synced.wait()
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        await client.create(maps, body, namespace)
        await eventually(lambda: len(seen) == 2, "both are woken")
        assert set(seen) == {key, ObjectKey("mapped", "owned")}
        await client.delete(maps, ObjectKey(namespace, "owned"))
        await eventually(lambda: len(seen) == 3, "the mapped one is woken again")
        assert seen[2:] == [ObjectKey("mapped", "owned")]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[DevCluster]:
    """One that may come to harm."""
    with DevCluster(tmp_path / "own", QUICK) as cluster:
        yield cluster


async def test_it_survives_the_api_server_being_killed(own_cluster: DevCluster) -> None:
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


async def test_a_watch_that_missed_a_compaction_lists_again_and_tells_the_deletions(own_cluster: DevCluster) -> None:
    async with Client(load_config(own_cluster.kubeconfig)) as client:
        await crds.install_crds(client)
        for name in ("stays", "goes"):
            await make(client, "default", name)
        async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
            informer = Informer(through, SLIM)
            async with running(informer) as listener:
                # While nobody can watch, things change, and the server forgets how.
                proxy.faults.extend([Refuse(503, retry_after="1")] * 50)
                proxy.cut()
                await client.delete(JOBS, ObjectKey("default", "goes"))
                await make(client, "default", "comes")
                await compact_etcd(own_cluster)
                start(own_cluster, "kube-apiserver", kill(own_cluster, "kube-apiserver"))
                proxy.faults.clear()
                await settled(informer, listener, client)
                assert {key.name for key in listener.known} == {"stays", "comes"}
