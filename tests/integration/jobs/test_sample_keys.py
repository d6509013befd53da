"""The keys of samples, in Secrets of a real API server."""

import asyncio

import pytest

from tests.support.proxy import FaultyProxy, Refuse
from vmafx.jobs.sample_keys import KEY_TTL, MIN_READ_INTERVAL, OUTAGE_INTERVAL, SAMPLES_SECRET, SampleKeys
from vmafx.jobs.sample_token import AttemptClaims, sign, verify
from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import SECRETS
from vmafx.kube.errors import ConfigError, Forbidden


class Clock:
    time = 1000.0

    def __call__(self) -> float:
        return self.time


async def test_processes_that_start_together_have_one_key(client: Client, namespace: str) -> None:
    keys = await asyncio.gather(*(SampleKeys(client).ensure(namespace) for _ in range(8)))
    assert len(set(keys)) == 1
    assert len(keys[0]) >= 32
    assert keys[0].decode("ascii").isprintable()  # a trainer gets it as an environment variable
    assert await SampleKeys(client).get(namespace) == keys[0]


async def test_a_key_is_read_again_when_it_is_old_or_missing(client: Client, namespace: str) -> None:
    clock = Clock()
    keys = SampleKeys(client, clock)
    assert await keys.get(namespace) is None
    key = await SampleKeys(client).ensure(namespace)
    assert await keys.get(namespace) is None
    clock.time += MIN_READ_INTERVAL
    assert await keys.get(namespace) == key
    await client.delete(SECRETS, ObjectKey(namespace, SAMPLES_SECRET))
    assert await keys.get(namespace) == key
    clock.time += KEY_TTL
    assert await keys.get(namespace) is None


async def test_a_token_of_a_new_key_is_accepted_after_the_interval(client: Client, namespace: str) -> None:
    clock, claims = Clock(), AttemptClaims(namespace, "node", "uid", "uid-0")
    keys, others = SampleKeys(client, clock), SampleKeys(client)
    await others.ensure(namespace)
    old = await others.try_sign(claims)
    assert old is not None
    assert await keys.verify(old) == claims
    await client.delete(SECRETS, ObjectKey(namespace, SAMPLES_SECRET))
    key = await others.ensure(namespace)
    new = await others.try_sign(claims)
    assert new is not None
    assert verify(key, new, AttemptClaims) == claims
    assert await keys.verify(new) is None  # read a moment ago: unknown tokens cause few reads
    clock.time += MIN_READ_INTERVAL
    assert await keys.verify(new) == claims
    assert await keys.verify(old) is None


async def test_a_secret_without_a_key_yields_no_token_and_says_why(client: Client, namespace: str) -> None:
    body = {"metadata": {"name": SAMPLES_SECRET}, "data": {"key": "c2hvcnQ="}}
    await client.create(SECRETS, body, namespace)
    with pytest.raises(ConfigError, match="delete it, and a new one is created"):
        await SampleKeys(client).ensure(namespace)
    claims = AttemptClaims(namespace, "node", "uid", "uid-0")
    assert await SampleKeys(client).try_sign(claims) is None


async def test_forged_tokens_cause_one_read_at_a_time(
    client: Client, namespace: str, proxy: FaultyProxy, proxied_client: Client
) -> None:
    clock, claims = Clock(), AttemptClaims(namespace, "node", "uid", "uid-0")
    keys, key = SampleKeys(proxied_client, clock), await SampleKeys(client).ensure(namespace)
    forged = [sign(f"forged {number}".encode(), claims) for number in range(100)]
    for reads in (1, 2, 3):
        assert await asyncio.gather(*map(keys.verify, forged)) == [None] * len(forged)
        assert len(proxy.seen) == reads
        assert await keys.verify(sign(key, claims)) == claims
        clock.time += MIN_READ_INTERVAL


async def test_a_failed_read_is_not_repeated_at_once(
    client: Client, namespace: str, proxy: FaultyProxy, proxied_client: Client
) -> None:
    clock, claims = Clock(), AttemptClaims(namespace, "node", "uid", "uid-0")
    keys, key = SampleKeys(proxied_client, clock), await SampleKeys(client).ensure(namespace)
    token, proxy.choose = sign(key, claims), lambda _: Refuse(403)
    for _ in range(3):
        outcomes = await asyncio.gather(*(keys.verify(token) for _ in range(10)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Forbidden}
    assert await keys.try_sign(claims) is None
    assert len(proxy.seen) == 1
    proxy.choose = lambda _: None
    clock.time += OUTAGE_INTERVAL
    assert await keys.verify(token) == claims
    assert await keys.try_sign(claims) is not None
    assert len(proxy.seen) == 2


async def test_a_caller_that_leaves_does_not_end_the_read_for_others(client: Client, namespace: str) -> None:
    key, keys = await SampleKeys(client).ensure(namespace), SampleKeys(client)
    impatient, patient = (asyncio.create_task(keys.get(namespace)) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient == key
    assert impatient.cancelled()
