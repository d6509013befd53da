"""The controller with a trainer process: what the controller acknowledges is on the trainer's disk."""

import asyncio
import json
import os
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.integration.controller.test_samples import pod_token
from tests.support import training_samples
from tests.support.inprocess_controller import controller_ports
from tests.support.trainers import add_training
from tests.support.waiting import eventually
from vmafx.devcluster.cluster import free_port
from vmafx.jobs.sample_keys import SampleKeys
from vmafx.kube import Client
from vmafx.training.config import CONFIG_VARIABLE, TrainingConfig
from vmafx.training.samples import encode_batch

VMAFX = str(Path(sys.executable).with_name("vmafx"))


@asynccontextmanager
async def trainer(folder: Path, namespace: str, key: bytes, port: int) -> AsyncIterator[None]:
    """`vmafx trainer` for the training "main"; killed at the end."""
    config = TrainingConfig(name="main", namespace=namespace, base_model="vmaf_v0.6.1", paused=True)
    environment = {
        "PATH": os.environ["PATH"],
        CONFIG_VARIABLE: msgspec.json.encode(config).decode(),
        "VMAFX_SAMPLES_KEY": key.decode(),
        "VMAFX_TRAINER_DIR": str(folder),
        "VMAFX_TRAINER_LISTEN": f"127.0.0.1:{port}",
    }
    process = await asyncio.create_subprocess_exec(VMAFX, "trainer", env=environment)
    try:
        yield
    finally:
        process.kill()
        await process.wait()


async def post(url: str, body: dict[str, Any]) -> str:
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/samples", json=body) as response:
        reply = json.loads(await response.read())
        return str(reply.get("result", reply.get("code")))


async def test_what_is_acknowledged_survives_a_kill_of_the_trainer(
    client: Client, namespace: str, tmp_path: Path
) -> None:
    await add_training(client, namespace, "main")
    key, port = await SampleKeys(client).ensure(namespace), free_port()
    options = {"trainers": f"http://127.0.0.1:{port}"}
    batch = training_samples.batch(1)
    body = {"samplesToken": await pod_token(client, namespace), "samples": b64encode(encode_batch(batch)).decode()}

    async with controller_ports(client, namespace, **options) as (_, url):

        async def first_reply(ignored: str) -> str:
            """The first other reply than `ignored`."""
            replies = list[str]()

            async def is_other() -> bool:
                replies.append(await post(url, body))
                return replies[-1] != ignored

            await eventually(is_other, f"another reply than {ignored}")
            return replies[-1]

        assert await first_reply("UNAUTHENTICATED") == "RETRY"  # once the controller has seen the training
        async with trainer(tmp_path, namespace, key, port):
            assert await first_reply("RETRY") == "STORED"
            assert await post(url, body) == "DUPLICATE"
        assert await post(url, body) == "RETRY"
        async with trainer(tmp_path, namespace, key, port):
            assert await first_reply("RETRY") == "DUPLICATE"
            assert await post(url, body | {"samples": b64encode(b"garbage").decode()}) == "REFUSED"
