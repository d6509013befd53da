"""The kubelet for trainers: a Deployment of the operator runs as a process, is paused, killed, and keeps its volume."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.project import ROOT
from tests.support.trainer_kubelet import TrainerKubelet
from tests.support.trainings import Trainings, reconciling_trainings
from tests.support.waiting import eventually
from vmafx.jobs.sample_keys import SampleKeys
from vmafx.kube import Client
from vmafx.kube.core import SECRETS

STAND_IN = ROOT / "tests" / "support" / "stand_in_trainer.py"


@pytest.fixture
async def kubelet(client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[TrainerKubelet]:
    program = tmp_path / "vmafx"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    program.chmod(0o755)
    async with TrainerKubelet(client, namespace, tmp_path, program=str(program)) as kubelet:
        yield kubelet


@pytest.fixture
async def trainings(client: Client, namespace: str, kubelet: TrainerKubelet) -> AsyncIterator[Trainings]:
    async with reconciling_trainings(client, namespace, kubelet.address):
        yield Trainings(client, namespace)


async def test_a_trainer_is_paused_resumed_and_killed(trainings: Trainings, kubelet: TrainerKubelet) -> None:
    credentials = {"metadata": {"name": "registry"}, "stringData": {".dockerconfigjson": '{"auths":{}}'},
                   "type": "kubernetes.io/dockerconfigjson"}  # fmt: skip
    await trainings.client.create(SECRETS, credentials, trainings.namespace)
    await trainings.create(credentialsSecretRef={"name": "registry"})
    details = json.loads(await trainings.until("Ready", "True", "Training"))
    key = await SampleKeys(trainings.client).get(trainings.namespace)
    assert key is not None
    assert details == {"key": key.decode(), "registry": '{"auths":{}}'}
    assert (kubelet.data("t") / "starts").read_text() == "1"
    await trainings.change(paused=True)
    await trainings.until("Ready", "False", "Paused")
    await trainings.change(paused=False)
    await trainings.until("Ready", "True", "Training")
    assert (await trainings.training()).status.currentSamples == 3  # starts on the same volume
    kubelet.kill("t")

    async def restarted() -> bool:
        return (await trainings.training()).status.currentSamples == 4

    await eventually(restarted, "the process was started again")
    await trainings.delete()
    await trainings.create(paused=True)
    await trainings.until("Ready", "False", "Paused")
    assert (await trainings.training()).status.currentSamples == 5
    assert kubelet.starts == ["t"] * 5
