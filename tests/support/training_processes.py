"""The whole path of samples as processes: operator, controllers, agents, and the trainer as its Deployment says."""

import asyncio
import os
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec

from tests.support.agent_process import read
from tests.support.chaos import score_of
from tests.support.process_fleet import ProcessFleet, process_fleet
from tests.support.trainer_kubelet import TrainerKubelet
from tests.support.training_samples import teacher_score
from tests.support.trainings import IMAGE, Trainings
from tests.support.video import ffmpeg, lossless, scene
from tests.support.waiting import eventually
from vmafx.devcluster import DevCluster
from vmafx.kube import Client
from vmafx.training.held_out import is_held_out
from vmafx.training.sample_log import SampleLog, StoredSamples
from vmafx.training.status import TrainerStatus

Pair = tuple[str, str]
PAIRS: tuple[Pair, ...] = tuple((f"reference-{number}.mkv", f"distorted-{number}.mp4") for number in range(3))
FRAMES = (6, 8, 160)  # of each pair; the samples of the last do not fit into one block of a disk
MIN_SAMPLES = 5  # less than any clip has: one that is not held out is enough for a version
SETTLED_WITHIN = 120.0  # seconds


class KnownClips(NamedTuple):
    """Small clips, and their scores by `vmafx score`."""

    folder: Path
    scores: dict[Pair, float]


def make_known_clips(folder: Path) -> KnownClips:
    """Clips that differ in content, length and score."""
    for number, (reference, distorted) in enumerate(PAIRS):
        made = lossless(scene(frames=FRAMES[number], seed=number), folder / reference)
        ffmpeg("-i", made, "-c:v", "libx264", "-crf", str(30 + 5 * number), folder / distorted)
    return KnownClips(folder, {pair: score_of(folder, pair) for pair in PAIRS})


class StoredBatch(NamedTuple):
    """The samples of an attempt in the log of a trainer."""

    node: str
    job: str
    attempt: str
    samples: int
    values: bytes
    score: float
    human_score: float | None
    held_out: bool


