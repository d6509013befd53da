"""Samples through the controller: verified, forwarded to the trainings that select the node, and never kept."""

import asyncio
import io
import itertools
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import grpc
import pytest

from tests.conftest import Logged
from tests.support.fleet import operating
from tests.support.inprocess_controller import Agent, controller_ports, controller_stub
from tests.support.proxy import FaultyProxy, Refuse
from tests.support.trainers import Trainers, add_training
from tests.support.waiting import eventually
from vmafx.api.job import VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.controller import samples as forwarding
from vmafx.jobs.sample_keys import SAMPLES_SECRET, SampleKeys
from vmafx.jobs.sample_token import AttemptClaims, TrainerClaims, sign, trainer_audience
from vmafx.kube import JOBS, NODES, TRAININGS, Client, ObjectKey
from vmafx.kube.core import SECRETS
from vmafx.runtime.metrics import Metrics
from vmafx.scoring.result import MODEL_FEATURES
from vmafx.training.samples import MAX_BATCH_BYTES, SampleSource, encode_batch, make_batch
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.controller_pb2_grpc import VmafxControllerStub

Reply = wire.PushSamplesResponse
VALUES = {name: [0.5, 0.6, 0.7] for name in MODEL_FEATURES} | {"vmaf": [90.0, 91.0, 92.0]}
_made = make_batch("vmaf_v0.6.1", [0, 1, 2], VALUES)
assert _made is not None
BATCH = encode_batch(_made)


JSON = {"Content-Type": "application/json"}
NESTED = b'{"expires":1,"claims":' + b"[" * 1400


def _stream(body: Any) -> io.BytesIO:
    return io.BytesIO(json.dumps(body).encode())


class Controller(NamedTuple):
    stub: VmafxControllerStub
    url: str  # of its HTTP port
    trainers: Trainers
    metrics: Metrics

    async def push(self, agent: Agent, token: str, samples: bytes = BATCH) -> wire.PushSamplesResponse:
        return await self.stub.PushSamples(wire.PushSamplesRequest(**agent.me, samples_token=token, samples=samples))

    async def post(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        """As a Pod."""
        body = {"samples": b64encode(BATCH).decode()} | fields
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}/v1/samples", data=_stream(body), headers=JSON) as response,
        ):
            return response.status, await response.json()

    def forwarded(self, result: str) -> float | None:
        return self.metrics.registry.get_sample_value("vmafx_controller_sample_batches_total", {"result": result})


@asynccontextmanager
async def controlling(client: Client, namespace: str) -> AsyncIterator[Controller]:
    metrics = Metrics()
    async with (
        Trainers(client) as trainers,
        controller_ports(client, namespace, trainers=trainers.address, metrics=metrics) as (port, url),
        controller_stub(port) as stub,
    ):
        yield Controller(stub, url, trainers, metrics)


@pytest.fixture
async def controller(client: Client, namespace: str) -> AsyncIterator[Controller]:
    async with controlling(client, namespace) as controller:
        yield controller


async def join(client: Client, namespace: str, agent: Agent, **labels: str) -> None:
    await agent.register(labels=labels)
    await client.patch_status(NODES, ObjectKey(namespace, agent.name), {"healthy": True})


async def place(client: Client, namespace: str, name: str, **spec: Any) -> str:
    """Create a job; its uid."""
    wanted = VmafxJobSpec("file:///a.mp4", "file:///b.mp4", **spec)
    return (await client.create(JOBS, VmafxJob(metadata=ObjectMeta(name=name), spec=wanted), namespace)).metadata.uid


async def pull_with_token(client: Client, namespace: str, agent: Agent) -> wire.Job:
    """Pull until the controller has seen the training and the node."""
    pulled = wire.Job()

    async def has_token() -> bool:
        nonlocal pulled
        agent.running.clear()  # an attempt that is not listed is sent again
        pulled = (await agent.pull()).job
        return bool(pulled.samples_token)

    await place(client, namespace, f"job-of-{agent.name}", nodeSelector={"only": agent.name})
    await eventually(has_token, "a job comes with a token")
    return pulled


async def test_samples_of_an_agent_reach_the_trainings_that_select_its_node(client: Client, namespace: str) -> None:
    for name, labels in {"rack": {"rack": "a"}, "box": {"only": "box"}, "others": {"rack": "b"}}.items():
        await add_training(client, namespace, name, **labels)
    async with controlling(client, namespace) as controller, operating(client, namespace):
        agent = Agent(controller.stub, "box")
        await join(client, namespace, agent, rack="a", only="box")
        job = await pull_with_token(client, namespace, agent)
        assert (await controller.push(agent, job.samples_token)).result == Reply.STORED
        source = SampleSource(namespace, "box", job.id.rpartition("-")[0], job.id)
        assert set(controller.trainers.stored) == {("rack", source), ("box", source)}
        assert encode_batch(controller.trainers.stored["rack", source]) == BATCH
        assert (await controller.push(agent, job.samples_token)).result == Reply.DUPLICATE
        assert (controller.forwarded("stored"), controller.forwarded("duplicate")) == (2.0, 2.0)


