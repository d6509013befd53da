"""Trainings, and a server that answers samples like their trainers: stored, duplicate, refused or unavailable."""

import asyncio
from collections.abc import Callable
from typing import Self

import msgspec
from aiohttp import web

from vmafx.api.meta import ObjectMeta
from vmafx.api.training import DataSource, VmafxModelTraining, VmafxModelTrainingSpec
from vmafx.jobs.sample_keys import SampleKeys
from vmafx.jobs.sample_token import TrainerClaims, trainer_audience, verify
from vmafx.kube import TRAININGS, Client, ObjectKey
from vmafx.training.samples import InvalidSamples, SampleBatch, SamplePush, SampleReceipt, SampleSource, decode_batch

OK = 200


async def add_training(client: Client, namespace: str, name: str, **labels: str) -> ObjectKey:
    """Create a training that selects nodes by labels, and the key for samples, which the operator would create."""
    spec = VmafxModelTrainingSpec("vmaf_v0.6.1", DataSource(labels) if labels else None)
    await client.create(TRAININGS, VmafxModelTraining(metadata=ObjectMeta(name=name), spec=spec), namespace)
    await SampleKeys(client).ensure(namespace)
    return ObjectKey(namespace, name)


class Trainers:
    """The trainers of all trainings, at one address. Use as an async context manager."""

    def __init__(self, client: Client) -> None:
        self._keys = SampleKeys(client)
        self.status: Callable[[str], int] = lambda _: OK  # by the name of the training: the status to reply with
        self.stored: dict[tuple[str, SampleSource], SampleBatch] = {}  # by training and source
        self.received = 0
        self.hold: asyncio.Event | None = None  # replies wait for it

    @property
    def address(self) -> str:
        """As VMAFX_TRAINER_ADDR."""
        return f"http://127.0.0.1:{self._port}/{{namespace}}/{{name}}"

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/{namespace}/{name}/v1/samples", self._receive)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def attempts(self, training: str) -> set[str]:
        return {source.attempt for name, source in self.stored if name == training}

    async def _receive(self, request: web.Request) -> web.Response:
        self.received += 1
        if self.hold is not None:
            await self.hold.wait()
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        token = request.headers["Authorization"].removeprefix("Bearer ")
        key = await self._keys.get(namespace)
        assert key is not None
        if verify(key, token, TrainerClaims) != TrainerClaims(trainer_audience(namespace, name)):
            return web.Response(status=401)
        if (status := self.status(name)) != OK:
            return web.Response(status=status, text="as the test says")
        push = msgspec.msgpack.decode(await request.read(), type=SamplePush)
        try:
            batch = decode_batch(push.batch)
        except InvalidSamples as error:
            return web.Response(status=422, text=str(error))
        known = (name, push.source) in self.stored
        self.stored.setdefault((name, push.source), batch)
        receipt = SampleReceipt("duplicate" if known else "stored")
        return web.Response(body=msgspec.json.encode(receipt), content_type="application/json")
