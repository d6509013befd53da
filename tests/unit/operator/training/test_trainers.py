"""How often the status of trainers is read, in virtual time, and how few connections that takes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from tests.support import virtual
from tests.support.setting_defaults import defaults
from vmafx.api.meta import MetaView
from vmafx.api.training import TrainingView, VmafxModelTrainingSpec
from vmafx.clock import loop_time
from vmafx.kube import ObjectKey
from vmafx.operator.training import manifests
from vmafx.operator.training.decide import QUICK_PERIOD, LiveTrainer
from vmafx.operator.training.settings import TrainingSettings
from vmafx.operator.training.trainers import TrainerClient, TrainerPoller
from vmafx.settings import from_environ
from vmafx.training.address import parse_trainer_address
from vmafx.training.status import TrainerStatus

KEY = ObjectKey("n", "t")
UP, STARTING = LiveTrainer(1, 1, rolled_out=True), LiveTrainer(1)


class FakeTrainers(TrainerClient):
    """Answers that a test sets, without a network."""

    def __init__(self) -> None:
        super().__init__("http://none")
        self.answer: TrainerStatus | Exception = OSError("refused")
        self.times: list[float] = []

    async def get_status(self, key: ObjectKey, uid: str) -> TrainerStatus:
        self.times.append(loop_time())
        if key.name == "slow":
            await asyncio.sleep(5)
            raise OSError("did not answer within 5 s")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Watched:
    """A poller of one trainer, and the keys it reported."""

    def __init__(self) -> None:
        self.client, self.changed, self.answered = FakeTrainers(), [0], [0]
        self.poller = TrainerPoller(self.client, 60.0, lambda _: self._count(self.changed), self._on_answer)

    def _on_answer(self, _key: ObjectKey) -> None:
        self._count(self.answered)

    @staticmethod
    def _count(counter: list[int]) -> None:
        counter[0] += 1

    def intervals(self) -> list[float]:
        times = self.client.times
        return [round(later - earlier, 3) for earlier, later in pairwise(times)]


@asynccontextmanager
async def polling() -> AsyncIterator[Watched]:
    watched = Watched()
    task = asyncio.create_task(watched.poller.run())
    try:
        yield watched
    finally:
        task.cancel()


def test_a_trainer_that_starts_is_read_every_two_seconds_and_later_every_minute() -> None:
    async def scenario() -> None:
        async with polling() as watched:
            watched.poller.follow(KEY, "u", STARTING, changing=True)
            await asyncio.sleep(7)
            assert watched.intervals() == [2.0, 2.0, 2.0]
            watched.client.answer = TrainerStatus(phase="Running")
            await asyncio.sleep(2)
            watched.poller.follow(KEY, "u", STARTING, changing=False)
            watched.client.times.clear()
            await asyncio.sleep(200)
            assert watched.intervals() == [60.0, 60.0]

    virtual.run(scenario())


def test_a_trainer_that_never_answers_is_read_less_often() -> None:
    async def scenario() -> None:
        async with polling() as watched:
            watched.poller.follow(KEY, "u", STARTING, changing=True)
            await asyncio.sleep(QUICK_PERIOD + 300)
            assert watched.intervals()[0] == 2.0
            assert watched.intervals()[-1] == 60.0
            assert watched.changed == [2]  # the first failure, and that it is unreachable; no more for the same error

    virtual.run(scenario())


def test_a_running_trainer_that_stops_answering_is_read_soon_again() -> None:
    async def scenario() -> None:
        async with polling() as watched:
            watched.client.answer = TrainerStatus(phase="Running")
            watched.poller.follow(KEY, "u", UP, changing=False)
            await asyncio.sleep(61)
            watched.client.answer = OSError("refused")
            watched.client.times.clear()
            await asyncio.sleep(65)
            assert watched.intervals()[0] == 2.0
            latest = watched.poller.latest(KEY)
            assert (latest.reachable, latest.status) == (False, TrainerStatus(phase="Running"))

    virtual.run(scenario())


def test_a_new_revision_is_read_at_once() -> None:
    async def scenario() -> None:
        async with polling() as watched:
            watched.client.answer = TrainerStatus(phase="Running")
            watched.poller.follow(KEY, "u", UP, changing=False)
            await asyncio.sleep(10)
            watched.poller.follow(KEY, "u", UP, changing=False)
            watched.poller.follow(KEY, "u", LiveTrainer(2, 1), changing=False)
            await asyncio.sleep(1)
            assert watched.intervals() == [10.0]
            watched.poller.forget(KEY)
            await asyncio.sleep(600)
            assert watched.intervals() == [10.0]
            assert watched.poller.latest(KEY).status is None
            assert watched.answered == [2]

    virtual.run(scenario())


def test_an_answer_belongs_to_the_deployment_that_was_known_before_it() -> None:
    async def scenario() -> None:
        async with polling() as watched:
            watched.client.answer = TrainerStatus(phase="Running")
            watched.poller.follow(KEY, "u", UP, changing=False)
            await asyncio.sleep(1)
            changed = LiveTrainer(2, 1)
            watched.client.answer = OSError("refused")
            watched.poller.follow(KEY, "u", changed, changing=True)
            await asyncio.sleep(1)
            assert watched.poller.latest(KEY).trainer == UP
            watched.client.answer = TrainerStatus(phase="Running")
            await asyncio.sleep(2)
            assert watched.poller.latest(KEY).trainer == changed

    virtual.run(scenario())


def test_reads_that_fail_during_a_start_do_not_count_after_it() -> None:
    async def scenario() -> None:
        async with polling() as watched:
            watched.poller.follow(KEY, "u", STARTING, changing=True)
            await asyncio.sleep(5)
            assert watched.poller.latest(KEY).failures == 3
            watched.poller.follow(KEY, "u", UP, changing=True)
            assert watched.poller.latest(KEY).failures == 0
            watched.poller.follow(KEY, "u", LiveTrainer(1, 0, rolled_out=True), changing=True)
            await asyncio.sleep(3)
            watched.poller.follow(KEY, "u", UP, changing=True)  # ready again, but it does not answer
            assert watched.poller.latest(KEY).failures == 2

    virtual.run(scenario())


def test_a_new_training_of_the_same_name_starts_without_the_answer_of_the_old_one() -> None:
    async def scenario() -> None:
        async with polling() as watched:
            watched.client.answer = TrainerStatus(phase="Running")
            watched.poller.follow(KEY, "u", UP, changing=False)
            await asyncio.sleep(1)
            watched.poller.follow(KEY, "v", UP, changing=False)
            assert watched.poller.latest(KEY).status is None

    virtual.run(scenario())


def test_a_slow_trainer_delays_no_other() -> None:
    async def scenario() -> None:
        async with polling() as watched:
            watched.client.answer = TrainerStatus(phase="Initializing")
            watched.poller.follow(ObjectKey("n", "slow"), "s", UP, changing=True)
            await asyncio.sleep(1)
            watched.poller.follow(KEY, "u", UP, changing=True)
            watched.client.times.clear()
            await asyncio.sleep(3)
            assert watched.intervals() == [2.0]

    virtual.run(scenario())


def test_an_unexpected_error_is_a_failed_read_and_stops_nothing() -> None:
    async def scenario() -> None:
        async with polling() as watched:
            watched.client.answer = RecursionError("maximum recursion depth exceeded")
            watched.poller.follow(KEY, "u", UP, changing=False)
            await asyncio.sleep(3)
            latest = watched.poller.latest(KEY)
            assert (latest.failures, latest.error) == (2, "its status cannot be read: RecursionError")
            watched.client.answer = TrainerStatus(phase="Running")
            await asyncio.sleep(2)
            assert watched.poller.latest(KEY).reachable

    virtual.run(scenario())


@pytest.mark.parametrize("text", ["", "trainer:9091", "ftp://a/b", "http://"])
def test_an_invalid_address_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must be an http or https URL"):
        parse_trainer_address(text)


def test_the_image_of_trainers_is_that_of_workers_unless_set() -> None:
    assert defaults(TrainingSettings).options.image == "vmafx:latest"
    assert defaults(TrainingSettings, worker_image="a", trainer_image="b").options.image == "b"


def test_variables_of_trainers_are_settings_of_the_operator() -> None:
    given = {
        "VMAFX_TRAINER_ENV": "VMAFX_INSECURE_REGISTRIES=a:1,b:2;SSL_CERT_FILE=/ca.pem",
        "VMAFX_IMAGE_PULL_SECRETS": "registry",
    }
    options = from_environ(TrainingSettings, given).options
    assert options.environment == {"VMAFX_INSECURE_REGISTRIES": "a:1,b:2", "SSL_CERT_FILE": "/ca.pem"}
    training = TrainingView(MetaView("t", "films", "u"), VmafxModelTrainingSpec("vmaf_v0.6.1"))
    *_, deployment = manifests.children(training, options, 1 << 30, b"key")
    assert deployment["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert variables["SSL_CERT_FILE"] == "/ca.pem"
    assert variables["VMAFX_TRAINER_DIR"] == "/var/lib/vmafx"


@pytest.mark.parametrize("text", ["x", "=1", "A B=1", "VMAFX_SAMPLES_KEY=1"])
def test_an_invalid_variable_of_trainers_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="use NAME=VALUE"):
        from_environ(TrainingSettings, {"VMAFX_TRAINER_ENV": text})
