"""The trainer's process: what it serves, whom it trusts, and what survives a kill."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from tests.support.trainer_process import KEY, NAME, TrainerProcess
from tests.support.training_samples import NAMESPACE, job_name, push, pushes
from vmafx.devcluster.progress import PlainProgress
from vmafx.devcluster.registry import OciRegistry, find_registry
from vmafx.jobs.sample_token import AttemptClaims, TrainerClaims, sign, trainer_audience
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.models import open_model
from vmafx.training.samples import HumanScore, SamplePush


@pytest.fixture
async def trainer(tmp_path: Path) -> AsyncIterator[TrainerProcess]:
    async with TrainerProcess(tmp_path, checkpoint_interval=0.5, min_samples=100) as process:
        await process.ready()
        yield process


async def test_samples_become_versions(trainer: TrainerProcess) -> None:
    for one in pushes(12):
        assert await trainer.push(one) == "stored"
    assert await trainer.push(push(0)) == "duplicate"
    status = await trainer.until(lambda found: found.checkpoints, "a version is written")
    assert status.phase == "Running"
    await trainer.until(lambda found: (found.samples, found.held_out) == (500, 100), "all samples are used")
    assert await trainer.label([HumanScore(job_name(3), 20.0)]) == 1
    assert await trainer.label([HumanScore(job_name(3), 20.0)]) == 0


async def test_metrics_and_probes(trainer: TrainerProcess) -> None:
    await trainer.push(push(0, count=50))
    await trainer.push(push(1, count=50))
    await trainer.until(lambda found: found.samples == 50, "the samples are used")
    async with trainer.session.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    assert "vmafx_trainer_samples_total 50.0" in lines
    assert "vmafx_trainer_held_out_samples 50.0" in lines
    for path in ("/healthz", "/readyz"):
        async with trainer.session.get(path) as response:
            assert response.status == 200


@pytest.mark.parametrize(
    "token",
    [
        "",
        "nonsense",
        sign(b"another key", TrainerClaims(trainer_audience(NAMESPACE, NAME))),
        sign(KEY.encode(), TrainerClaims(trainer_audience(NAMESPACE, "another"))),
        sign(KEY.encode(), TrainerClaims(trainer_audience(NAMESPACE, NAME)), lambda: 1e9),
        sign(KEY.encode(), AttemptClaims(NAMESPACE, "n1", "job-0", "job-0-0")),
    ],
    ids=["none", "nonsense", "another key", "another training", "expired", "that of a Pod"],
)
async def test_only_the_controller_and_the_operator_may_send(trainer: TrainerProcess, token: str) -> None:
    for path, body in (("/v1/samples", push()), ("/v1/labels", [HumanScore("job-0", 20.0)])):
        status, reply = await trainer.post(path, msgspec.msgpack.encode(body), token)
        assert (status, reply["code"]) == (401, "UNAUTHENTICATED")
    assert (await trainer.status()).pending == 0


NESTED = b"\x81\xa1x" + b"\x91" * 60_000  # a map whose value is an array in an array, and so on


@pytest.mark.parametrize(
    "body",
    [b"", b"garbage", b"\x93" * 100, msgspec.msgpack.encode({"source": 1}), NESTED, b"\x91" + NESTED],
    ids=["empty", "garbage", "arrays", "another type", "nested samples", "nested scores"],
)
async def test_a_body_that_cannot_be_decoded_is_refused(trainer: TrainerProcess, body: bytes) -> None:
    for path in ("/v1/samples", "/v1/labels"):
        assert (await trainer.post(path, body))[0] == 400


async def test_a_large_body_is_refused(trainer: TrainerProcess) -> None:
    assert (await trainer.post("/v1/samples", b"\0" * (1 << 20)))[0] == 413


async def test_garbage_of_a_node_is_refused_and_named(trainer: TrainerProcess) -> None:
    for seed in range(3):
        bad = SamplePush(push(seed, node="bad").source, b"garbage")
        status, reply = await trainer.post("/v1/samples", msgspec.msgpack.encode(bad))
        assert (status, reply["code"]) == (400, "INVALID_ARGUMENT")
    status, reply = await trainer.post("/v1/samples", msgspec.msgpack.encode(push(9, node="bad")))
    assert (status, reply["code"]) == (429, "RESOURCE_EXHAUSTED")  # it can be sent again later
    assert list((await trainer.status()).excluded_nodes) == ["bad"]


async def test_a_second_trainer_does_not_use_the_same_volume(trainer: TrainerProcess) -> None:
    other = TrainerProcess(trainer.folder)
    await other.start()
    assert other.process is not None
    assert await other.process.wait() == 1
    assert "another process uses" in (trainer.folder / "trainer.log").read_text()


async def test_a_graceful_stop_saves(trainer: TrainerProcess) -> None:
    for one in pushes(3, size=20):
        await trainer.push(one)
    await trainer.until(lambda found: found.samples == 40, "the samples are used")
    assert await trainer.stop() == 0
    await trainer.start(paused=True)
    await trainer.ready()
    status = await trainer.status()
    assert (status.phase, status.samples, status.pending) == ("Paused", 40, 0)
    await trainer.push(push(51, count=20))
    assert (await trainer.status()).pending == 20
    assert await trainer.stop() == 0
    await trainer.start(paused=False)
    await trainer.until(lambda found: found.samples == 60, "the stored samples are used")


async def test_every_acknowledged_sample_counts_once_however_often_it_is_killed(tmp_path: Path) -> None:
    rng, clips, size = random.Random(4), 60, 20
    async with TrainerProcess(tmp_path, checkpoint_interval=0.2, min_samples=60) as trainer:
        await trainer.ready()
        kills, undelivered = 0, list(pushes(clips, size))
        while undelivered:
            try:
                await trainer.push(undelivered[0])
                undelivered.pop(0)
            except aiohttp.ClientError:
                await trainer.kill()
                await trainer.start()
                await trainer.ready()
            if rng.random() < 0.1:  # at any moment: also while it learns or writes a version
                await asyncio.sleep(rng.uniform(0, 0.3))
                await trainer.kill()
                kills += 1
        await trainer.kill()
        await trainer.start()
        used = (clips * 9 // 10) * size
        status = await trainer.until(lambda found: found.samples >= used, "all samples are used")
        assert (status.samples, status.held_out, status.pending) == (used, clips // 10 * size, 0)
        assert kills > 2
        numbers = [version.number for version in status.checkpoints]
        assert numbers == sorted(set(numbers))
        assert status.damaged == 0


async def test_a_wrong_base_model_fails_with_a_reason(tmp_path: Path) -> None:
    async with TrainerProcess(tmp_path, base_model="no-such-model") as trainer:
        status = await trainer.until(lambda found: found.phase == "Failed", "the training fails")
        assert "no model 'no-such-model'" in status.message
        status_code, reply = await trainer.post("/v1/samples", msgspec.msgpack.encode(push()))
        assert (status_code, reply["code"]) == (503, "UNAVAILABLE")
        async with trainer.session.get("/readyz") as response:
            assert response.status == 503


async def test_a_registry_that_is_down_delays_only_pushes(tmp_path: Path) -> None:
    registry = OciRegistry(find_registry(PlainProgress()), tmp_path / "registry")
    options = {"checkpoint_interval": 0.2, "min_samples": 40, "output_registry": f"{registry.address}/models/t"}
    async with TrainerProcess(tmp_path, **options) as trainer:
        await trainer.ready()
        for one in pushes(6, size=50):
            await trainer.push(one)
        status = await trainer.until(lambda found: found.publish_error, "a push fails")
        assert "cannot connect" in status.publish_error
        await trainer.push(push(102))
        await trainer.push(push(101))
        await trainer.until(lambda found: found.samples == 350, "training goes on")
        await asyncio.to_thread(registry.start)
        try:
            status = await trainer.until(
                lambda found: found.checkpoints and all(one.pushed for one in found.checkpoints), "all are pushed"
            )
            assert status.publish_error == ""
            name = f"oci://{options['output_registry']}@{status.checkpoints[-1].digest}"
            async with open_model(name, MediaPolicy(private=True)) as model:
                assert model.learned is not None
                assert model.learned.predict({name: [0.9] for name in model.learned.features})[0] > 0
        finally:
            registry.stop()


async def test_another_learning_rate_keeps_what_was_learned(trainer: TrainerProcess) -> None:
    for one in pushes(12):
        await trainer.push(one)
    before = await trainer.until(lambda found: found.checkpoints, "a version is written")
    await trainer.kill()
    await trainer.start(learning_rate=0.0001)
    after = await trainer.until(lambda found: found.phase == "Running", "it runs again")
    assert after.learning_rate == 0.0001
    assert after.checkpoints[: len(before.checkpoints)] == before.checkpoints
    assert after.samples >= before.checkpoints[-1].samples
