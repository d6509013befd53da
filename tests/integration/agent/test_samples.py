"""The samples of an agent with the real worker: delivered across outages and kills, and none without a training."""

import asyncio
import random
from pathlib import Path

import grpc
import pytest

from tests.support.agent_process import agent
from tests.support.fleet import operating, phase, reaches, submit
from tests.support.inprocess_controller import controller_ports
from tests.support.memory_controller import MemoryController
from tests.support.trainers import Trainers, add_training
from tests.support.training_samples import teacher_score
from tests.support.waiting import eventually
from vmafx.api.scoring import ScoringOptions
from vmafx.kube import NODES, Client, ObjectKey
from vmafx.kube.errors import NotFound
from vmafx.training.samples import SampleSource, decode_batch
from vmafx.wire import controller_pb2 as wire


def stored_bytes(state: Path) -> int:
    return sum(path.stat().st_size for path in (state / "samples").iterdir())


async def test_samples_are_pushed_and_then_deleted(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.wants_samples = True
    controller.place("uid-0", clips / "reference.mkv", clips / "distorted.mp4")
    async with agent(controller.address, tmp_path, speed):
        await eventually(lambda: controller.samples, "the samples are pushed")
        await eventually(lambda: controller.results, "the result is reported")
        await eventually(lambda: stored_bytes(tmp_path) == 0, "they are deleted")
    batch = decode_batch(controller.samples["token-uid-0"])
    assert batch.count == 6
    assert teacher_score(batch) == pytest.approx(controller.results["uid-0"].score, abs=1e-3)
    (request,) = controller.calls("PushSamples")
    assert request.node_id == "default/machine"


async def test_without_a_training_nothing_is_made_stored_or_sent(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(
        controller.address, tmp_path, speed, variables={"VMAFX_SAMPLES_FILE": str(tmp_path / "other")}
    ) as running:
        await eventually(lambda: any(running.workers()), "a worker runs")
        assert not any("VMAFX_SAMPLES" in environment for environment in running.workers())
        await eventually(lambda: controller.results, "the result is reported")
    assert controller.calls("PushSamples") == []
    assert not (tmp_path / "samples").exists()


async def test_a_limit_of_zero_turns_samples_off(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.wants_samples = True
    controller.place_short(clips)
    async with agent(controller.address, tmp_path, speed, "--samples-mib", "0"):
        await eventually(lambda: controller.results, "the result is reported")
    assert (controller.calls("PushSamples"), (tmp_path / "samples").exists()) == ([], False)


async def test_results_do_not_wait_for_samples(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.wants_samples = True
    controller.refusals["PushSamples"] = grpc.StatusCode.UNAVAILABLE
    for number in range(3):
        controller.place_short(clips, f"uid-{number}")
    async with agent(controller.address, tmp_path, speed):
        await eventually(lambda: len(controller.results) == 3, "all results are reported")
        await eventually(lambda: len(controller.calls("PushSamples")) >= 2, "samples are tried again")
        assert controller.samples == {}
        del controller.refusals["PushSamples"]
        await eventually(lambda: len(controller.samples) == 3, "all samples are delivered")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_kill_at_any_moment_loses_no_stored_batch_and_mixes_none_up(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path, seed: int
) -> None:
    """Every attempt scores another part of the frames, which identifies its samples."""
    chance, attempts = random.Random(seed), [f"uid-{number}" for number in range(6)]
    controller.wants_samples = True
    controller.samples_result = wire.PushSamplesResponse.RETRY
    for number, attempt in enumerate(attempts):
        options = ScoringOptions(subsample=number + 1)
        controller.place(attempt, clips / "reference.mkv", clips / "distorted.mp4", options)
    spooled = set[str]()
    while len(controller.results) < len(attempts):
        before = len(controller.results)
        async with agent(controller.address, tmp_path, speed, "--capacity", "2") as running:
            await eventually(lambda: len(controller.results) > before, "a result is reported")  # noqa: B023
            await asyncio.sleep(chance.random())
            await running.killed()
        spooled |= {request.samples_token for request in controller.calls("PushSamples")}
    controller.samples_result = wire.PushSamplesResponse.STORED
    async with agent(controller.address, tmp_path, speed):
        await eventually(lambda: stored_bytes(tmp_path) == 0, "all stored samples are delivered")
    assert spooled  # all that were ever sent were on disk
    assert spooled <= set(controller.samples) <= {f"token-{attempt}" for attempt in attempts}
    for token, content in controller.samples.items():
        step = int(token.removeprefix("token-uid-")) + 1
        assert list(decode_batch(content).frame_numbers()) == list(range(0, 6, step))


async def test_an_agent_delivers_to_a_trainer_that_was_down_even_after_a_kill(
    client: Client, namespace: str, clips: Path, speed: Path, tmp_path: Path
) -> None:
    await add_training(client, namespace, "all", rack="a")
    async with (
        Trainers(client) as trainers,
        controller_ports(client, namespace, trainers=trainers.address) as (port, _),
        operating(client, namespace),
    ):
        trainers.status = lambda _: 503
        address, flags = f"localhost:{port}", ("--label", "rack=a")
        async with agent(address, tmp_path, speed, *flags) as running:
            await eventually(lambda: _is_registered(client, namespace), "the agent has registered")
            await client.patch_status(NODES, ObjectKey(namespace, "machine"), {"healthy": True})
            key = await submit(client, namespace, "one", clips)
            job = await reaches(client, key, phase("Succeeded"), "scored")
            await eventually(lambda: trainers.received, "the samples were forwarded")
            await running.killed()
        trainers.status = lambda _: 200
        async with agent(address, tmp_path, speed, *flags):
            await eventually(lambda: trainers.stored, "the samples are delivered")
            await eventually(lambda: stored_bytes(tmp_path) == 0, "they are deleted")
    uid = job.metadata.uid
    ((_, source),) = trainers.stored
    assert source == SampleSource(namespace, "machine", uid, f"{uid}-0")
    assert teacher_score(trainers.stored["all", source]) == pytest.approx(job.status.score, abs=1e-3)


async def _is_registered(client: Client, namespace: str) -> bool:
    try:
        return (await client.get(NODES, ObjectKey(namespace, "machine"))).status.agentSession is not None
    except NotFound:
        return False
