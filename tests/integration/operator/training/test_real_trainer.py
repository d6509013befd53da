"""The real trainer, run as its Deployment says: it learns, is paused, resumed and killed, and goes on."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import aiohttp
import msgspec
import pytest

from tests.conftest import Kubectl
from tests.support.trainer_kubelet import TrainerKubelet
from tests.support.training_samples import batch
from tests.support.trainings import Trainings, reconciling_trainings
from tests.support.waiting import eventually
from vmafx.api.job import LABELLED, VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.jobs.sample_keys import SampleKeys
from vmafx.jobs.sample_token import TrainerClaims, sign, trainer_audience
from vmafx.kube import JOBS, Client, ObjectKey
from vmafx.training.samples import SamplePush, SampleSource, encode_batch

SAMPLES = 100  # of a job
QUICK = {"interval": "1s", "minSamples": 100}


@pytest.fixture
async def kubelet(client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[TrainerKubelet]:
    async with TrainerKubelet(client, namespace, tmp_path) as kubelet:
        yield kubelet


@pytest.fixture
async def trainings(client: Client, namespace: str, kubelet: TrainerKubelet) -> AsyncIterator[Trainings]:
    async with reconciling_trainings(client, namespace, kubelet.address):
        yield Trainings(client, namespace)


class Sender:
    """Sends samples to the trainer of a training, as the controller does."""

    def __init__(self, trainings: Trainings, kubelet: TrainerKubelet, name: str = "t") -> None:
        self._client, self._kubelet, self._key = trainings.client, kubelet, ObjectKey(trainings.namespace, name)
        self.sent = 0

    async def send(self, jobs: int) -> None:
        """Send the samples of some new jobs, until the trainer has stored them."""
        key = await SampleKeys(self._client).get(self._key.namespace)
        assert key is not None
        token = sign(key, TrainerClaims(trainer_audience(*self._key)))
        url = self._kubelet.address.format(namespace=self._key.namespace, name=self._key.name) + "/v1/samples"
        for _ in range(jobs):
            source = SampleSource(self._key.namespace, "n1", f"job-{self.sent}", f"job-{self.sent}-0")
            push = SamplePush(source, encode_batch(batch(self.sent, SAMPLES)))
            await eventually(partial(self._post, url, token, push), "the samples are stored", within=60)
            self.sent += 1

    async def _post(self, url: str, token: str, push: SamplePush) -> bool:
        headers, body = {"Authorization": f"Bearer {token}"}, msgspec.msgpack.encode(push)
        async with aiohttp.ClientSession(headers=headers) as session, session.post(url, data=body) as reply:
            return reply.status == 200


async def test_a_trainer_learns_is_paused_resumed_and_killed(
    client: Client, namespace: str, trainings: Trainings, kubelet: TrainerKubelet, kubectl: Kubectl
) -> None:
    sender = Sender(trainings, kubelet)
    await trainings.create(checkpoint=QUICK)
    await trainings.until_phase("Initializing")
    await trainings.until("Ready", "True", "Training")
    await sender.send(10)
    first = await trainings.until_event("Checkpoint")
    assert first.startswith("version 1, sha256:")

    async def version(number: int) -> bool:
        checkpoints = (await trainings.training()).status.checkpoints
        return bool(checkpoints) and checkpoints[-1].number >= number

    await sender.send(10)
    await eventually(lambda: version(2), "a second version")
    row = kubectl("get", "vmtrain", "t", "--no-headers").stdout.split()
    assert (row[1], row[3].startswith("sha256:")) == ("Running", True)

    await trainings.change(paused=True)
    await trainings.until("Ready", "False", "Paused")
    paused = (await trainings.training()).status
    await sender.send(5)  # stored, not used
    kubelet.kill("t")
    await eventually(lambda: kubelet.starts.count("t") == 3, "the trainer was started again")
    await trainings.change(paused=False)
    await trainings.until("Ready", "True", "Training")

    async def learned() -> bool:
        return (await trainings.training()).status.currentSamples > paused.currentSamples

    await eventually(learned, "the samples that came meanwhile are used")
    kubelet.kill("t")
    await sender.send(10)
    await eventually(lambda: version(3), "a version after the crash")
    status = (await trainings.training()).status
    assert status.currentSamples <= sender.sent * SAMPLES
    numbers = [one.number for one in status.checkpoints]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_a_human_score_reaches_the_trainer(
    client: Client, namespace: str, trainings: Trainings, kubelet: TrainerKubelet
) -> None:
    spec = VmafxJobSpec("file:///r.mp4", "file:///d.mp4", humanScore=42.0)
    meta = ObjectMeta(name="labelled", labels=LABELLED)
    await client.create(JOBS, VmafxJob(metadata=meta, spec=spec), namespace)
    await client.patch_status(JOBS, ObjectKey(namespace, "labelled"), {"assignedNode": "n1"})
    await trainings.create()
    await trainings.until("Ready", "True", "Training")
    uid = (await client.get(JOBS, ObjectKey(namespace, "labelled"))).metadata.uid

    def stored() -> bool:
        return any(uid.encode() in file.read_bytes() for file in kubelet.data("t").rglob("*") if file.is_file())

    await eventually(stored, "the score is on the volume")
