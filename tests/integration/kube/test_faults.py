"""The client with a faulty network or API server."""

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

NO_SERVER = Config(server="http://nowhere", tls=None)  # behind a proxy that forwards nothing


@pytest.mark.parametrize("status", [429, 503])
async def test_a_throttled_request_is_retried_after_retry_after(
    proxy: FaultyProxy, proxied_client: Client, namespace: str, status: int
) -> None:
    proxy.faults.extend([Refuse(status, retry_after="0")] * 3)
    key, _ = await make(proxied_client, namespace)
    assert proxy.seen == ["POST"] * 4
    assert [job.metadata.name for job in (await proxied_client.list(JOBS, namespace)).items] == [key.name]


async def test_a_503_without_retry_after_is_not_retried(
    proxy: FaultyProxy, proxied_client: Client, namespace: str
) -> None:
    proxy.faults.append(Refuse(503, body="the backend is down"))
    with pytest.raises(ServerError, match="the backend is down"):
        await make(proxied_client, namespace)
    assert proxy.seen == ["POST"]


async def test_the_last_retry_raises_the_error_of_the_server(
    proxy: FaultyProxy, proxied_client: Client, namespace: str
) -> None:
    proxy.faults.extend([Refuse(429, retry_after="0", body='{"message": "slow down"}')] * 20)
    with pytest.raises(TooManyRequests, match="slow down"):
        await make(proxied_client, namespace)
    assert len(proxy.seen) == 6


async def test_a_create_whose_response_is_lost_is_not_retried(
    proxy: FaultyProxy, proxied_client: Client, client: Client, namespace: str
) -> None:
    proxy.faults.append(LoseAnswer())
    with pytest.raises(Unreachable, match="was lost"):
        await make(proxied_client, namespace)
    assert proxy.seen == ["POST"]
    assert len((await client.list(JOBS, namespace)).items) == 1


@pytest.mark.parametrize("fault", [LoseRequest(), LoseAnswer()])
async def test_an_idempotent_request_is_retried(
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
async def test_a_patch_with_a_resource_version_is_not_retried(
    proxy: FaultyProxy, proxied_client: Client, namespace: str, fault: LoseRequest | LoseAnswer
) -> None:
    """If the first one took effect, a retry would conflict with it."""
    key, made = await make(proxied_client, namespace)
    proxy.seen.clear()
    proxy.faults.append(fault)
    with pytest.raises(Unreachable):
        await proxied_client.patch_status(JOBS, key, {"message": "hello"}, version=made.metadata.resourceVersion)
    assert proxy.seen == ["PATCH"]


def test_a_refused_connection_is_reported_as_not_sent() -> None:
    async def call(server: str) -> None:
        async with Client(Config(server=server, tls=None)) as client:
            await client.get(JOBS, ObjectKey("a", "b"))

    with closed_port() as port:
        server = f"https://127.0.0.1:{port}"
        with pytest.raises(Unreachable, match=f"cannot connect to {server}: .*[Cc]onn") as raised:
            virtual.run(call(server))
    assert raised.value.sent is False


def test_a_call_without_a_response_times_out() -> None:
    async def call() -> None:
        async with FaultyProxy(NO_SERVER) as proxy, Transport(proxy.config) as transport:
            proxy.faults.extend([Stall()] * 10)
            with pytest.raises(Unreachable, match="did not respond in time"):
                await transport.call(ApiRequest("POST", "/api", body=b"{}", timeout=30.0))
            assert proxy.seen == ["POST"]

    virtual.run(call())


async def test_an_interrupted_watch_loses_and_repeats_no_event(
    proxy: FaultyProxy, proxied_client: Client, client: Client, namespace: str
) -> None:
    version = (await client.list(SLIM, namespace)).metadata.resourceVersion
    made = [(await make(client, namespace))[0].name for _ in range(12)]
    # An event has about 900 bytes: cut within the first, between two, elsewhere, and by errors.
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
    key, _ = await make(proxied_client, namespace)  # the client still works
    # The server notices a closed connection when it sends the next event.
    async with asyncio.timeout(60):
        while proxy.open:
            await proxied_client.merge_patch(JOBS, key, {"spec": {"priority": proxy.open}})
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("fault", [Refuse(200), Refuse(429, retry_after="0"), Refuse(500), LoseRequest()])
def test_a_watch_that_ends_at_once_reconnects_with_backoff(fault: Refuse | LoseRequest) -> None:
    """Even if the response is a 200 that ends at once."""

    async def almost_a_minute() -> None:
        async with FaultyProxy(NO_SERVER) as proxy, Client(proxy.config) as proxied_client:
            proxy.faults.extend([fault] * 10_000)

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


async def test_a_watch_interrupted_during_the_initial_events_raises(
    proxy: FaultyProxy, proxied_client: Client, client: Client, namespace: str
) -> None:
    """Initial events come in no order: resuming after the last of them would skip others."""
    for _ in range(3):
        await make(client, namespace)
    proxy.faults.append(CutStream(1800))
    with pytest.raises(Unreachable):
        await take(proxied_client.watch(SLIM, namespace), 3)


async def test_a_deletion_whose_response_is_lost_is_retried_only_by_uid(
    proxy: FaultyProxy, proxied_client: Client, namespace: str
) -> None:
    key, made = await make(proxied_client, namespace)
    proxy.faults.append(LoseAnswer())
    await proxied_client.delete(JOBS, key, uid=made.metadata.uid)
    other, _ = await make(proxied_client, namespace)
    proxy.faults.append(LoseAnswer())
    with pytest.raises(Unreachable):
        await proxied_client.delete(JOBS, other)


async def test_a_silent_watch_reconnects(
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


async def test_a_watch_that_keeps_failing_raises_after_the_retry_limit(
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