class TrainingProcesses:
    """A fleet of processes whose namespace has the training `t`."""

    def __init__(self, fleet: ProcessFleet, kubelet: TrainerKubelet) -> None:
        self.fleet, self.kubelet = fleet, kubelet
        self.trainings = Trainings(fleet.client, fleet.namespace)
        self.data = kubelet.data("t")
        self._version_samples = 0  # of the version with most

    async def status(self) -> TrainerStatus | None:
        """What the trainer reports; None while it does not answer."""
        url = self.kubelet.address.format(namespace=self.fleet.namespace, name="t") + "/status"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as reply:
                return msgspec.json.decode(await reply.read(), type=TrainerStatus) if reply.status == 200 else None
        except aiohttp.ClientError:
            return None

    async def create(self, **spec: Any) -> None:
        """Create the training, and wait until it runs."""
        await self.trainings.create(checkpoint={"interval": "2s", "minSamples": MIN_SAMPLES}, **spec)
        wanted = ("False", "Paused") if spec.get("paused") else ("True", "")
        await self.trainings.until("Ready", *wanted)

    async def score(self, names: list[str], clips: KnownClips, **spec: Any) -> None:
        """Submit a job for each name, and wait until all are scored."""
        keys = [
            await self.fleet.submit(name, *(clips.folder / one for one in PAIRS[number % len(PAIRS)]), **spec)
            for number, name in enumerate(names)
        ]
        for key in keys:
            job = await self.fleet.finished(key)
            assert job.status.phase == "Succeeded", job.status

    async def until(self, holds: Any, what: str) -> TrainerStatus:
        """Wait until `holds(status)` of the trainer."""
        found: list[TrainerStatus | None] = [None]

        async def check() -> bool:
            found[0] = await self.status()
            return found[0] is not None and bool(holds(found[0]))

        try:
            await eventually(check, what, within=SETTLED_WITHIN)
        except AssertionError as error:
            raise AssertionError(f"{error}: {found[0]}") from None
        assert found[0] is not None
        return found[0]

    async def delivered(self) -> TrainerStatus:
        """Wait until the agents have delivered all samples, the trainer has used them, and no version is due."""

        def all_sent() -> bool:
            return not any(machine.stored_samples() for machine in self.fleet.machines)

        await eventually(all_sent, "all samples are delivered", within=SETTLED_WITHIN)

        def none_is_due(status: TrainerStatus) -> bool:
            # The version that was written last may have been damaged since.
            self._version_samples = max([self._version_samples, *(one.samples for one in status.checkpoints)])
            return bool(status.checkpoints) and status.samples - self._version_samples < MIN_SAMPLES

        return await self.until(lambda status: status.pending == 0 and none_is_due(status), "all samples are used")

    async def agree(self) -> TrainerStatus:
        """Wait until the status of the training says what its trainer reports."""
        reported: list[TrainerStatus] = []

        async def same() -> bool:
            status = await self.status()
            if status is None:
                return False
            reported[:] = [status]
            shown = (await self.trainings.training()).status
            return (shown.phase, shown.currentSamples, shown.damagedRecords) == (
                status.phase,
                status.samples,
                status.damaged,
            ) and [(one.number, one.digest) for one in shown.checkpoints] == [
                (one.number, one.digest) for one in status.checkpoints
            ]

        await eventually(same, "the status of the training agrees with its trainer", within=SETTLED_WITHIN)
        return reported[0]

    def log(self) -> list[StoredBatch]:
        """The samples on the disk of the trainer, which may be running: a copy is read."""
        copy = self.fleet.folder / "log-copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.data / "log", copy)
        log = SampleLog(copy, max_bytes=1 << 30)
        try:
            return [_stored(entry.record) for entry in log.read() if isinstance(entry.record, StoredSamples)]
        finally:
            log.close()

    async def damage(self, pattern: str) -> Path:
        """Truncate the last file that matches, while the trainer is stopped; then kill the trainer."""
        pid = self.kubelet.pid("t")
        os.kill(pid, signal.SIGSTOP)
        await eventually(lambda: "State:\tT" in read(pid, "status"), "the trainer is stopped")
        victim = max(path for path in self.data.glob(pattern) if path.stat().st_size)
        os.truncate(victim, victim.stat().st_size // 2)
        await self.restart()
        return victim

    async def restart(self) -> None:
        """Kill the trainer, and wait until it answers again."""
        starts = len(self.kubelet.starts)
        self.kubelet.kill("t")
        await eventually(lambda: len(self.kubelet.starts) > starts, "the trainer is started again")
        await self.until(lambda status: status.phase == "Running", "the trainer runs again")

    async def checkpoint_events(self) -> Counter[str]:
        """The events about versions, by `version NUMBER, DIGEST`."""
        notes = [note for _, reason, note in await self.trainings.events() if reason == "Checkpoint"]
        return Counter(", ".join(note.split(", ")[:2]) for note in notes)

    async def every_version_has_an_event(self) -> None:
        """Wait for one event about each version that the status of the training lists."""
        status = (await self.trainings.training()).status
        wanted = {f"version {one.number}, {one.digest}" for one in status.checkpoints}

        async def emitted() -> bool:
            return wanted <= (await self.checkpoint_events()).keys()

        try:
            await eventually(emitted, f"events of {sorted(wanted)}", within=30)
        except AssertionError as error:
            raise AssertionError(f"{error}; there are {await self.trainings.events()}") from None
        assert set((await self.checkpoint_events()).values()) <= {1}


def _stored(record: StoredSamples) -> StoredBatch:
    batch, source = record.decode(), record.source
    return StoredBatch(
        source.node, source.job, source.attempt, batch.count, batch.values, teacher_score(batch), source.human_score,
        is_held_out(source.job),
    )  # fmt: skip


@asynccontextmanager
async def training_processes(
    cluster: DevCluster, client: Client, name: str, folder: Path, *machines: str, replicas: int = 1, **kubelet: Any
) -> AsyncIterator[TrainingProcesses]:
    """Processes in a new namespace, with an agent on each machine; `kubelet` has options of TrainerKubelet."""
    trainers = folder / f"trainers-{name}"
    async with TrainerKubelet(client, name, trainers, **kubelet) as running:
        variables = {
            "VMAFX_TRAINER_ADDR": running.address,
            "VMAFX_TRAINER_POLL_SECONDS": "1",
            "VMAFX_WORKER_IMAGE": IMAGE,
        }
        async with process_fleet(cluster, client, name, folder, replicas=replicas, variables=variables) as fleet:
            await asyncio.gather(*(fleet.machine(machine) for machine in machines))
            yield TrainingProcesses(fleet, running)
