"""Jobs whose samples train a model while trainer, controllers and agents are killed; then the invariants are checked.

Some replies of the trainer are lost, too. A job is identified by its human score, which travels with its samples:
samples with a wrong source are found.
"""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Callable
from typing import Literal, NamedTuple

import pytest

from tests.support.training_processes import PAIRS, KnownClips, Pair, StoredBatch, TrainingProcesses
from vmafx.api.job import VmafxJob
from vmafx.scoring.learned import decode_model
from vmafx.training.status import TrainerStatus
from vmafx.training.versions import VersionStore

TrainingFault = Literal["kill trainer", "kill agent", "kill controller", "kill controllers"]
FAULTS: tuple[TrainingFault, ...] = (
    "kill trainer",
    "kill agent",
    "kill trainer",
    "kill controller",
    "kill controllers",
)
AT_ONCE = 6  # unfinished jobs
LOST_REPLIES = 0.2  # share of the trainer's replies: what they acknowledge is sent again
MAX_PAUSE = 2.0  # seconds between two faults
CONTROLLERS_DOWN = 1.0  # seconds


class TrainedJob(NamedTuple):
    name: str
    pair: Pair
    human_score: float


class TrainingChaos:
    """One run: `jobs` jobs and `faults` faults, in an order that the seed decides."""

    def __init__(
        self, processes: TrainingProcesses, clips: KnownClips, seed: int, jobs: int, faults: int,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._processes, self._clips, self._log = processes, clips, log
        self._choice = random.Random(seed)
        self._jobs = [
            TrainedJob(f"job-{number:03d}", self._choice.choice(PAIRS), 20.0 + number) for number in range(jobs)
        ]
        self._faults = [FAULTS[number % len(FAULTS)] for number in range(faults)]
        self._choice.shuffle(self._faults)
        replies = random.Random(seed)
        processes.kubelet.loses_reply = lambda: replies.random() < LOST_REPLIES
        self.injected: Counter[TrainingFault] = Counter()
        self._versions: dict[int, set[str]] = {}  # digests that were ever seen, by number

    async def run(self) -> None:
        """Raises AssertionError if an invariant is violated."""
        await self._processes.create()
        watching = asyncio.create_task(self._watch_versions())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._inject_faults())
                finished = await self._score_all()
            await self._processes.delivered()
            status = await self._processes.agree()
        finally:
            watching.cancel()
        self._check_log(finished, status)
        self._check_versions(status)
        await self._processes.every_version_has_an_event()

    async def _score_all(self) -> dict[str, VmafxJob]:
        """The finished jobs, by uid."""
        slots, fleet = asyncio.Semaphore(AT_ONCE), self._processes.fleet

        async def score(job: TrainedJob) -> VmafxJob:
            async with slots:
                clips = (self._clips.folder / one for one in job.pair)
                return await fleet.finished(await fleet.submit(job.name, *clips, humanScore=job.human_score))

        done = await asyncio.gather(*map(score, self._jobs))
        return {job.metadata.uid: job for job in done}

    async def _inject_faults(self) -> None:
        for fault in self._faults:
            await asyncio.sleep(self._choice.uniform(0, MAX_PAUSE))
            self._log(fault)
            await self._inject(fault)
            self.injected[fault] += 1

    async def _inject(self, fault: TrainingFault) -> None:
        fleet = self._processes.fleet
        match fault:
            case "kill trainer":
                self._processes.kubelet.kill("t")
            case "kill agent":
                self._choice.choice(fleet.machines).signal(signal.SIGKILL)
            case "kill controller" | "kill controllers":
                victims = fleet.replicas if fault == "kill controllers" else [self._choice.choice(fleet.replicas)]
                for one in victims:
                    one.kill()
                await asyncio.sleep(CONTROLLERS_DOWN)
                for one in victims:
                    one.start()

    async def _watch_versions(self) -> None:
        while True:
            if (status := await self._processes.status()) is not None:
                for one in status.checkpoints:
                    self._versions.setdefault(one.number, set()).add(one.digest)
            await asyncio.sleep(0.1)

    def _check_log(self, finished: dict[str, VmafxJob], status: TrainerStatus) -> None:
        batches = self._processes.log()
        attempts = Counter(one.attempt for one in batches)
        assert not [one for one, count in attempts.items() if count > 1], "an attempt is in the log twice"
        used = sum(one.samples for one in batches if not one.held_out)
        window = {one.job: one.samples for one in batches if one.held_out}  # a second attempt replaces the first
        assert (status.samples, status.held_out, status.damaged) == (used, sum(window.values()), 0)
        for job in finished.values():
            assert job.status.phase == "Succeeded", job.status
        missing = {job.metadata.name for job in finished.values() if job.status.controllerJobID not in attempts}
        assert not missing, f"no samples of {missing}; {self._lost()}"
        planned = {job.name: job for job in self._jobs}
        values: dict[Pair, set[bytes]] = {}
        for one in batches:
            self._check_source(one, finished[one.job], planned[finished[one.job].metadata.name])
            values.setdefault(planned[finished[one.job].metadata.name].pair, set()).add(one.values)
        assert all(len(found) == 1 for found in values.values()), "the samples of a clip differ"

    def _check_source(self, batch: StoredBatch, job: VmafxJob, planned: TrainedJob) -> None:
        assert batch.attempt.startswith(job.metadata.uid)
        assert batch.node in {machine.name for machine in self._processes.fleet.machines}
        assert batch.human_score == planned.human_score, f"the samples of {planned.name} are of another job"
        assert batch.score == pytest.approx(self._clips.scores[planned.pair], abs=1e-3)

    def _lost(self) -> list[str]:
        """What the agents have logged about samples."""
        lines = [line for machine in self._processes.fleet.machines for life in machine.lives for line in life.log]
        return [str(line) for line in lines if "samples" in line["msg"]]

    def _check_versions(self, status: TrainerStatus) -> None:
        assert all(len(digests) == 1 for digests in self._versions.values()), "a version number was used twice"
        assert len(status.checkpoints) >= 2
        store = VersionStore(self._processes.data / "versions")
        assert store.versions == status.checkpoints
        for info in store.versions:
            artifact = store.read(info)
            assert artifact is not None
            decode_model(artifact.model, info.digest)
        assert store.damaged == 0