async def test_a_fleet_without_training_sends_and_reads_nothing(
    client: Client, namespace: str, proxy: FaultyProxy, proxied_client: Client
) -> None:
    """Neither the controller nor the operator reads a key, and agents get no token."""
    paths = list[str]()
    proxy.choose = lambda request: paths.append(request.path)
    async with controlling(proxied_client, namespace) as controller:
        agent = Agent(controller.stub, "box")
        await join(client, namespace, agent, only="box")
        async with operating(proxied_client, namespace):
            await place(client, namespace, "one")
            job = (await agent.pull()).job
            assert (job.name, job.samples_token) == ("one", "")
            assert (await controller.push(agent, "token")).result == Reply.UNWANTED
            assert await agent.scored(job.id)
        assert (controller.trainers.received, controller.forwarded("unavailable")) == (0, 0.0)
    assert [path for path in paths if SAMPLES_SECRET in path] == []


async def test_an_agent_cannot_send_samples_of_another_attempt_or_node(
    client: Client, namespace: str, controller: Controller
) -> None:
    await add_training(client, namespace, "all")
    agent, other = Agent(controller.stub, "box"), Agent(controller.stub, "other")
    await join(client, namespace, agent, only="box")
    await join(client, namespace, other, only="other")
    async with operating(client, namespace):
        job = await pull_with_token(client, namespace, agent)
        token_of_other = (await pull_with_token(client, namespace, other)).samples_token
    forged = sign(b"x" * 32, AttemptClaims(namespace, "box", "uid", "uid-0", agent=True))
    for token in (token_of_other, forged, "", "v1.a.b", job.samples_token[:-5]):
        reply = await controller.push(agent, token)
        assert (reply.result, "not valid" in reply.message) == (Reply.REFUSED, True)
    with pytest.raises(grpc.aio.AioRpcError) as error:  # nor without its session
        await controller.stub.PushSamples(wire.PushSamplesRequest(samples_token=job.samples_token, samples=BATCH))
    assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED
    await other.register()  # a later session of the same node
    assert (await controller.push(other, token_of_other)).result == Reply.STORED
    assert controller.trainers.attempts("all") == set(other.running)


async def pod_token(client: Client, namespace: str, **changes: Any) -> str:
    key = await SampleKeys(client).ensure(namespace)
    claims = {"namespace": namespace, "node": "pool", "job": "uid", "attempt": "uid-0"} | changes
    return sign(key, AttemptClaims(**claims))


async def sees_training(controller: Controller, token: str) -> None:
    """Wait until the controller forwards samples of a Pod."""

    async def is_seen() -> bool:
        return (await controller.post(samplesToken=token))[0] == 200

    await eventually(is_seen, "the controller has seen the training")


async def test_a_pod_pushes_with_its_token_alone(client: Client, namespace: str, controller: Controller) -> None:
    await add_training(client, namespace, "all")
    token = await pod_token(client, namespace)
    await sees_training(controller, token)
    assert await controller.post(samplesToken=token) == (200, {"result": "DUPLICATE", "message": ""})
    assert set(controller.trainers.stored) == {("all", SampleSource(namespace, "pool", "uid", "uid-0"))}


async def test_hostile_requests_are_rejected_and_reach_no_trainer(
    client: Client, namespace: str, other_namespace: str, controller: Controller
) -> None:
    await add_training(client, namespace, "all")
    await add_training(client, other_namespace, "all")
    valid = await pod_token(client, namespace)
    await sees_training(controller, valid)
    received = controller.trainers.received
    key_of_other = await SampleKeys(client).ensure(other_namespace)
    key = await SampleKeys(client).ensure(namespace)
    for token in (
        "",
        "nonsense",
        "v1.é.b",
        await pod_token(client, other_namespace),  # not served here
        sign(key_of_other, AttemptClaims(namespace, "pool", "uid", "uid-0")),
        sign(key, TrainerClaims(trainer_audience(namespace, "all"))),
        await pod_token(client, namespace, agent=True),
        sign(key, AttemptClaims("../secrets", "pool", "uid", "uid-0")),
        sign(key, AttemptClaims("", "pool", "uid", "uid-0")),
        sign(key, AttemptClaims(namespace, "pool", "uid", "uid-0"), lambda: 1e9),  # expired
        f"v1.{b64encode(NESTED).decode()}.AA",
        "x" * 100_000,
    ):
        status, body = await controller.post(samplesToken=token)
        assert (status, body["code"]) == (401, "UNAUTHENTICATED")
    for samples in ("", b64encode(bytes(MAX_BATCH_BYTES + 1)).decode(), 7, None):
        status, body = await controller.post(samplesToken=valid, samples=samples)
        assert (status, body["code"]) == (400, "INVALID_ARGUMENT"), samples
    status, _ = await controller.post(samplesToken=valid, samples="A" * (1 << 21))
    assert status == 413
    assert (await controller.post(samplesToken=valid, nodeId=f"{namespace}/pool", sessionToken="x"))[0] == 401
    assert controller.trainers.received == received


