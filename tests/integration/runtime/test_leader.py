"""Leader election on a real lease."""

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

SOON = Timings(lasts=3600, renew_within=60.0, retry_every=0.05)  # looks often, and loses nothing to a slow machine


@pytest.fixture
def lease(namespace: str) -> ObjectKey:
    return ObjectKey(namespace, "vmafx-operator.vmafx.dev")


def candidate(client: Client, lease: ObjectKey, name: str, timings: Timings = SOON) -> tuple[LeaderElection, Metrics]:
    metrics = Metrics()
    return LeaderElection(client, lease, name, metrics, timings), metrics


def leads(metrics: Metrics, lease: ObjectKey) -> float | None:
    return metrics.registry.get_sample_value("leader_election_master_status", {"name": lease.name})


@pytest.fixture
async def waiting() -> AsyncIterator[list["asyncio.Task[None]"]]:
    tasks: list[asyncio.Task[None]] = []
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_leads_and_the_other_waits_until_the_lease_is_given_back(
    client: Client, proxy: FaultyProxy, proxied_client: Client, lease: ObjectKey, waiting: list["asyncio.Task[None]"]
) -> None:
    first, first_metrics = candidate(client, lease, "first", DEFAULT_TIMINGS)
    second, second_metrics = candidate(proxied_client, lease, "second")
    assert leads(first_metrics, lease) == 0
    await first.acquire()
    assert leads(first_metrics, lease) == 1
    held = (await client.get(LEASES, lease)).spec
    assert (held.holderIdentity, held.leaseDurationSeconds, held.leaseTransitions) == ("first", 15, 0)
    await client.merge_patch(LEASES, lease, {"spec": {"leaseDurationSeconds": 3600}})  # so that it does not run out

    taking = asyncio.create_task(second.acquire())
    waiting.append(taking)
    await looks(proxy, 5)
    assert not taking.done()
    assert leads(second_metrics, lease) == 0
    await first.release()
    assert leads(first_metrics, lease) == 0
    async with asyncio.timeout(60):
        await taking
    assert leads(second_metrics, lease) == 1
    taken = (await client.get(LEASES, lease)).spec
    assert (taken.holderIdentity, taken.leaseTransitions) == ("second", 1)


async def looks(proxy: FaultyProxy, times: int) -> None:
    """Wait until who goes through the proxy has looked at the lease so often, from now on, and decided."""
    async with asyncio.timeout(60):
        await proxy.saw(len(proxy.seen) + times + 1)  # the last of them may not be answered yet


async def test_a_lease_that_is_given_back_is_noticed_by_a_watch(
    client: Client, proxy: FaultyProxy, proxied_client: Client, lease: ObjectKey, waiting: list["asyncio.Task[None]"]
) -> None:
    first, _ = candidate(client, lease, "first")
    second, _ = candidate(proxied_client, lease, "second", Timings(lasts=3600, renew_within=60.0, retry_every=3600.0))
    await first.acquire()
    taking = asyncio.create_task(second.acquire())
    waiting.append(taking)
    async with asyncio.timeout(60):
        await proxy.saw(2)  # one to look, one to watch
        await first.release()
        await taking


async def test_renewing_goes_on_and_keeps_the_time_of_taking(
    client: Client, lease: ObjectKey, waiting: list["asyncio.Task[None]"]
) -> None:
    leader, _ = candidate(client, lease, "only")
    await leader.acquire()
    before = (await client.get(LEASES, lease)).spec
    waiting.append(asyncio.create_task(leader.hold()))

    async def renewed() -> bool:
        return (await client.get(LEASES, lease)).spec.renewTime != before.renewTime

    await eventually(renewed, "it is renewed")
    assert (await client.get(LEASES, lease)).spec.acquireTime == before.acquireTime


async def test_a_lease_that_somebody_took_is_lost_at_once(client: Client, lease: ObjectKey) -> None:
    election, metrics = candidate(client, lease, "robbed")
    await election.acquire()
    await client.merge_patch(LEASES, lease, {"spec": {"holderIdentity": "robber"}})
    with pytest.raises(LeaseLost, match="robber holds it"):
        await election.hold()
    assert leads(metrics, lease) == 0
    await election.release()  # not ours any more, so not given back
    assert (await client.get(LEASES, lease)).spec.holderIdentity == "robber"


async def test_a_lease_that_cannot_be_renewed_in_time_is_lost(
    proxy: FaultyProxy, proxied_client: Client, lease: ObjectKey
) -> None:
    election, metrics = candidate(proxied_client, lease, "cut-off", Timings(renew_within=3.0, retry_every=0.05))
    await election.acquire()
    assert election.holds()
    proxy.faults.extend([Refuse(500)] * 10_000)
    with pytest.raises(LeaseLost, match="not renewed for 3 s"):
        await election.hold()
    assert not election.holds()
    assert leads(metrics, lease) == 0


async def test_a_lease_that_nobody_renews_is_taken_when_it_has_run_out_and_not_before(
    client: Client, lease: ObjectKey
) -> None:
    gone, _ = candidate(client, lease, "gone", Timings(lasts=2))
    await gone.acquire()
    # Clocks are not compared: however old or new the times in the lease, only what we see of it counts.
    await client.merge_patch(LEASES, lease, {"spec": {"renewTime": "1999-01-01T00:00:00.000000Z"}})
    heir, _ = candidate(client, lease, "heir")
    started = loop_time()
    async with asyncio.timeout(60):
        await heir.acquire()
    assert loop_time() - started >= 2


async def test_two_that_start_together_do_not_both_lead(
    proxy: FaultyProxy, proxied_client: Client, lease: ObjectKey
) -> None:
    both = [candidate(proxied_client, lease, name)[0] for name in ("a", "b")]
    tasks = [asyncio.create_task(one.acquire()) for one in both]
    await asyncio.wait(tasks, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    await looks(proxy, 8)  # only by the other, since who leads does nothing here
    assert sorted(task.done() for task in tasks) == [False, True]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_stopped_in_the_middle_of_a_renewal_it_still_gives_the_lease_back(
    client: Client, lease: ObjectKey
) -> None:
    leader, _ = candidate(client, lease, "leader")
    await leader.acquire()
    # A renewal that was carried out, and whose answer we did not live to see.
    await client.merge_patch(LEASES, lease, {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})
    await leader.release()
    assert (await client.get(LEASES, lease)).spec.holderIdentity == ""


async def test_a_lease_that_was_deleted_is_made_again(client: Client, lease: ObjectKey) -> None:
    election, _ = candidate(client, lease, "only")
    await election.acquire()
    await client.delete(LEASES, lease)
    holding = asyncio.create_task(election.hold())

    async def is_there() -> bool:
        return [one.metadata.name for one in (await client.list(LEASES, lease.namespace)).items] == [lease.name]

    await eventually(is_there, "it is there again")
    assert not holding.done()
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)


async def test_one_call_that_hangs_does_not_cost_the_lease(
    proxy: FaultyProxy, proxied_client: Client, lease: ObjectKey
) -> None:
    timings = Timings(renew_within=8.0, retry_every=0.05)  # half of it hangs, half of it is left
    election, _ = candidate(proxied_client, lease, "first", timings)
    await election.acquire()
    proxy.seen.clear()
    proxy.faults.append(Stall())
    holding = asyncio.create_task(election.hold())
    try:
        async with asyncio.timeout(60):
            await proxy.saw(8)  # it hung, and was renewed several times since
        assert not holding.done()
    finally:
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
