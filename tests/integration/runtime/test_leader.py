"""Leader election on a Lease of a real API server."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.proxy import FaultyProxy, Refuse, Stall
from tests.support.waiting import eventually
from vmafx.clock import loop_time
from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import LEASES
from vmafx.runtime.leader import DEFAULT_TIMINGS, LeaderElection, LeaseLost, Timings
from vmafx.runtime.metrics import Metrics

# Reads the lease often, and does not lose it on a slow machine.
FREQUENT = Timings(lease_duration=3600, renew_deadline=60.0, retry_period=0.05)


@pytest.fixture
def lease(namespace: str) -> ObjectKey:
    return ObjectKey(namespace, "vmafx-operator.vmafx.dev")


def candidate(
    client: Client, lease: ObjectKey, name: str, timings: Timings = FREQUENT
) -> tuple[LeaderElection, Metrics]:
    metrics = Metrics()
    return LeaderElection(client, lease, name, metrics, timings), metrics


def leader_status(metrics: Metrics, lease: ObjectKey) -> float | None:
    return metrics.registry.get_sample_value("leader_election_master_status", {"name": lease.name})


@pytest.fixture
async def tasks() -> AsyncIterator[list["asyncio.Task[None]"]]:
    tasks: list[asyncio.Task[None]] = []
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_second_candidate_waits_until_the_leader_releases_the_lease(
    client: Client, proxy: FaultyProxy, proxied_client: Client, lease: ObjectKey, tasks: list["asyncio.Task[None]"]
) -> None:
    first, first_metrics = candidate(client, lease, "first", DEFAULT_TIMINGS)
    second, second_metrics = candidate(proxied_client, lease, "second")
    assert leader_status(first_metrics, lease) == 0
    await first.acquire()
    assert leader_status(first_metrics, lease) == 1
    held = (await client.get(LEASES, lease)).spec
    assert (held.holderIdentity, held.leaseDurationSeconds, held.leaseTransitions) == ("first", 15, 0)
    await client.merge_patch(LEASES, lease, {"spec": {"leaseDurationSeconds": 3600}})  # it must not expire

    taking = asyncio.create_task(second.acquire())
    tasks.append(taking)
    await lease_reads(proxy, 5)
    assert not taking.done()
    assert leader_status(second_metrics, lease) == 0
    await first.release()
    assert leader_status(first_metrics, lease) == 0
    async with asyncio.timeout(60):
        await taking
    assert leader_status(second_metrics, lease) == 1
    taken = (await client.get(LEASES, lease)).spec
    assert (taken.holderIdentity, taken.leaseTransitions) == ("second", 1)


async def lease_reads(proxy: FaultyProxy, times: int) -> None:
    """Wait until the candidate behind the proxy has read the lease so many times from now on, and decided."""
    async with asyncio.timeout(60):
        await proxy.saw(len(proxy.seen) + times + 1)  # the last of them may not have a response yet


async def test_a_candidate_notices_a_released_lease_by_its_watch(
    client: Client, proxy: FaultyProxy, proxied_client: Client, lease: ObjectKey, tasks: list["asyncio.Task[None]"]
) -> None:
    first, _ = candidate(client, lease, "first")
    rare = Timings(lease_duration=3600, renew_deadline=60.0, retry_period=3600.0)
    second, _ = candidate(proxied_client, lease, "second", rare)
    await first.acquire()
    taking = asyncio.create_task(second.acquire())
    tasks.append(taking)
    async with asyncio.timeout(60):
        await proxy.saw(2)  # a get and a watch
        await first.release()
        await taking


async def test_a_renewal_keeps_the_acquire_time(
    client: Client, lease: ObjectKey, tasks: list["asyncio.Task[None]"]
) -> None:
    leader, _ = candidate(client, lease, "only")
    await leader.acquire()
    before = (await client.get(LEASES, lease)).spec
    tasks.append(asyncio.create_task(leader.renew()))

    async def renewed() -> bool:
        return (await client.get(LEASES, lease)).spec.renewTime != before.renewTime

    await eventually(renewed, "the lease is renewed")
    assert (await client.get(LEASES, lease)).spec.acquireTime == before.acquireTime


async def test_the_leader_notices_at_its_next_renewal_that_another_holds_the_lease(
    client: Client, lease: ObjectKey
) -> None:
    election, metrics = candidate(client, lease, "first")
    await election.acquire()
    await client.merge_patch(LEASES, lease, {"spec": {"holderIdentity": "second"}})
    with pytest.raises(LeaseLost, match="second holds it"):
        await election.renew()
    assert leader_status(metrics, lease) == 0
    await election.release()  # the lease of another is not released
    assert (await client.get(LEASES, lease)).spec.holderIdentity == "second"


async def test_a_lease_that_is_not_renewed_within_the_deadline_is_lost(
    proxy: FaultyProxy, proxied_client: Client, lease: ObjectKey
) -> None:
    election, metrics = candidate(proxied_client, lease, "cut-off", Timings(renew_deadline=3.0, retry_period=0.05))
    await election.acquire()
    assert election.is_leader()
    proxy.faults.extend([Refuse(500)] * 10_000)
    with pytest.raises(LeaseLost, match="not renewed for 3 s"):
        await election.renew()
    assert not election.is_leader()
    assert leader_status(metrics, lease) == 0


async def test_a_lease_is_taken_once_it_has_expired_and_not_before(client: Client, lease: ObjectKey) -> None:
    first, _ = candidate(client, lease, "first", Timings(lease_duration=2))
    await first.acquire()
    # Clocks are not compared: the times in the lease do not count, only when the candidate saw them change.
    await client.merge_patch(LEASES, lease, {"spec": {"renewTime": "1999-01-01T00:00:00.000000Z"}})
    second, _ = candidate(client, lease, "second")
    started = loop_time()
    async with asyncio.timeout(60):
        await second.acquire()
    assert loop_time() - started >= 2


async def test_of_two_candidates_that_start_together_one_leads(
    proxy: FaultyProxy, proxied_client: Client, lease: ObjectKey
) -> None:
    candidates = [candidate(proxied_client, lease, name)[0] for name in ("a", "b")]
    tasks = [asyncio.create_task(election.acquire()) for election in candidates]
    await asyncio.wait(tasks, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    await lease_reads(proxy, 8)  # by the other one: the leader does not renew here
    assert sorted(task.done() for task in tasks) == [False, True]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_leader_that_stops_during_a_renewal_releases_the_lease(client: Client, lease: ObjectKey) -> None:
    leader, _ = candidate(client, lease, "leader")
    await leader.acquire()
    # As after a renewal that reached the server, and whose response the leader did not get.
    await client.merge_patch(LEASES, lease, {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})
    await leader.release()
    assert (await client.get(LEASES, lease)).spec.holderIdentity == ""


async def test_the_leader_creates_a_deleted_lease_again(client: Client, lease: ObjectKey) -> None:
    election, _ = candidate(client, lease, "only")
    await election.acquire()
    await client.delete(LEASES, lease)
    holding = asyncio.create_task(election.renew())

    async def exists() -> bool:
        return [item.metadata.name for item in (await client.list(LEASES, lease.namespace)).items] == [lease.name]

    await eventually(exists, "the lease exists again")
    assert not holding.done()
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)


async def test_one_request_that_hangs_does_not_lose_the_lease(
    proxy: FaultyProxy, proxied_client: Client, lease: ObjectKey
) -> None:
    timings = Timings(renew_deadline=8.0, retry_period=0.05)  # the request hangs for half of it
    election, _ = candidate(proxied_client, lease, "first", timings)
    await election.acquire()
    proxy.seen.clear()
    proxy.faults.append(Stall())
    holding = asyncio.create_task(election.renew())
    try:
        async with asyncio.timeout(60):
            await proxy.saw(8)  # one hung, and the lease was renewed several times since
        assert not holding.done()
    finally:
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