async def test_a_trainer_that_refuses_samples_is_not_asked_again(
    client: Client, namespace: str, controller: Controller
) -> None:
    await add_training(client, namespace, "all")
    token = await pod_token(client, namespace)
    await sees_training(controller, token)
    garbage = b64encode(b"garbage").decode()
    status, body = await controller.post(samplesToken=token, samples=garbage)
    assert (status, body["result"]) == (200, "REFUSED")
    assert body["message"] == f"the trainer of {namespace}/all replied with HTTP status 422"
    assert controller.forwarded("refused") == 1.0


@pytest.mark.parametrize("status", [500, 503, 401, 404, 429])
async def test_samples_are_sent_again_while_one_trainer_cannot_take_them(
    client: Client, namespace: str, controller: Controller, logged: Logged, status: int
) -> None:
    for name in ("up", "down"):
        await add_training(client, namespace, name)
    token = await pod_token(client, namespace)
    await sees_training(controller, token)
    await eventually(lambda: _push_reaches(controller, token, "down"), "the controller has seen both")
    controller.trainers.status = lambda name: status if name == "down" else 200
    token = await pod_token(client, namespace, attempt="uid-1")
    _, body = await controller.post(samplesToken=token)
    assert (body["result"], f"HTTP status {status}" in body["message"]) == ("RETRY", True)
    assert "uid-1" in controller.trainers.attempts("up") - controller.trainers.attempts("down")
    await controller.post(samplesToken=token)
    controller.trainers.status = lambda _: 200

    async def is_stored() -> bool:
        return bool((await controller.post(samplesToken=token))[1]["result"] == "STORED")

    await eventually(is_stored, "a batch is sent to the trainer again")
    assert "uid-1" in controller.trainers.attempts("down")
    messages = [message for message, _ in logged("training", f"{namespace}/down")]
    assert messages == ["trainer does not take samples; agents keep them", "trainer takes samples again"]


async def test_a_pod_does_not_wait_for_a_trainer_that_is_down(client: Client, namespace: str) -> None:
    """After a failure it gets no batch for a while, and then one at a time."""
    now = 1000.0
    key = await add_training(client, namespace, "all")
    async with (
        Trainers(client) as trainers,
        controller_ports(client, namespace, trainers=trainers.address, clock=lambda: now) as (port, url),
        controller_stub(port) as stub,
    ):
        controller = Controller(stub, url, trainers, Metrics())
        token = await pod_token(client, namespace)
        await sees_training(controller, token)
        trainers.status = lambda _: 503
        _, body = await controller.post(samplesToken=token)
        assert (body["result"], "HTTP status 503" in body["message"]) == ("RETRY", True)
        received = trainers.received
        await client.patch_status(TRAININGS, key, {"currentSamples": 1})  # says nothing about the outage
        for _ in range(20):
            assert (await controller.post(samplesToken=token))[1]["result"] == "RETRY"
        assert trainers.received == received
        now += forwarding.PROBE_INTERVAL
        trainers.hold = asyncio.Event()
        probe = asyncio.create_task(controller.post(samplesToken=token))
        await eventually(lambda: trainers.received == received + 1, "the trainer is probed")
        assert (await controller.post(samplesToken=token))[1]["result"] == "RETRY"
        trainers.status = lambda _: 200
        trainers.hold.set()
        assert (await probe)[1]["result"] == "DUPLICATE"
        assert (await controller.post(samplesToken=token))[1]["result"] == "DUPLICATE"
        assert trainers.received == received + 2


async def _push_reaches(controller: Controller, token: str, training: str) -> bool:
    await controller.post(samplesToken=token)
    return bool(controller.trainers.attempts(training))


