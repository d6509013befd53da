"""Trainers with scripted answers: one HTTP server that answers for all trainings of a test."""

from typing import Any, Self

import msgspec
from aiohttp import web

from vmafx.clock import utc_now
from vmafx.training.samples import HumanScore
from vmafx.training.status import CheckpointInfo, Quality, TrainerStatus

DIGEST = "sha256:" + "0" * 63


class ScriptedTrainers:
    """Serves /status and /v1/labels of every training. Use as an async context manager.

    A training without an answer gets 503, as from a Service without endpoints.
    """

    def __init__(self) -> None:
        self.answers: dict[str, TrainerStatus | bytes | int] = {}  # by the name of the training; a number is a status
        self.reads: dict[str, int] = {}
        self.labels: dict[str, list[HumanScore]] = {}
        self.tokens: dict[str, str] = {}
        self.labels_status = 204
        self.port = 0

    @property
    def address(self) -> str:
        """The pattern for VMAFX_TRAINER_ADDR."""
        return f"http://127.0.0.1:{self.port}/{{namespace}}/{{name}}"

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/{namespace}/{name}/status", self._status)
        app.router.add_post("/{namespace}/{name}/v1/labels", self._labels)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _status(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.reads[name] = self.reads.get(name, 0) + 1
        answer = self.answers.get(name, 503)
        if isinstance(answer, int):
            return web.Response(status=answer)
        body = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
        return web.Response(body=body, content_type="application/json")

    async def _labels(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        scores = msgspec.msgpack.decode(await request.read(), type=list[HumanScore])
        if self.labels_status < 300:
            self.labels.setdefault(name, []).extend(scores)
            self.tokens[name] = request.headers["Authorization"].removeprefix("Bearer ")
        return web.Response(status=self.labels_status)


def running(**fields: Any) -> TrainerStatus:
    """The status of a trainer that has learned from some samples."""
    quality = Quality(loss=12.5, pearson=0.9, spearman=0.8)
    defaults = {"phase": "Running", "samples": 1000, "quality": quality, "learning_rate": 0.001}
    return TrainerStatus(**{**defaults, "last_sample": utc_now(), **fields})


def checkpoint(number: int, **fields: Any) -> CheckpointInfo:
    quality = Quality(loss=10.0 / number, pearson=0.9, spearman=0.8)
    defaults = {"time": utc_now(), "samples": 1000 * number, "quality": quality, "pushed": True}
    return CheckpointInfo(number, f"{DIGEST}{number % 10}", **{**defaults, **fields})
