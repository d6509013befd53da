"""What the client does when the network, or the server, does not do its part."""

import asyncio

import pytest

from tests.integration.kube.test_client import SLIM, make, take
from tests.support import virtual
from tests.support.closed_port import closed_port
from tests.support.proxy import CutStream, FaultyProxy, LoseAnswer, LoseRequest, Refuse, Stall
from vmafx.kube import JOBS, Client, Config, ObjectKey, transport
from vmafx.kube.errors import ServerError, TooManyRequests, Unreachable
from vmafx.kube.transport import ApiRequest, Transport
from vmafx.kube.watch import RETRY_LIMIT, Added

NOWHERE = Config(server="http://nowhere", tls=None)  # behind a proxy that passes nothing on


@pytest.mark.parametrize("status", [429, 503])
async def test_a_request_turned_away_comes_back_when_told(
    proxy: FaultyProxy, proxied_client: Client, namespace: str, status: int
) -> None:
    proxy.faults.extend([Refuse(status, retry_after="0")] * 3)
    key, _ = await make(proxied_client, namespace)
    assert proxy.seen == ["POST"] * 4
    assert [job.metadata.name for job in (await proxied_client.list(JOBS, namespace)).items] == [key.name]


async def test_a_503_that_does_not_say_when_is_not_tried_again(
    proxy: FaultyProxy, proxied_client: Client, namespace: str
) -> None:
    proxy.faults.append(Refuse(503, body="the backend is gone"))
    with pytest.raises(ServerError, match="the backend is gone"):
        await make(proxied_client, namespace)
    assert proxy.seen == ["POST"]


async def test_giving_up_says_why(proxy: FaultyProxy, proxied_client: Client, namespace: str) -> None:
    proxy.faults.extend([Refuse(429, retry_after="0", body='{"message": "slow down"}')] * 20)
    with pytest.raises(TooManyRequests, match="slow down"):
        await make(proxied_client, namespace)
    assert len(proxy.seen) == 6


async def test_a_create_whose_answer_was_lost_is_not_sent_twice(
    proxy: FaultyProxy, proxied_client: Client, client: Client, namespace: str
) -> None:
    proxy.faults.append(LoseAnswer())
    with pytest.raises(Unreachable, match="was lost"):
        await make(proxied_client, namespace)
    assert proxy.seen == ["POST"]
    assert len((await client.list(JOBS, namespace)).items) == 1


@pytest.mark.parametrize("fault", [LoseRequest(), LoseAnswer()])
async def test_what_comes_to_the_same_twice_is_sent_again(
    proxy: FaultyProxy, proxied_client: Client, namespace: str, fault: LoseRequest | LoseAnswer
) -> None:
    key, _ = await make(proxied_client, namespace)
    for call in (
        proxied_client.get(JOBS, key),
        proxied_client.merge_patch(JOBS, key, {"spec": {"priority": 2}}),
        proxied_client.patch_status(JOBS, key, {"message": "hello"}),
    ):
        proxy.seen.clear()
        proxy.faults.append(fault)
        assert (await call).metadata.name == key.name
        assert len(proxy.seen) == 2


@pytest.mark.parametrize("fault", [LoseRequest(), LoseAnswer()])
async def test_a_guarded_patch_is_not_sent_again(
    proxy: FaultyProxy, proxied_client: Client, namespace: str, fault: LoseRequest | LoseAnswer
) -> None:
    """Had the first one arrived, the second would be refused, and the caller told that somebody else wrote."""
    key, made = await make(proxied_client, namespace)
    proxy.seen.clear()
    proxy.faults.append(fault)
    with pytest.raises(Unreachable):
        await proxied_client.patch_status(JOBS, key, {"message": "hello"}, version=made.metadata.resourceVersion)
    assert proxy.seen == ["PATCH"]


def test_nobody_there() -> None:
    async def ask(server: str) -> None:
        async with Client(Config(server=server, tls=None)) as client:
            await client.get(JOBS, ObjectKey("a", "b"))

    with closed_port() as port:
        server = f"https://127.0.0.1:{port}"
        with pytest.raises(Unreachable, match=f"cannot connect to {server}: .*[Cc]onn") as refused:
            virtual.run(ask(server))
    assert refused.value.sent is False


def test_a_server_that_says_nothing_is_not_waited_for_for_ever() -> None:
    async def ask() -> None:
        async with FaultyProxy(NOWHERE) as proxy, Transport(proxy.config) as transport:
            proxy.faults.extend([Stall()] * 10)
            with pytest.raises(Unreachable, match="did not answer in time"):
                await transport.call(ApiRequest("POST", "/api", body=b"{}", timeout=30.0))
            assert proxy.seen == ["POST"]

    virtual.run(ask())


