"""Fixtures for the tests of trainings."""

from collections.abc import AsyncIterator

import pytest

from tests.support.scripted_trainer import ScriptedTrainers
from tests.support.serving_kubelet import ServingKubelet
from tests.support.trainings import Trainings, training_fleet
from vmafx.kube import Client


@pytest.fixture
async def trainers() -> AsyncIterator[ScriptedTrainers]:
    async with ScriptedTrainers() as trainers:
        yield trainers


@pytest.fixture
async def kubelet(client: Client, namespace: str) -> ServingKubelet:
    """A kubelet that reports the Pods of trainers ready without running them."""
    return ServingKubelet(client, namespace)


@pytest.fixture
async def trainings(
    client: Client, namespace: str, trainers: ScriptedTrainers, kubelet: ServingKubelet
) -> AsyncIterator[Trainings]:
    async with training_fleet(client, namespace, kubelet, trainers.address) as trainings:
        yield trainings
