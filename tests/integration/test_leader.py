"""Leader election on a real lease."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from tests.support.proxy import FaultyProxy, Stall
from tests.support.waiting import eventually
from vmafx.kube import Client, Key
from vmafx.kube.core import LEASES
from vmafx.runtime import leader
from vmafx.runtime.leader import LASTS, LeaderElection, LeaseLost
from vmafx.runtime.metrics import Metrics


@pytest.fixture
def lease(namespace: str) -> Key:
    return Key(namespace, "vmafx-operator.vmafx.dev")


def candidate(client: Client, lease: Key, name: str) -> tuple[LeaderElection, Metrics]:
    metrics = Metrics()
    return LeaderElection(client, lease, name, metrics), metrics


def leads(metrics: Metrics, lease: Key) -> float | None:
    return metrics.registry.get_sample_value("leader_election_master_status", {"name": lease.name})


@pytest.fixture
async def waiting() -> AsyncIterator[list["asyncio.Task[None]"]]:
    tasks: list[asyncio.Task[None]] = []
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_leads_and_the_other_waits_until_the_lease_is_given_back(
    client: Client, lease: Key, waiting: list["asyncio.Task[None]"]
) -> None:
    first, first_metrics = candidate(client, lease, "first")
    second, second_metrics = candidate(client, lease, "second")
    assert leads(first_metrics, lease) == 0
    await first.acquire()
    assert leads(first_metrics, lease) == 1
    taking = asyncio.create_task(second.acquire())
    waiting.append(taking)
    await asyncio.sleep(3)  # longer than it looks for a free lease, shorter than this one lasts
    assert not taking.done()
    held = (await client.get(LEASES, lease)).spec
    assert (held.holderIdentity, held.leaseDurationSeconds, held.leaseTransitions) == ("first", 15, 0)

    await client.merge_patch(LEASES, lease, {"spec": {"leaseDurationSeconds": 3600}})  # so that it does not run out
    await first.release()
    assert leads(first_metrics, lease) == 0
    async with asyncio.timeout(60):  # it is noticed
        await taking
    assert leads(second_metrics, lease) == 1
    taken = (await client.get(LEASES, lease)).spec
    assert (taken.holderIdentity, taken.leaseTransitions) == ("second", 1)


async def test_renewing_goes_on_and_keeps_the_time_of_taking(
    client: Client, lease: Key, waiting: list["asyncio.Task[None]"]
) -> None:
    leader, _ = candidate(client, lease, "only")
    await leader.acquire()
    before = (await client.get(LEASES, lease)).spec
    waiting.append(asyncio.create_task(leader.hold()))

    async def renewed() -> bool:
        return (await client.get(LEASES, lease)).spec.renewTime != before.renewTime

    await eventually(renewed, "it is renewed")
    assert (await client.get(LEASES, lease)).spec.acquireTime == before.acquireTime


async def test_a_lease_that_somebody_took_is_lost_at_once(
    client: Client, lease: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "RENEW_WITHIN", 60.0)  # or it might be lost for that reason
    election, metrics = candidate(client, lease, "robbed")
    await election.acquire()
    await client.merge_patch(LEASES, lease, {"spec": {"holderIdentity": "robber"}})
    with pytest.raises(LeaseLost, match="robber holds it"):
        await election.hold()
    assert leads(metrics, lease) == 0
    await election.release()  # not ours any more, so not given back
    assert (await client.get(LEASES, lease)).spec.holderIdentity == "robber"


async def test_a_lease_that_nobody_renews_is_taken_when_it_has_run_out_and_not_before(
    client: Client, lease: Key
) -> None:
    gone, _ = candidate(client, lease, "gone")
    await gone.acquire()
    # Clocks are not compared: however old or new the times in the lease, only what we see of it counts.
    await client.merge_patch(LEASES, lease, {"spec": {"renewTime": "1999-01-01T00:00:00.000000Z"}})
    heir, _ = candidate(client, lease, "heir")
    started = time.monotonic()
    async with asyncio.timeout(3 * LASTS):
        await heir.acquire()
    assert time.monotonic() - started >= LASTS


async def test_two_that_start_together_do_not_both_lead(client: Client, lease: Key) -> None:
    both = [candidate(client, lease, name)[0] for name in ("a", "b")]
    tasks = [asyncio.create_task(one.acquire()) for one in both]
    await asyncio.wait(tasks, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    done, pending = await asyncio.wait(tasks, timeout=4)  # longer than the other looks for a free lease
    assert (len(done), len(pending)) == (1, 1)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


async def test_stopped_in_the_middle_of_a_renewal_it_still_gives_the_lease_back(client: Client, lease: Key) -> None:
    leader, _ = candidate(client, lease, "leader")
    await leader.acquire()
    # A renewal that was carried out, and whose answer we did not live to see.
    await client.merge_patch(LEASES, lease, {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})
    await leader.release()
    assert (await client.get(LEASES, lease)).spec.holderIdentity == ""


async def test_a_lease_that_was_deleted_is_made_again(
    client: Client, lease: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "RENEW_WITHIN", 60.0)
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
    client: Client, lease: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "RENEW_WITHIN", 16.0)  # half of it hangs, half of it is left
    monkeypatch.setattr(leader, "RETRY_EVERY", 0.3)
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        election, _ = candidate(through, lease, "first")
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