async def test_a_watch_cut_anywhere_loses_nothing_and_repeats_nothing(
    proxy: FaultyProxy, proxied_client: Client, client: Client, namespace: str
) -> None:
    version = (await client.list(SLIM, namespace)).metadata.resourceVersion
    made = [(await make(client, namespace))[0].name for _ in range(12)]
    # One event has about 900 bytes: cut within the first, at odd places, between two, and by errors.
    cuts = [CutStream(after) for after in (0, 1, 450, 900, 901, 1000, 2700)]
    proxy.faults.extend([*cuts, LoseRequest(), Refuse(429, retry_after="0"), Refuse(500)])
    events = await take(proxied_client.watch(SLIM, namespace, version=version), 12)
    assert [event.object.metadata.name for event in events if isinstance(event, Added)] == made
    assert len(proxy.seen) > 8


async def test_stopping_a_watch_closes_its_connection(
    proxied_client: Client, proxy: FaultyProxy, namespace: str
) -> None:
    async def follow() -> None:
        async for _ in proxied_client.watch(SLIM, namespace):
            pass

    tasks = [asyncio.create_task(follow()) for _ in range(5)]
    await proxy.saw(5)
    for task in tasks:
        task.cancel()
    assert all(isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*tasks, return_exceptions=True))
    key, _ = await make(proxied_client, namespace)  # the client itself goes on
    # The server notices when it next has something to say to them.
    async with asyncio.timeout(60):
        while proxy.open:
            await proxied_client.merge_patch(JOBS, key, {"spec": {"priority": proxy.open}})
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("answer", [Refuse(200), Refuse(429, retry_after="0"), Refuse(500), LoseRequest()])
def test_a_watch_that_ends_at_once_is_not_opened_in_a_frenzy(answer: Refuse | LoseRequest) -> None:
    """Also one with a good answer that is over at once."""

    async def almost_a_minute() -> None:
        async with FaultyProxy(NOWHERE) as proxy, Client(proxy.config) as proxied_client:
            proxy.faults.extend([answer] * 10_000)

            async def follow() -> None:
                async for _ in proxied_client.watch(SLIM, "n", version="1"):
                    pass

            following = asyncio.create_task(follow())
            await asyncio.sleep(0.9 * RETRY_LIMIT)
            assert not following.done()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            assert 10 <= len(proxy.seen) <= 20

    virtual.run(almost_a_minute())


async def test_a_watch_that_is_cut_before_it_has_a_version_says_so(
    proxy: FaultyProxy, proxied_client: Client, client: Client, namespace: str
) -> None:
    """What is there comes in no order: going on from the last of it would leave others out."""
    for _ in range(3):
        await make(client, namespace)
    proxy.faults.append(CutStream(1800))
    with pytest.raises(Unreachable):
        await take(proxied_client.watch(SLIM, namespace), 3)


async def test_a_deletion_whose_answer_was_lost_is_repeated_only_for_that_very_object(
    proxy: FaultyProxy, proxied_client: Client, namespace: str
) -> None:
    key, made = await make(proxied_client, namespace)
    proxy.faults.append(LoseAnswer())
    await proxied_client.delete(JOBS, key, uid=made.metadata.uid)
    other, _ = await make(proxied_client, namespace)
    proxy.faults.append(LoseAnswer())
    with pytest.raises(Unreachable):
        await proxied_client.delete(JOBS, other)


async def test_a_watch_that_falls_silent_is_begun_again(
    proxy: FaultyProxy, proxied_client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_SILENCE", 0.2)
    version = (await proxied_client.list(SLIM, namespace)).metadata.resourceVersion
    proxy.seen.clear()

    async def follow() -> None:
        async for _ in proxied_client.watch(SLIM, namespace, version=version):
            pass

    following = asyncio.create_task(follow())
    try:
        async with asyncio.timeout(60):
            await proxy.saw(3)
        assert not following.done()
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_a_watch_that_is_refused_for_long_says_so(
    proxy: FaultyProxy, proxied_client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmafx.kube.watch.RETRY_LIMIT", 0.5)
    version = (await proxied_client.list(SLIM, namespace)).metadata.resourceVersion
    proxy.faults.extend([Refuse(429, retry_after="0")] * 1000)

    async def follow() -> None:
        async for _ in proxied_client.watch(SLIM, namespace, version=version):
            pass

    with pytest.raises(TooManyRequests):
        await asyncio.wait_for(follow(), 60)