async def test_a_slow_trainer_gets_a_limited_number_of_batches_at_once(
    client: Client, namespace: str, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_training(client, namespace, "all")
    token = await pod_token(client, namespace)
    await sees_training(controller, token)
    release = asyncio.Event()
    post = forwarding.SampleForwarder._post

    async def slow(*arguments: Any) -> Any:
        await release.wait()
        return await post(*arguments)

    monkeypatch.setattr(forwarding.SampleForwarder, "_post", slow)
    calls = [asyncio.create_task(controller.post(samplesToken=token)) for _ in range(forwarding.MAX_IN_FLIGHT + 3)]
    await eventually(lambda: sum(call.done() for call in calls) == 3, "those beyond the limit are answered")
    release.set()
    results = sorted(body["result"] for _, body in await asyncio.gather(*calls))
    assert results == ["DUPLICATE"] * forwarding.MAX_IN_FLIGHT + ["RETRY"] * 3


async def test_no_trainer_at_the_address_means_later(client: Client, namespace: str, logged: Logged) -> None:
    await add_training(client, namespace, "all")
    options = {"trainers": "http://127.0.0.1:1"}
    async with controller_ports(client, namespace, **options) as (port, url), controller_stub(port) as stub:
        controller = Controller(stub, url, Trainers(client), Metrics())
        token = await pod_token(client, namespace)
        await sees_training(controller, token)
        _, body = await controller.post(samplesToken=token)
    assert body["result"] == "RETRY"
    ((_, fields),) = logged("training", f"{namespace}/all")
    assert ("cannot be reached" in str(fields["error"]), bool(fields["detail"])) == (True, True)


async def test_the_certificates_for_trainers_are_loaded_once(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads, load = list[bool](), ssl.create_default_context

    def counted(*arguments: Any, **options: Any) -> ssl.SSLContext:
        loads.append(True)
        return load(*arguments, **options)

    monkeypatch.setattr(ssl, "create_default_context", counted)
    await add_training(client, namespace, "all")
    times = itertools.count(0.0, forwarding.PROBE_INTERVAL)
    options: dict[str, Any] = {"trainers": "https://127.0.0.1:1", "clock": lambda: next(times)}
    async with controller_ports(client, namespace, **options) as (port, url), controller_stub(port) as stub:
        controller = Controller(stub, url, Trainers(client), Metrics())
        token = await pod_token(client, namespace)
        await sees_training(controller, token)
        for _ in range(3):
            assert "cannot be reached" in (await controller.post(samplesToken=token))[1]["message"]
    assert len(loads) == 1


async def test_a_controller_that_may_not_read_trainings_serves_agents(
    client: Client, namespace: str, proxy: FaultyProxy, proxied_client: Client
) -> None:
    """Its ClusterRole may be older than the controller."""
    proxy.choose = lambda request: Refuse(403) if TRAININGS.plural in request.path else None
    async with controlling(proxied_client, namespace) as controller, operating(client, namespace):
        agent = Agent(controller.stub, "box")
        await join(client, namespace, agent)
        await place(client, namespace, "one")
        job = (await agent.pull()).job
        assert (job.name, job.samples_token) == ("one", "")
        assert (await controller.push(agent, "token")).result == Reply.UNWANTED


async def test_a_new_key_invalidates_the_tokens_of_the_old_one(
    client: Client, namespace: str, controller: Controller
) -> None:
    await add_training(client, namespace, "all")
    old = await pod_token(client, namespace)
    await sees_training(controller, old)
    await client.delete(SECRETS, ObjectKey(namespace, SAMPLES_SECRET))
    new = await pod_token(client, namespace, attempt="uid-1")

    async def is_accepted() -> bool:
        return (await controller.post(samplesToken=new))[0] == 200

    await eventually(is_accepted, "the new key is read after a token did not match")
    assert (await controller.post(samplesToken=old))[0] == 401


async def test_a_deleted_training_wants_no_samples(client: Client, namespace: str, controller: Controller) -> None:
    training = await add_training(client, namespace, "all")
    agent = Agent(controller.stub, "box")
    await join(client, namespace, agent, only="box")
    async with operating(client, namespace):
        job = await pull_with_token(client, namespace, agent)
        await client.delete(TRAININGS, training)

        async def is_unwanted() -> bool:
            return (await controller.push(agent, job.samples_token)).result == Reply.UNWANTED

        await eventually(is_unwanted, "the controller has seen the deletion")
        agent.running.clear()
        assert (await agent.pull()).job.samples_token == ""


async def test_a_key_that_cannot_be_read_does_not_hold_up_a_job(
    client: Client, namespace: str, proxy: FaultyProxy, proxied_client: Client, logged: Logged
) -> None:
    await add_training(client, namespace, "all")
    proxy.choose = lambda request: Refuse(403) if SAMPLES_SECRET in request.path else None
    async with controlling(proxied_client, namespace) as controller:
        agent = Agent(controller.stub, "box", capacity=3)
        await join(client, namespace, agent)
        async with operating(client, namespace):
            for name in ("one", "two", "three"):
                await place(client, namespace, name)
                job = (await agent.pull()).job
                assert (job.name, job.samples_token) == (name, "")
    warned = [message for message, fields in logged("namespace", namespace) if "signing key" in message]
    assert len(warned) == 1  # once per outage
