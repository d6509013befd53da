"""Faults on the whole path of samples, from the agents to the status of a training: nothing is lost or repeated."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Kubectl
from tests.support.inprocess_controller import Agent, controller_stub
from tests.support.project import ROOT
from tests.support.tiny_disk import TinyDisk
from tests.support.training_chaos import TrainingChaos
from tests.support.training_processes import FRAMES, KnownClips, TrainingProcesses, make_known_clips, training_processes
from tests.support.waiting import eventually
from vmafx.devcluster import DevCluster
from vmafx.kube import Client
from vmafx.training.exclusion import MAX_STRIKES
from vmafx.wire import controller_pb2 as wire

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def known_clips(tmp_path_factory: pytest.TempPathFactory) -> KnownClips:
    return make_known_clips(tmp_path_factory.mktemp("known-clips"))


def names(prefix: str, count: int = 3) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


async def all_are_used(processes: TrainingProcesses, jobs: int) -> None:
    """The samples of so many jobs are delivered, stored once, and used."""
    status = await processes.delivered()
    batches = processes.log()
    assert len({one.job for one in batches}) == len(batches) == jobs
    assert status.samples + status.held_out == sum(one.samples for one in batches)


async def test_kills_at_any_moment(
    cluster: DevCluster, client: Client, known_clips: KnownClips, tmp_path: Path
) -> None:
    async with training_processes(cluster, client, "kills", tmp_path, "one", "two", replicas=2) as processes:
        chaos = TrainingChaos(processes, known_clips, seed=1, jobs=30, faults=15)
        await chaos.run()
        assert set(chaos.injected) == {"kill trainer", "kill agent", "kill controller", "kill controllers"}


async def test_a_full_disk_of_the_trainer(
    cluster: DevCluster, client: Client, known_clips: KnownClips, tmp_path: Path
) -> None:
    """Samples stay with the agent, learning goes on, also after a restart; with room, all are delivered."""
    folder = tmp_path / "trainers-disk" / "claims" / "vmafx-trainer-t"
    with TinyDisk(folder, size=400_000) as disk:
        program = disk.program(tmp_path / "vmafx")
        async with training_processes(cluster, client, "disk", tmp_path, "one", program=program) as processes:
            processes.data = disk.path
            await processes.create(paused=True)
            await processes.score(names("before"), known_clips)
            await eventually(lambda: len(processes.log()) == 3, "the samples are stored")
            disk.fill()
            await processes.score(names("while-full"), known_clips)
            await processes.trainings.change(paused=False)
            status = await processes.until(lambda status: status.samples, "learning goes on")
            assert (status.phase, status.pending, status.checkpoints) == ("Running", 0, ())
            message = "cannot store samples: No space left on device"
            await processes.until(lambda status: message in status.message, "samples are refused")

            async def is_shown() -> bool:
                return message in ((await processes.trainings.training()).status.message or "")

            await eventually(is_shown, "the status of the training says why")
            assert processes.fleet.machines[0].stored_samples() > 0
            assert [one.samples for one in processes.log()].count(FRAMES[2]) == 1  # that of the first jobs
            disk.make_room()
            await all_are_used(processes, 6)
            await processes.until(lambda status: status.checkpoints and not status.message, "a version is written")


async def test_truncated_files_are_skipped_with_an_event(
    cluster: DevCluster, client: Client, known_clips: KnownClips, tmp_path: Path
) -> None:
    async with training_processes(cluster, client, "damage", tmp_path, "one") as processes:
        await processes.create()
        for number, pattern in enumerate(("snapshots/*.snapshot", "versions/*.version", "log/*.segment"), 1):
            await processes.score(names(f"job-{number}"), known_clips)
            await processes.delivered()
            before = await processes.agree()
            victim = await processes.damage(pattern)
            after = await processes.agree()
            assert after.damaged > before.damaged
            lost = {int(victim.name[:10])} if victim.suffix == ".version" else set()
            assert {one.number for one in before.checkpoints} - {one.number for one in after.checkpoints} == lost
            new, total = after.damaged - before.damaged, after.damaged
            note = f"skipped {new} damaged records or checkpoints on the volume, {total} so far"

            async def reported() -> bool:
                return ("Warning", "DamagedData", note) in await processes.trainings.events()  # noqa: B023

            await eventually(reported, f"an event about {pattern}")
            await processes.every_version_has_an_event()
        stored = len(processes.log())
        assert stored < 9
        await processes.score(names("after"), known_clips)
        await processes.delivered()
        assert len(processes.log()) == stored + 3
        assert (await processes.agree()).damaged == total


async def test_the_clock_of_the_trainer_is_hours_off(
    cluster: DevCluster, client: Client, known_clips: KnownClips, tmp_path: Path
) -> None:
    skew, program = tmp_path / "skew", tmp_path / "vmafx"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "tests/support/skewed_trainer.py"} "$@"\n')
    program.chmod(0o755)
    skew.write_text("-5")
    options: dict[str, Any] = {"program": str(program), "environment": {"VMAFX_TEST_SKEW": str(skew)}}
    async with training_processes(cluster, client, "clocks", tmp_path, "one", **options) as processes:
        versions = 0
        await processes.create()
        for number, hours in enumerate(("5", "-5", "0"), 1):
            await processes.score(names(f"job-{number}"), known_clips)
            await processes.delivered()
            status = await processes.agree()
            assert len(status.checkpoints) > versions
            versions = len(status.checkpoints)
            await processes.every_version_has_an_event()
            skew.write_text(hours)
            await processes.restart()
        await processes.score(names("last"), known_clips)
        await all_are_used(processes, 12)


async def test_an_agent_that_sends_garbage_is_left_out_and_named(
    cluster: DevCluster, client: Client, known_clips: KnownClips, tmp_path: Path, kubectl: Kubectl
) -> None:
    async with (
        training_processes(cluster, client, "garbage", tmp_path) as processes,
        controller_stub(processes.fleet.replicas[0].grpc) as stub,
    ):
        await processes.create()
        hostile = Agent(stub, "hostile")
        await hostile.register()
        for name in names("job", MAX_STRIKES):
            pair = (known_clips.folder / "reference-0.mkv", known_clips.folder / "distorted-0.mp4")
            key = await processes.fleet.submit(name, *pair)
            work = await hostile.pull()
            reply = await stub.PushSamples(
                wire.PushSamplesRequest(**hostile.me, samples_token=work.job.samples_token, samples=b"garbage")
            )
            assert reply.result == wire.PushSamplesResponse.REFUSED
            assert await hostile.scored(work.job.id)
            await processes.fleet.finished(key)
        note = await processes.trainings.until_event("NodeExcluded")
        assert note.startswith("samples of node hostile are refused: not a batch of samples")
        shown = kubectl("get", "vmtrain", "t", "-o", "yaml", "--namespace", "garbage").stdout
        assert "excludedNodes:\n  - message: 'not a batch of samples" in shown
        assert "    name: hostile\n" in shown

        await processes.fleet.machine("honest", "--label", "who=honest")
        await processes.score(names("honest"), known_clips, nodeSelector={"who": "honest"})
        await eventually(lambda: {one.node for one in processes.log()} == {"honest"}, "others are used")
