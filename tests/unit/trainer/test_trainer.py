"""The loops of a trainer around a real training: how it stops, and when it is healthy."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.sample_streams import start
from tests.support.training_samples import BASE, NAMESPACE, push
from tests.support.waiting import eventually, turns
from vmafx.http.errors import StatusError
from vmafx.scoring.artifact import ModelArtifact
from vmafx.segments import LogInUse
from vmafx.trainer.trainer import MAX_CALL, Trainer
from vmafx.training.config import TrainingConfig
from vmafx.training.distillation import StartingModel
from vmafx.training.online import OnlineTraining
from vmafx.training.registry import ModelRepository


def config(**changes: Any) -> TrainingConfig:
    return TrainingConfig(name="t", namespace=NAMESPACE, base_model=BASE, **changes)


class Clock:
    at = 1000.0

    def __call__(self) -> float:
        return self.at


class Blocked:
    """A call that blocks until it is released."""

    def __init__(self) -> None:
        self.entered, self.released = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.entered.set()
        assert self.released.wait(30)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, 30)


class StuckRepository(ModelRepository):
    """A registry whose name cannot be resolved: nothing ends this push."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1/team/vmaf")
        self.blocked = Blocked()

    def push(self, artifact: ModelArtifact, number: int) -> None:
        self.blocked.wait()
        super().push(artifact, number)


def is_released(folder: Path) -> bool:
    try:
        OnlineTraining(config(), folder, start).close()
    except LogInUse:
        return False
    return True


async def opened(trainer: Trainer) -> None:
    await eventually(lambda: trainer.not_ready() is None, "the training is open")


async def test_a_training_is_saved_although_a_push_hangs(tmp_path: Path) -> None:
    repository, stop = StuckRepository(), asyncio.Event()
    trainer = Trainer(config(checkpoint_interval=0.0, min_samples=1), tmp_path, start, repository)
    running = asyncio.create_task(trainer.run(stop))
    await opened(trainer)
    for seed in range(2):  # the first clip is held out
        await trainer.accept(push(seed))
    await repository.blocked.reached()
    assert not is_released(tmp_path)
    stop.set()
    await eventually(lambda: is_released(tmp_path), "the training is saved and its folder released", within=20)
    with pytest.raises(StatusError, match="the trainer is stopping"):
        await trainer.accept(push(2))
    assert not running.done()
    repository.blocked.released.set()
    await running


async def test_a_trainer_that_stops_while_it_loads_does_not_block_the_event_loop(tmp_path: Path) -> None:
    loading = Blocked()

    def load() -> StartingModel:
        loading.wait()
        return start()

    trainer, stop = Trainer(config(), tmp_path, load), asyncio.Event()
    running = asyncio.create_task(trainer.run(stop))
    await loading.reached()
    stop.set()
    await turns(20)
    assert not running.done()
    loading.released.set()
    await running


@pytest.mark.parametrize(("seconds", "healthy"), [(MAX_CALL, True), (MAX_CALL + 1, False)])
async def test_a_training_that_hangs_on_the_disk_is_not_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, healthy: bool
) -> None:
    clock, disk, stop = Clock(), Blocked(), asyncio.Event()
    trainer = Trainer(config(), tmp_path, start, clock=clock)
    running = asyncio.create_task(trainer.run(stop))
    await opened(trainer)
    learn: Callable[[OnlineTraining, int], bool] = OnlineTraining.learn

    def hangs(training: OnlineTraining, limit: int) -> bool:
        disk.wait()
        return learn(training, limit)

    monkeypatch.setattr(OnlineTraining, "learn", hangs)
    await disk.reached()
    assert trainer.not_healthy() is None
    clock.at += seconds
    assert (trainer.not_healthy() is None) == healthy
    disk.released.set()
    stop.set()
    await running
    assert trainer.not_healthy() is None


async def test_the_start_may_take_long(tmp_path: Path) -> None:
    clock, loading, stop = Clock(), Blocked(), asyncio.Event()

    def load() -> StartingModel:
        loading.wait()
        return start()

    trainer = Trainer(config(), tmp_path, load, clock=clock)
    running = asyncio.create_task(trainer.run(stop))
    await loading.reached()
    clock.at += 10 * MAX_CALL
    assert trainer.not_healthy() is None
    loading.released.set()
    stop.set()
    await running
