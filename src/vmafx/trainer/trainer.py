"""The loops around a training: learning, checkpoints, publishing.

The training blocks on the disk and on the CPU, so a thread of its own uses it; calls wait for each other there.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from vmafx.backoff import Backoff, Retries
from vmafx.http.errors import StatusError
from vmafx.logs import log
from vmafx.scoring.errors import BadInput, ScoringError
from vmafx.tasks import in_thread, run_unless
from vmafx.training.config import TrainingConfig
from vmafx.training.distillation import StartingModel
from vmafx.training.online import OnlineTraining
from vmafx.training.registry import ModelRepository, PushFailed
from vmafx.training.samples import HumanScore, SamplePush
from vmafx.training.status import CheckpointInfo, TrainerStatus

SLICE = 8  # records of the log to learn from at a time: samples that come in wait for one slice at most
TICK = 1.0  # seconds between checks of timers
MAX_CALL = 300.0  # seconds for a call in the training thread; most take less than one, so a longer one hangs
OPEN_BACKOFF = Backoff(1.0, 60.0, spread=0.25)
PUSH_BACKOFF = Backoff(1.0, 300.0, spread=0.25)
R = TypeVar("R")


class Trainer:
    """The training of one process. Until it is open, samples are refused and can be sent again."""

    def __init__(
        self,
        config: TrainingConfig,
        folder: Path,
        load_base: Callable[[], StartingModel],
        repository: ModelRepository | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._folder, self._load_base, self._repository = config, folder, load_base, repository
        self._executor = ThreadPoolExecutor(1, "training")
        self._clock = clock
        self._call_since: float | None = None  # when the current call in the training thread started
        self._stopping = False
        self._pushing: asyncio.Future[None] | None = None
        self._training: OnlineTraining | None = None
        self._status = TrainerStatus(uid=config.uid, phase="Initializing", message=f"loading {config.base_model}")
        self._publish_error = ""
        self._new_samples, self._new_version = asyncio.Event(), asyncio.Event()

    def status(self) -> TrainerStatus:
        if self._training is None:
            return self._status
        return msgspec.structs.replace(self._training.status, publish_error=self._publish_error)

    def not_ready(self) -> str | None:
        return None if self._training is not None else self._status.message

    def not_healthy(self) -> str | None:
        since = self._call_since
        if since is None or self._clock() - since <= MAX_CALL:
            return None
        return f"the training has not responded for {self._clock() - since:.0f} s; its volume may hang"

    async def accept(self, push: SamplePush) -> str:
        """Store samples. Raises InvalidSamples, OSError, StatusError."""
        training = self._opened()
        result = await self._in_thread(lambda: training.accept(push))
        self._new_samples.set()
        return result

    async def add_human_scores(self, scores: list[HumanScore]) -> int:
        """Store scores that people gave; returns how many are new. Raises InvalidSamples, OSError, StatusError."""
        training = self._opened()
        added = await self._in_thread(lambda: training.add_human_scores(scores))
        self._new_samples.set()
        return added

    def _opened(self) -> OnlineTraining:
        if self._training is None:
            raise StatusError("UNAVAILABLE", f"the training has not started: {self._status.message}")
        if self._stopping:
            raise StatusError("UNAVAILABLE", "the trainer is stopping")
        return self._training

    async def run(self, stop: asyncio.Event) -> None:
        """Train until `stop` is set, then save."""
        try:
            await run_unless(stop, self._run())
        finally:
            self._stopping = True
            if self._training is not None:
                await self._in_thread(self._training.close)
            await self._end_push()
            await in_thread(self._executor.shutdown)

    async def _end_push(self) -> None:
        """Wait for the thread of the push; the version is pushed again after the next start."""
        if self._repository is not None:
            self._repository.close()
        if self._pushing is not None:
            await asyncio.wait({self._pushing})
            self._pushing.exception()  # marks it as retrieved, so that asyncio does not warn

    async def _run(self) -> None:
        self._training = training = await self._open()
        training.versions.publishing = self._repository is not None
        log.info("training", base=self._config.base_model, paused=self._config.paused, **_progress(training.status))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._learn(training))
            if self._repository is not None:
                group.create_task(self._publish(training, self._repository))

    async def _open(self) -> OnlineTraining:
        """Retry until it succeeds: a base model that cannot be fetched now may be later.

        Health does not depend on this: a download has its own timeouts, and reading a large log takes minutes.
        """
        retries, loop = Retries(OPEN_BACKOFF), asyncio.get_running_loop()
        while True:
            try:
                return await loop.run_in_executor(
                    self._executor, lambda: OnlineTraining(self._config, self._folder, self._load_base)
                )
            except ScoringError as error:
                wrong = isinstance(error, BadInput)
                self._status = TrainerStatus(
                    uid=self._config.uid, phase="Failed" if wrong else "Initializing", message=str(error)
                )
                log.error("cannot load the base model; retrying", model=self._config.base_model, error=str(error))
            await asyncio.sleep(retries.next())

    async def _learn(self, training: OnlineTraining) -> None:
        """Learn from what has come, and write a checkpoint when it is due."""
        while True:
            self._new_samples.clear()
            try:
                more = await self._in_thread(lambda: training.learn(SLICE))
            except OSError as error:
                more = False
                log.error("cannot read the samples; trying again", error=error.strerror or str(error))
            if await self._in_thread(training.checkpoint_if_due) is not None:
                self._new_version.set()
            if not more:
                with suppress(TimeoutError):
                    async with asyncio.timeout(TICK):
                        await self._new_samples.wait()

    async def _publish(self, training: OnlineTraining, repository: ModelRepository) -> None:
        """Push all versions, the oldest first; a registry that is down delays only this."""
        retries = Retries(PUSH_BACKOFF)
        while True:
            self._new_version.clear()
            versions = await self._in_thread(training.versions.unpushed)
            if not versions:
                await self._new_version.wait()
            elif await self._push(training, repository, versions[0]):
                retries.reset()
            else:
                await asyncio.sleep(retries.next())

    async def _push(self, training: OnlineTraining, repository: ModelRepository, version: CheckpointInfo) -> bool:
        artifact = await self._in_thread(lambda: training.versions.read(version))
        if artifact is None:  # damaged, and not listed any more
            return True
        try:
            loop = asyncio.get_running_loop()
            self._pushing = loop.run_in_executor(None, repository.push, artifact, version.number)
            await asyncio.shield(self._pushing)  # run() waits for it after the training is saved
            await self._in_thread(lambda: training.mark_pushed(version))
        except (PushFailed, OSError) as error:
            if not self._publish_error:
                log.warn("cannot push a version; retrying", number=version.number, error=str(error))
            self._publish_error = str(error)
            return False
        self._publish_error = ""
        log.info("pushed", number=version.number, digest=version.digest)
        return True

    async def _in_thread(self, call: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._timed, call)

    def _timed(self, call: Callable[[], R]) -> R:
        self._call_since = self._clock()
        try:
            return call()
        finally:
            self._call_since = None


def _progress(status: TrainerStatus) -> dict[str, int]:
    return {"samples": status.samples, "pending": status.pending, "checkpoints": len(status.checkpoints)}
