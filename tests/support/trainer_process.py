"""`vmafx trainer` as a process, and the calls of a controller to it."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec

from tests.support.commands import VMAFX
from tests.support.training_samples import BASE, NAMESPACE
from tests.support.waiting import eventually
from vmafx.devcluster.cluster import free_port
from vmafx.jobs.sample_token import TrainerClaims, sign, trainer_audience
from vmafx.training.config import CONFIG_VARIABLE, TrainingConfig
from vmafx.training.samples import HumanScore, SamplePush
from vmafx.training.status import TrainerStatus

NAME, KEY = "t", "0123456789abcdef" * 4


class TrainerProcess:
    """The trainer in one folder; it can be killed and started again. Use as an async context manager."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.folder, self.port = folder, free_port()
        self.config = TrainingConfig(name=NAME, namespace=NAMESPACE, **{"base_model": BASE, **config})
        self.variables: dict[str, str] = {}
        self.token = sign(KEY.encode(), TrainerClaims(trainer_audience(NAMESPACE, NAME)))
        self.process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self.session = aiohttp.ClientSession(f"http://127.0.0.1:{self.port}")
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
        await self.session.close()

    async def start(self, **config: Any) -> None:
        """Start the process; `config` changes the training from now on."""
        self.config = msgspec.structs.replace(self.config, **config)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            CONFIG_VARIABLE: msgspec.json.encode(self.config).decode(),
            "VMAFX_SAMPLES_KEY": KEY,
            "VMAFX_TRAINER_DIR": str(self.folder),
            "VMAFX_TRAINER_LISTEN": f"127.0.0.1:{self.port}",
            **self.variables,
        }
        with (self.folder / "trainer.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(VMAFX, "trainer", env=environment, stderr=log)

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def stop(self) -> int:
        """Stop it gracefully; returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        return await self.process.wait()

    async def ready(self) -> None:
        async def is_ready() -> bool:
            try:
                async with self.session.get("/readyz") as response:
                    return response.status == 200
            except aiohttp.ClientError:
                return False

        await eventually(is_ready, "the trainer is ready")

    async def status(self) -> TrainerStatus:
        async with self.session.get("/status") as response:
            return msgspec.json.decode(await response.read(), type=TrainerStatus)

    async def until(self, holds: Any, what: str) -> TrainerStatus:
        """Wait until `holds(status)`."""
        found: list[TrainerStatus] = []

        async def check() -> bool:
            try:
                found.append(await self.status())
            except aiohttp.ClientError:
                return False
            return bool(holds(found[-1]))

        try:
            await eventually(check, what)
        except AssertionError as error:
            raise AssertionError(f"{error}: {found[-1:]}") from None
        return found[-1]

    async def push(self, push: SamplePush) -> str:
        """The result: `stored` or `duplicate`."""
        status, reply = await self.post("/v1/samples", msgspec.msgpack.encode(push))
        assert status == 200, reply
        return str(reply["result"])

    async def label(self, scores: Sequence[HumanScore]) -> int:
        status, reply = await self.post("/v1/labels", msgspec.msgpack.encode(scores))
        assert status == 200, reply
        return int(reply["added"])

    async def post(self, path: str, body: bytes, token: str | None = None) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        async with self.session.post(path, data=body, headers=headers) as response:
            return response.status, msgspec.json.decode(await response.read())
